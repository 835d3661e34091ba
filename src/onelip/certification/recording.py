"""A model run once on an example, and what it did as a torch.fx graph.

Torch hands every call of its functions to a `TorchFunctionMode`, so the model computes with plain tensors: `if` on
shapes, loops, `isinstance` and libraries that ask for the type of a tensor run as they always do. Sizes are integers
that remember where they come from, so that the graph runs for other batches. Whether it does is checked on one.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode

from onelip.certification.call_arguments import Arguments
from onelip.certification.operations import find_operation
from onelip.certification.traced import nested
from onelip.errors import InvalidInputError

_READS = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy", "__array__", "__contains__")
_WRITES = ("__setitem__", "copy_", "index_put_")
_SHAPED = ("view", "reshape", "expand", "repeat", "broadcast_to", "zeros", "ones", "full", "empty")
_SHAPED += ("new_zeros", "new_ones", "new_full", "new_empty")
_SIZES: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow")},
    "__neg__": operator.neg,
}


class _Size(int):
    """A size of the input that is being recorded; arithmetic with it is recorded too."""

    node: Callable[[], fx.Node]
    is_batch = False

    def __hash__(self) -> int:
        """That of an int; a batch's own, lest `lru_cache`, as of einops, answers with the number of an earlier call."""
        return id(self) if self.is_batch else int(self).__hash__()


class _Ratio(float):
    """A number that was computed from sizes."""

    node: Callable[[], fx.Node]


def _sized(value: Any, node: Callable[[], fx.Node]) -> Any:
    """The number with the node that computes it in the graph, which is made where it is used."""
    if type(value) not in (int, float):
        return value
    number: Any = _Size(value) if isinstance(value, int) else _Ratio(value)
    made: list[fx.Node] = []
    number.node = lambda: made[0] if made else (made.append(node()) or made[0])
    return number


def _arithmetic(name: str, function: Callable[..., Any], plain: type, swapped: bool) -> Callable[..., Any]:
    compute = getattr(plain, name)

    def method(self: Any, *others: Any) -> Any:
        value = compute(self, *others)
        operands = (*others, self) if swapped else (self, *others)

        def node() -> fx.Node:
            found = [part.node() if isinstance(part, (_Size, _Ratio)) else part for part in operands]
            return self.node().graph.call_function(function, tuple(found))

        return value if value is NotImplemented else _sized(value, node)

    return method


for _kind, _plain in ((_Size, int), (_Ratio, float)):
    for _name, _function in _SIZES.items():
        setattr(_kind, _name, _arithmetic(_name, _function, _plain, swapped=False))
        if _name != "__neg__":
            _reverse = f"__r{_name.strip('_')}__"
            setattr(_kind, _reverse, _arithmetic(_reverse, _function, _plain, swapped=True))


