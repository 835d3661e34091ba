"""The conversion of a whole model: its modules one by one, and the operations of its `forward`.

The model is traced by torch.fx, so a `forward` of its own, nested modules and modules that are used several times are
all seen as they run. The result is a `torch.fx.GraphModule` with the module names of the original.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Literal

from torch import fx, nn
from torch.fx.proxy import TraceError

from onelip.conversion.changes import Change, Conversion
from onelip.conversion.folding import fold_batch_norms
from onelip.conversion.function_rules import (
    ADDITIONS,
    CONCATENATIONS,
    KEPT,
    NEED_TWO,
    REFUSED,
    WEIGHTED,
    ScaledConcat,
    activations_of,
    module_of,
    trained_of,
)
from onelip.conversion.module_rules import ACTIVATIONS, Options, kind_of, replacement
from onelip.errors import InvalidInputError
from onelip.layers import BatchCentering, ConvexSum, LayerCentering, LipschitzConv2d, LipschitzLinear, get_method


class ConvertedModel(fx.GraphModule):
    """The graph of a converted model, and what was changed to make it."""

    conversion: Conversion


class _Tracer(fx.Tracer):
    """Everything that is not the user's own stays whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _is_ours(m) or kind_of(m) is not None or super().is_leaf_module(m, module_qualified_name)


def convert(
    model: nn.Module,
    method: str = "bcop",
    activation: str = "maxmin",
    *,
    keep_weights: bool = True,
    batch_norm: Literal["center", "fold"] = "center",
) -> ConvertedModel:
    """A copy of an ordinary model in which every operation that can be is 1-Lipschitz.

    Convolutions and linear layers become the method's, BatchNorm and LayerNorm become centering, pooling is scaled to
    constant 1, additions of two branches become convex combinations, activations are replaced. Train the copy as any
    model; `onelip.certify` then certifies it. `converted.conversion` lists every change, what was kept and what could
    not be converted and why: `print(converted.conversion)`.

    Args:
        model: a module that torch.fx can trace: no control flow that depends on values.
        method: key of a method, see `onelip.layers.list_methods`.
        activation: maxmin, groupsort4, abs, or keep to leave those whose constant is 1 as they are.
        keep_weights: start from the trained weights where the method's transformation is a projection.
        batch_norm: "center" puts centering in the place of every BatchNorm; "fold" multiplies a trained one into the
            layer before it, which is then projected, and centres only where there is no such layer.
    """
    if batch_norm not in ("center", "fold"):
        raise InvalidInputError(f"batch_norm={batch_norm!r} is not known, use center or fold")
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"convert takes a torch.nn.Module, got a {type(model).__name__}")
    if activation not in (*ACTIVATIONS, "keep"):
        raise InvalidInputError(f"activation={activation!r} is not known, use one of {', '.join(ACTIVATIONS)}, keep")
    options = Options(get_method(method).key, activation, keep_weights)
    copied = copy.deepcopy(model)
    tracer = _Tracer()
    if tracer.is_leaf_module(copied, ""):
        copied = nn.Sequential(copied)  # a single layer, to be replaced as a whole
    try:
        graph = tracer.trace(copied)
    except (TraceError, TypeError, NotImplementedError) as error:
        raise InvalidInputError(
            f"{type(model).__name__} cannot be converted: its forward depends on values; write it without `if` "
            f"and loops over tensors ({error})".splitlines()[0]
        ) from error
    converted = ConvertedModel(copied, graph, type(model).__name__)
    folded = fold_batch_norms(converted) if batch_norm == "fold" else {}
    changes = _Editor(converted, options, folded).edit()
    converted.graph.lint()
    converted.recompile()
    converted.conversion = Conversion(tuple(changes))
    return converted


