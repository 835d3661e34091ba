"""One walk over the graph of a model, which replaces its modules and operations."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import fx, nn

from onelip.certification.recording import name_of
from onelip.certification.registered_bounds import conversion_of
from onelip.conversion.changes import Change
from onelip.conversion.function_rules import (
    ADDITIONS,
    CONCATENATIONS,
    NEED_TWO,
    REFUSED,
    WEIGHTED,
    WEIGHTS,
    BoundedProduct,
    ScaledConcat,
    module_of,
    trained_of,
)
from onelip.conversion.module_rules import MEANS, Options, replacement
from onelip.errors import InvalidInputError
from onelip.layers import BatchCentering, ConvexSum, LayerCentering, LipschitzConv2d, LipschitzLinear


class Editor:
    """One walk over the graph in the order of the computation."""

    def __init__(
        self,
        model: fx.GraphModule,
        options: Options,
        folded: dict[str, tuple[str, nn.Module]],
        activations: set[fx.Node],
    ) -> None:
        self.model, self.options, self.folded, self.activations = model, options, folded, activations
        self.changes: list[Change] = []
        self.seen: set[nn.Module] = set()
        self.trained = trained_of(model)
        self.failures: set[fx.Node] = set()
        """The nodes that were not converted."""
        self.means: set[fx.Node] = set()
        """The nodes that are means, which leave less of the signal than they may."""

    def edit(self) -> None:
        """Edit the graph and its modules in place, and list the changes."""
        for node in list(self.model.graph.nodes):
            if node.op == "call_module":
                self._module(node)
            elif node.op in ("call_function", "call_method") and node in self.activations:
                self._function(node, name_of(node))

    def place(self, node: fx.Node) -> tuple[str, str]:
        """Where a node is, and what it computes, in words."""
        if node.op == "call_module":
            return str(node.target), _words(self.model.get_submodule(str(node.target)))
        return node.name, name_of(node)

    def _fail(self, node: fx.Node, why: str) -> None:
        path, before = self.place(node)
        self.failures.add(node)
        if all(change.path != path for change in self.changes):
            self.changes.append(Change(path, "not converted", before, before, why))

    def _module(self, node: fx.Node) -> None:
        path = str(node.target)
        module = self.model.get_submodule(path)
        if isinstance(module, MEANS):
            self.means.add(node)
        if module in self.seen:
            return
        before = _words(module)
        try:
            found = replacement(module, self._options_at(node)) if not is_ours(module) else None
        except InvalidInputError as error:
            self._fail(node, str(error))
            return
        if found is None:
            self.seen.add(module)
            self.changes.append(Change(path, "kept", before, before))
            return
        new, note = found
        self.means.discard(node)
        new.train(module.training)
        for other in [name for name, value in self.model.named_modules(remove_duplicate=False) if value is module]:
            self.model.set_submodule(other, new)
        self.seen.add(new)
        self.changes.append(Change(path, "converted", before, _words(new), note))
        if path in self.folded:
            norm_path, norm = self.folded[path]
            self.model.delete_submodule(norm_path)
            self.changes.append(Change(norm_path, "converted", _words(norm), f"part of {path}", "folded"))

    def _function(self, node: fx.Node, name: str) -> None:
        sources = node.all_input_nodes
        tensors = tuple(source for source in sources if source in self.activations)
        plain, registered = module_of(node, name), conversion_of(node.target, node.args[1:], dict(node.kwargs))
        if name == "mean" or "avg_pool" in name:
            self.means.add(node)
        if callable(registered):
            self._insert(node, f"{name}_{node.name}", registered(), tensors[:1])
            return
        if plain is not None:
            try:
                found = replacement(plain, self._options_at(node))
            except InvalidInputError as error:
                self._fail(node, str(error))
                return
            stays_random = isinstance(plain, (nn.Dropout, nn.Dropout2d))  # the graph has fixed whether it is on
            if found is not None or stays_random:
                module, note = found or (plain, "")
                self._insert(node, f"{name}_{node.name}", module, tensors[:1], note)
            return
        trained = tuple(source for source in sources if source in self.trained)
        if name in ADDITIONS and len(tensors) == 2 and not node.kwargs:
            self._insert(node, f"sum_{node.name}", ConvexSum(), tensors)
        elif name in CONCATENATIONS and len(tensors) > 1:
            self._concatenation(node)
        elif name == "mul" and trained and len(tensors) == 1:
            note = _start_factor(self.model, trained[0])
            self._insert(node, f"product_{node.name}", BoundedProduct(), (tensors[0], trained[0]), note)
        elif name in REFUSED and (len(tensors) > 1 or name not in NEED_TWO):
            self._fail(node, REFUSED[name])
        elif name in WEIGHTED and trained:
            self._fail(node, WEIGHTS)

    def _concatenation(self, node: fx.Node) -> None:
        parts = node.args[0] if node.args else node.kwargs.get("tensors")
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if isinstance(parts, (tuple, list)) and isinstance(dim, int) and dim != 0:
            sources = tuple(part for part in parts if isinstance(part, fx.Node))
            if len(sources) == len(parts):
                self._insert(node, f"concat_{node.name}", ScaledConcat(dim), sources, "divided by sqrt(n)")

    def _options_at(self, node: fx.Node) -> Options:
        """Which dimension an activation sorts, and what it gets: that of the layers that it follows."""
        calls = [node] if node.op != "call_module" else [n for n in self.model.graph.nodes if n.target == node.target]
        layers = [self._layer_before(call) for call in calls]
        linear = all(isinstance(layer, LipschitzLinear) for layer in layers)
        shapes = {shape for call in calls if (shape := _shape_before(call)) is not None}
        return replace(self.options, dim=-1 if linear else 1, shapes=frozenset(shapes))

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

    def _insert(self, node: fx.Node, path: str, module: nn.Module, inputs: tuple[fx.Node, ...], note: str = "") -> None:
        before = name_of(node)
        weight = next((p for p in self.model.parameters() if p.is_floating_point()), None)
        self.model.add_submodule(path, (module if weight is None else module.to(weight)).train(self.model.training))
        with self.model.graph.inserting_before(node):
            new = self.model.graph.call_module(path, inputs)
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        self.model.graph.erase_node(node)
        self.activations.add(new)
        self.changes.append(Change(path, "converted", before, _words(module), note))


def _shape_before(node: fx.Node) -> tuple[int, ...] | None:
    return next((source.meta["shape"] for source in node.all_input_nodes if "shape" in source.meta), None)


@torch.no_grad()
def _start_factor(model: fx.GraphModule, node: fx.Node) -> str:
    """Divide the parameter that a trained factor is made of by its largest entry, or fill it with ones."""
    while node.op != "get_attr" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    factor = model.get_parameter(str(node.target))
    largest = factor.abs().amax()
    factor.copy_(factor / largest if largest > 0 else torch.ones_like(factor))
    return "kept within [-1, 1], from its largest entry"


def _keeps_shape(module: nn.Module) -> bool:
    kinds = (BatchCentering, LayerCentering, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
    return isinstance(module, kinds)


def is_ours(module: nn.Module) -> bool:
    """Whether the module is one of onelip's."""
    return type(module).__module__.startswith("onelip.")


def _words(module: nn.Module) -> str:
    """The module on one line, shortened."""
    text = " ".join(repr(module).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
