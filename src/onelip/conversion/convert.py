"""The conversion of a whole model: its modules one by one, and the operations of its `forward`.

The model is run once and what it does is recorded, so a `forward` of its own, nested modules and modules that are used
several times are all seen as they run. The result is a `torch.fx.GraphModule` with the module names of the original.
"""

from __future__ import annotations

import copy
import operator
from typing import Any, Literal

import torch
from torch import fx, nn

from onelip.certification.call_arguments import Arguments
from onelip.certification.frozen import copied_model
from onelip.certification.recording import check_graph, record
from onelip.conversion.audit import Audit
from onelip.conversion.changes import Change, Conversion
from onelip.conversion.editor import Editor, is_ours
from onelip.conversion.examples import example_for, shapes_of
from onelip.conversion.folding import fold_batch_norms
from onelip.conversion.function_rules import WEIGHTS
from onelip.conversion.module_rules import ACTIVATIONS, Options, kind_of
from onelip.errors import InvalidInputError
from onelip.layers import get_method


class ConvertedModel(fx.GraphModule):
    """The graph of a converted model, and what was changed to make it."""

    conversion: Conversion


def convert(
    model: nn.Module,
    method: str = "bcop",
    activation: str = "maxmin",
    *,
    keep_weights: bool = True,
    batch_norm: Literal["center", "fold"] = "center",
    input_shape: Any = None,
) -> ConvertedModel:
    """A copy of an ordinary model in which every operation that can be is 1-Lipschitz.

    Convolutions and linear layers become the method's, normalisations become centering, pooling is scaled to constant
    1, additions of two branches become convex combinations, activations are replaced, and what else stretches is
    divided by its constant. Train the copy as any model; `onelip.certify` then certifies it. `converted.conversion`
    lists every change, what was kept and what could not be converted and why: `print(converted.conversion)`.

    Args:
        model: a module whose forward does not depend on values. It is run once, in evaluation mode.
        method: key of a method, see `onelip.layers.list_methods`.
        activation: maxmin, groupsort4, abs, or keep to leave those whose constant is 1 as they are.
        keep_weights: start from the trained weights where the method's transformation is a projection.
        batch_norm: "center" puts centering in the place of every BatchNorm; "fold" multiplies a trained one into the
            layer before it, which is then projected, and centres only where there is no such layer.
        input_shape: the shape of one input without the batch, such as (3, 32, 32), or inputs as the model gets them, on
            which layers are compared; a tuple or a dictionary of these for several arguments. By default
            `model.input_shape`, or the first of some usual shapes that the model accepts.

    Examples:
        >>> import onelip
        >>> from torch import nn
        >>> plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
        >>> model = onelip.convert(plain, "aol", input_shape=(3, 8, 8))
        >>> len(model.conversion.failures)
        0
        >>> onelip.lipschitz_bound(model, (3, 8, 8)) <= 1 + 1e-6
        True
    """
    if batch_norm not in ("center", "fold"):
        raise InvalidInputError(f"batch_norm={batch_norm!r} is not known, use center or fold")
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"convert takes a torch.nn.Module, got a {type(model).__name__}")
    if activation not in (*ACTIVATIONS, "keep"):
        raise InvalidInputError(f"activation={activation!r} is not known, use one of {', '.join(ACTIVATIONS)}, keep")
    options = Options(get_method(method).key, activation, keep_weights)
    converted, inputs, example = _graph(model, input_shape)
    folded = fold_batch_norms(converted) if batch_norm == "fold" else {}
    editor = Editor(converted, options, folded, inputs)
    editor.edit()
    _divide(converted, editor, example)
    converted.graph.lint()
    converted.recompile()
    converted.conversion = Conversion(tuple(editor.changes), shapes_of(example))
    return converted


def _graph(model: nn.Module, input_shape: Any) -> tuple[ConvertedModel, set[fx.Node], Arguments]:
    """A copy of the model as a graph, its nodes that depend on the input, and the call that it was recorded with."""
    name = type(model).__name__
    modes = {path: module.training for path, module in model.named_modules()}
    copied = copied_model(model).eval()
    example = example_for(copied, input_shape)
    whole = _is_leaf(copied)
    copied = nn.Sequential(copied) if whole else copied  # a single layer, to be replaced as a whole
    recorded = copied_model(copied)
    try:
        graph, inputs = record(recorded, copy.deepcopy(example), _is_leaf)
        converted = ConvertedModel(recorded, graph, name)
        check_graph(copied, converted, example)
    except (InvalidInputError, TypeError, RuntimeError, NameError, AttributeError, KeyError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise InvalidInputError(f"{name} cannot be converted: {reason}") from error
    for path, module in converted.named_modules():
        module.training = modes.get(path.removeprefix("0").removeprefix(".") if whole else path, model.training)
    return converted, inputs & set(graph.nodes), example


def _is_leaf(module: nn.Module) -> bool:
    """Modules of torch, ours, and those that inherit all their computation from one that there is a rule for."""
    torchs = type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Sequential)
    return is_ours(module) or kind_of(module) is not None or torchs


def _divide(model: ConvertedModel, editor: Editor, example: Arguments) -> None:
    """List what has no bound, and divide what stretches by its constant."""
    modes = {module: module.training for module in model.modules()}
    audit = Audit(model.eval(), editor.failures, editor.means)
    audit.walk(example)
    for node in _follow_weights(model, editor, audit, example):
        audit.failures[node] = WEIGHTS
        audit.constants.pop(node, None)
    for module, mode in modes.items():
        module.training = mode
    for node, reason in audit.failures.items():
        path, before = editor.place(node)
        editor.changes = [change for change in editor.changes if change.path != path]
        editor.changes.append(Change(path, "not converted", before, before, reason))
    for node, constant in audit.constants.items():
        with model.graph.inserting_after(node):
            scaled = model.graph.call_function(operator.mul, (node, 1 / constant))
        node.replace_all_uses_with(scaled, lambda user, scaled=scaled: user is not scaled)
        path, before = editor.place(node)
        editor.changes = [change for change in editor.changes if change.path != path or change.outcome != "kept"]
        note = "scaled to norm 1" if constant < 1 else f"divided by its constant {constant:.4g}"
        editor.changes.append(Change(path, "converted", before, f"{before} * {1 / constant:.4g}", note))


@torch.no_grad()
def _follow_weights(model: ConvertedModel, editor: Editor, audit: Audit, example: Arguments) -> set[fx.Node]:
    """The operations whose constants are larger for other numbers in the parameters that `forward` itself uses."""
    names = {str(node.target) for node in model.graph.nodes if node.op == "get_attr" and node in editor.trained}
    parameters = [model.get_parameter(name) for name in sorted(names)]
    started = [parameter.clone() for parameter in parameters]
    found: set[fx.Node] = set()
    for factor, shift in ((8, 2), (1 / 8, 0)) if parameters else ():
        for parameter, start in zip(parameters, started, strict=True):
            parameter.copy_(start * factor + torch.where(start < 0, -shift, shift))
        other = Audit(model, editor.failures | set(audit.failures), editor.means)
        other.walk(example)
        found.update(other.failures)
        found |= {node for node, size in other.constants.items() if size > 1.001 * max(1, audit.constants.get(node, 1))}
    for parameter, start in zip(parameters, started, strict=True):
        parameter.copy_(start)
    return found