class _Recorder(TorchFunctionMode):
    """Writes down each call of torch's functions whose arguments are known to the graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.graph = model, fx.Graph()
        self.nodes: dict[int, tuple[Tensor, fx.Node]] = {}  # the tensors stay alive: an id names one of them
        self.inputs: set[fx.Node] = set()
        """The nodes that depend on the input."""
        self.lengths: dict[Any, int] = {}
        """What `len(x)` gave, as sizes: Python makes plain integers of them."""
        self.running = [""]
        """The paths of the modules that are running, the innermost last."""
        tensors = [*model.named_parameters(), *model.named_buffers()]
        self.weights = {id(tensor): (tensor, name) for name, tensor in tensors}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Torch hands over every call here, and runs what this calls without it."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        getter = getattr(func, "__self__", None) if name == "__get__" else None
        if getter is not None and inspect.isgetsetdescriptor(getter):
            return self.attribute(func, getter.__name__, args)
        if name in _READS and self.depends(args[0]):
            raise InvalidInputError(f"its forward depends on values ({name.strip('_')} of a tensor)")
        args = self.with_lengths(args) if name in _SHAPED and self.lengths else args
        value = func(*args, **kwargs)
        if name == "__len__" and self.depends(args[0]):
            self.lengths[value] = self.size(args[0], 0)
        if name == "size" and self.depends(args[0]):
            return self.sizes(args[0], value) if isinstance(value, torch.Size) else self.size(args[0], args[1])
        if self.has_nodes(args) or self.has_nodes(kwargs):
            self.record(func, name, args, kwargs, value)
        return value

    def attribute(self, func: Any, name: str, args: Any) -> Any:
        value = func(*args)
        if not self.depends(args[0]):
            return value
        if name == "shape":
            return self.sizes(args[0], value)
        if isinstance(value, Tensor):
            self.bind(value, self.graph.call_function(getattr, (self.node(args[0]), name)), [args[0]])
        return value

    def with_lengths(self, args: Any) -> Any:
        """Arguments of which the last are a shape: where its first side is a length of the input, it is one again."""
        place = next((place for place, part in enumerate(args) if not isinstance(part, Tensor)), None)
        if place is None:
            return args
        first = args[place]
        if isinstance(first, (tuple, list)) and first:
            first = [self.lengths.get(first[0], first[0]), *first[1:]]
        elif isinstance(first, int):
            first = self.lengths.get(first, first)
        return (*args[:place], first, *args[place + 1 :])

    def sizes(self, x: Tensor, shape: torch.Size) -> torch.Size:
        return torch.Size([self.size(x, dim) for dim in range(len(shape))])

    def size(self, x: Tensor, dim: int) -> int:
        source = self.node(x)
        number = _sized(x.shape[dim], lambda: self.graph.call_method("size", (source, int(dim))))
        number.is_batch = dim == 0
        return number

    def record(self, func: Any, name: str, args: Any, kwargs: Any, value: Any) -> None:
        tensors = [part for part in nested(value) if isinstance(part, Tensor)]
        if not tensors and name not in _WRITES:
            return
        sources = [part for part in nested((args, kwargs)) if isinstance(part, Tensor)]
        if not _is_method(func, name):
            node = self.graph.call_function(func, self.described(args), self.described(kwargs))
        elif name.startswith("__") and hasattr(operator, name.strip("_")):
            node = self.graph.call_function(getattr(operator, name.strip("_")), self.described(args))
        else:
            node = self.graph.call_method(name, self.described(args), self.described(kwargs))
        self.bind(value if tensors else args[0], node, sources, rebind=bool(tensors))

    def bind(self, value: Any, node: fx.Node, sources: list[Tensor], *, rebind: bool = True) -> None:
        """What a call returned is from now on the node's; parts of a tuple are nodes of their own."""
        if any(self.depends(source) for source in sources):
            self.inputs.add(node)
        node.meta["module"] = self.running[-1]
        if isinstance(value, Tensor):
            node.meta["shape"] = tuple(value.shape)
            if rebind:
                self.nodes[id(value)] = value, node
        elif isinstance(value, (tuple, list)):
            for place, part in enumerate(value):
                if isinstance(part, (Tensor, tuple, list)):
                    self.bind(part, self.graph.call_function(operator.getitem, (node, place)), sources)

    def node(self, tensor: Tensor) -> fx.Node:
        """The node of a tensor: a call's, a weight's, or a constant's that is registered now."""
        if id(tensor) not in self.nodes:
            if id(tensor) in self.weights:
                path = self.weights[id(tensor)][1]
            else:
                path = f"_constant{sum(name.startswith('_constant') for name, _ in self.model.named_buffers())}"
                self.model.register_buffer(path, tensor.detach())
            self.nodes[id(tensor)] = tensor, self.graph.get_attr(path)
        return self.nodes[id(tensor)][1]

    def depends(self, tensor: Any) -> bool:
        """Whether this is a tensor that was computed from the input."""
        return isinstance(tensor, Tensor) and id(tensor) in self.nodes and self.nodes[id(tensor)][1] in self.inputs

    def has_nodes(self, value: Any) -> bool:
        """Whether the graph knows a part of these arguments."""
        return any(id(p) in self.nodes or id(p) in self.weights or isinstance(p, _Size) for p in nested(value))

    def described(self, value: Any) -> Any:
        """Arguments as the graph has them: nodes in the places of tensors and sizes."""

        def part(one: Any) -> Any:
            if isinstance(one, Tensor):
                return self.node(one)
            return one.node() if isinstance(one, (_Size, _Ratio)) else one

        return map_aggregate(value, part)

    def leaf(self, module: nn.Module, path: str) -> Callable[..., Any]:
        """The `forward` of a module that is one node of the graph."""
        forward = module.forward

        def recorded(*args: Any, **kwargs: Any) -> Any:
            with torch._C.DisableTorchFunction():
                value = forward(*args, **kwargs)
            if self.has_nodes(args) or self.has_nodes(kwargs):
                node = self.graph.call_module(path, self.described(args), self.described(kwargs))
                self.bind(value, node, [part for part in nested((args, kwargs)) if isinstance(part, Tensor)])
            return value

        return recorded

    def inside(self, module: nn.Module, path: str) -> Callable[..., Any]:
        """The `forward` of a module that is looked into."""
        forward = module.forward

        def followed(*args: Any, **kwargs: Any) -> Any:
            self.running.append(path)
            try:
                return forward(*args, **kwargs)
            finally:
                self.running.pop()

        return followed