class _Editor:
    """One walk over the graph in the order of the computation."""

    def __init__(self, model: ConvertedModel, options: Options, folded: dict[str, tuple[str, nn.Module]]) -> None:
        self.model, self.options, self.folded = model, options, folded
        self.changes: list[Change] = []
        self.seen: set[nn.Module] = set()
        self.activations, self.trained = activations_of(model.graph), trained_of(model)

    def edit(self) -> list[Change]:
        """Edit the graph and its modules in place; returns the changes."""
        for node in list(self.model.graph.nodes):
            if node.op == "call_module":
                self._module(node)
            elif node.op in ("call_function", "call_method"):
                self._function(node)
        return self.changes

    def _module(self, node: fx.Node) -> None:
        path = str(node.target)
        module = self.model.get_submodule(path)
        if module in self.seen:
            return
        before = _words(module)
        try:
            found = replacement(module, self._options_at(node)) if not _is_ours(module) else None
        except InvalidInputError as error:
            self.changes.append(Change(path, "not converted", before, before, str(error)))
            return
        if found is None:
            self.seen.add(module)
            self.changes.append(Change(path, "kept", before, before))
            return
        new, note = found
        new.train(module.training)
        for other in [name for name, value in self.model.named_modules(remove_duplicate=False) if value is module]:
            self.model.set_submodule(other, new)
        self.seen.add(new)
        self.changes.append(Change(path, "converted", before, _words(new), note))
        if path in self.folded:
            norm_path, norm = self.folded[path]
            self.model.delete_submodule(norm_path)
            self.changes.append(Change(norm_path, "converted", _words(norm), f"part of {path}", "folded"))

    def _function(self, node: fx.Node) -> None:
        tensors = [source for source in node.all_input_nodes if source in self.activations]
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        plain = module_of(node)
        if plain is not None:
            try:
                found = replacement(plain, self._options_at(node))
            except InvalidInputError as error:
                self.changes.append(Change(node.name, "not converted", name, name, str(error)))
                return
            stays_random = isinstance(plain, (nn.Dropout, nn.Dropout2d))  # fx has fixed whether it is on
            if found is not None or stays_random:
                module, note = found or (plain, "")
                self._insert(node, f"{name.strip('_')}_{node.name}", module, tuple(tensors[:1]), name, note)
        elif node.target in ADDITIONS and len(tensors) == 2:
            self._insert(node, f"sum_{node.name}", ConvexSum(), tuple(tensors), name)
        elif node.target in CONCATENATIONS and len(tensors) > 1:
            self._concatenation(node, name)
        elif node.target in REFUSED and (len(tensors) > 1 or node.target not in NEED_TWO):
            self.changes.append(Change(node.name, "not converted", name, name, REFUSED[node.target]))
        elif node.target in WEIGHTED and tensors and any(source in self.trained for source in node.all_input_nodes):
            self.changes.append(Change(node.name, "not converted", name, name, WEIGHTED[node.target]))
        elif node.target in KEPT and tensors:
            self.changes.append(Change(node.name, "kept", name, name, KEPT[node.target]))

    def _concatenation(self, node: fx.Node, name: str) -> None:
        parts = node.args[0] if node.args else node.kwargs.get("tensors")
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if isinstance(parts, (tuple, list)) and isinstance(dim, int) and dim != 0:
            sources = tuple(part for part in parts if isinstance(part, fx.Node))
            self._insert(node, f"concat_{node.name}", ScaledConcat(dim), sources, name, "divided by sqrt(n)")

    def _options_at(self, node: fx.Node) -> Options:
        """Which dimension an activation sorts, and how long it is: those of the layers that it follows."""
        calls = [node] if node.op != "call_module" else [n for n in self.model.graph.nodes if n.target == node.target]
        layers = [self._layer_before(call) for call in calls]
        linear = all(isinstance(layer, LipschitzLinear) for layer in layers)
        widths = {width for layer in layers if (width := _width(layer)) is not None}
        return replace(self.options, dim=-1 if linear else 1, widths=frozenset(widths))

    def _layer_before(self, node: fx.Node) -> nn.Module | None:
        """The last layer with weights, behind normalisation, dropout and what else keeps the shape."""
        while node.all_input_nodes:
            node = node.all_input_nodes[0]
            module = self.model.get_submodule(str(node.target)) if node.op == "call_module" else None
            if isinstance(module, (LipschitzConv2d, LipschitzLinear)):
                return module
            if module is None or not _keeps_shape(module):
                return None
        return None

    def _insert(
        self, node: fx.Node, path: str, module: nn.Module, inputs: tuple[fx.Node, ...], before: str, note: str = ""
    ) -> None:
        weight = next((p for p in self.model.parameters() if p.is_floating_point()), None)
        self.model.add_submodule(path, (module if weight is None else module.to(weight)).train(self.model.training))
        with self.model.graph.inserting_before(node):
            new = self.model.graph.call_module(path, inputs)
        node.replace_all_uses_with(new)
        self.model.graph.erase_node(node)
        self.activations.add(new)
        self.changes.append(Change(path, "converted", before, _words(module), note))


def _width(layer: nn.Module | None) -> int | None:
    if isinstance(layer, LipschitzConv2d):
        return layer.out_channels
    return layer.out_features if isinstance(layer, LipschitzLinear) else None


def _keeps_shape(module: nn.Module) -> bool:
    kinds = (BatchCentering, LayerCentering, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
    return isinstance(module, kinds)


def _is_ours(module: nn.Module) -> bool:
    return type(module).__module__.startswith("onelip.")


def _words(module: nn.Module) -> str:
    """The module on one line, shortened."""
    text = " ".join(repr(module).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