def record(model: nn.Module, example: Arguments, is_leaf: Callable[[nn.Module], bool]) -> tuple[fx.Graph, set[fx.Node]]:
    """The graph of a model in evaluation mode, called with an example, and its nodes that depend on the input."""
    args, kwargs = example.filled()
    recorder = _Recorder(model)
    names = list(inspect.signature(model.forward).parameters)
    names += [f"argument_{place}" for place in range(len(names), len(args))]
    for name, tensor in [*zip(names, args, strict=False), *kwargs.items()]:
        node = recorder.graph.placeholder(name)
        recorder.inputs.add(node)
        recorder.bind(tensor, node, [])
    paths = {module: name for name, module in reversed(list(model.named_modules()))}
    for module, name in paths.items():
        module.forward = recorder.leaf(module, name) if name and is_leaf(module) else recorder.inside(module, name)
    try:
        with recorder, torch.no_grad():
            output = model(*args, **kwargs)
    finally:
        for module in paths:
            del module.forward
    if not any(recorder.depends(part) for part in nested(output)):
        raise InvalidInputError(f"its forward returns a {type(output).__name__}, it must return tensors of its input")
    recorder.graph.output(recorder.described(output))
    _remove_unused(recorder.graph)
    return recorder.graph, recorder.inputs


def name_of(node: fx.Node) -> str:
    """What certificates call the operation, torch.relu and Tensor.relu_ alike; else its own name."""
    target: Any = node.target
    if target is getattr:
        return str(node.args[1])
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    if isinstance(target, str):
        target = getattr(torch.Tensor, target, None)
    elif getattr(target, "__module__", "") == "_operator":
        target = getattr(torch.Tensor, f"__{name.strip('_')}__", None)
    operation = find_operation(target)
    return name.strip("_") if operation is None else operation.name


def check_graph(model: nn.Module, graph: fx.GraphModule, example: Arguments) -> None:
    """Refuse a graph that is another function than the model, on another batch."""
    longer = example.part([*reversed(range(example.batch)), 0])
    args, kwargs = longer.filled([tensor * 1.25 for tensor in longer.tensors])
    results = []
    for function in (model, graph.forward):  # called past fx, which would print the graph where it fails
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            results.append(list(nested(function(*copy.deepcopy(args), **copy.deepcopy(kwargs)))))
    for first, second in zip(*results, strict=True):
        if isinstance(first, Tensor) and not torch.allclose(first, second, 1e-3, 1e-4, equal_nan=True):
            raise InvalidInputError(
                "its forward computes numbers outside of torch, or another function of other inputs"
            )


def _is_method(func: Any, name: str) -> bool:
    """Operators such as x ** 2 come as functions inside of a module of torch's that has no name for them."""
    return getattr(torch.Tensor, name, None) is func or getattr(func, "__module__", "") == "torch._tensor"


def _remove_unused(graph: fx.Graph) -> None:
    """What nobody reads, unless it writes: weights that a hook computes for a layer that is replaced, say."""
    for node in reversed(graph.nodes):
        name = str(node.target) if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        writes = name in ("setitem", "copy_") or (name.endswith("_") and not name.endswith("__"))
        if (
            not node.users
            and node.op not in ("placeholder", "output")
            and not writes
            and not node.kwargs.get("inplace")
        ):
            graph.erase_node(node)
