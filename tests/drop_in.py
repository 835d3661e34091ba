"""What a layer does wherever a layer of torch does it: memory formats, `view`, writing in place, hooks, torch.func.

Each check takes a layer, inputs and the layer of torch in whose place it stands.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def stored_otherwise(x: Tensor) -> Iterator[tuple[Tensor, torch.memory_format]]:
    """The same numbers stored in every way that callers have, and how torch's layers store what they make of them."""
    yield x, torch.contiguous_format
    if x.dim() in _FORMATS and x.shape[1] > 1:  # of one channel there is one order
        last = _FORMATS[x.dim()]
        yield x.contiguous(memory_format=last), last
        yield x[:1].contiguous(memory_format=last), last
        yield torch.cat([x, x], 1).contiguous(memory_format=last)[:, : x.shape[1]], last
    yield x.movedim(0, -1).contiguous().movedim(-1, 0), torch.contiguous_format
    yield x[:1].expand_as(x), torch.contiguous_format


def check_memory_format(layer: nn.Module, torchs: nn.Module, x: Tensor, *, channels_last: bool = True) -> None:
    """Outputs are stored as inputs are, in both modes."""
    for training in (True, False):
        layer.train(training)
        for stored, memory_format in stored_otherwise(x):
            y = layer(stored)
            assert y.shape == torchs(stored).shape
            if channels_last or memory_format == torch.contiguous_format:
                assert y.is_contiguous(memory_format=memory_format), (training, stored.stride(), y.stride())
        y = layer(x)
        assert y.view(y.shape[0], -1).shape == (len(x), y[0].numel())
        assert y.view(-1).data_ptr() == y.data_ptr()


def check_writing_in_place(layer: nn.Module, x: Tensor) -> None:
    """`add_` and `relu_` on the output are + and relu, gradients included, and change nothing else."""
    for training in (True, False):
        layer.train(training)
        x.requires_grad_()
        last = _FORMATS.get(x.dim(), torch.contiguous_format)
        for stored in (x, x[:1].contiguous(memory_format=last)):
            twin = copy.deepcopy(layer)
            before = stored.detach().clone()
            y, expected = layer(stored), (twin(stored) + 1).relu()
            y.add_(1).relu_()
            assert torch.equal(y, expected)
            assert torch.equal(stored, before)
            weights = torch.randn_like(expected)
            (got,) = torch.autograd.grad((y * weights).sum(), x)
            (wanted,) = torch.autograd.grad((expected * weights).sum(), x)
            assert torch.equal(got, wanted)
            with torch.no_grad():
                first = layer(stored)
                again = first.clone()
                layer(stored).add_(1)
                assert torch.equal(first, again)


def check_unbatched(layer: nn.Module, torchs: nn.Module, x: Tensor) -> None:
    """One input without a batch."""
    layer.eval()
    y = layer(x[0])
    assert y.shape == torchs(x[0]).shape
    assert y.is_contiguous()
    torch.testing.assert_close(y, layer(x[:1])[0])


def check_empty(layer: nn.Module, torchs: nn.Module, x: Tensor) -> None:
    """A batch of none, as the last one of a loader may be."""
    for training in (True, False):
        y = layer.train(training)(x[:0].requires_grad_())
        assert y.shape == torchs(x[:0]).shape
        parameters = [p for p in layer.parameters() if p.requires_grad]
        if training and parameters:
            gradients = torch.autograd.grad(y.sum(), parameters, allow_unused=True)
            assert all(g is None or not g.any() for g in gradients)


def check_autocast(layer: nn.Module, torchs: nn.Module, x: Tensor) -> None:
    """Outputs have the type that torch's have."""
    for training in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            y, expected = layer.train(training)(x), torchs(x)
        assert y.dtype == expected.dtype
        assert y.isfinite().all()
        y.float().sum().backward()


def check_pickle(layer: nn.Module, x: Tensor) -> None:
    """A layer in use, in either mode."""
    for training in (True, False):
        layer.train(training)(x)
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        twin = torch.load(buffer, weights_only=False)
        assert twin.training == training
        assert torch.equal(twin(x), layer(x))


def check_function_transforms(layer: nn.Module, x: Tensor) -> None:
    """`grad` is the gradient and `vmap` the batch."""
    for training in (True, False):
        layer.train(training)
        parameters = {name: p.detach() for name, p in layer.named_parameters()}
        weights = torch.randn_like(layer(x))
        leaves = {name: p.clone().requires_grad_() for name, p in parameters.items()}
        state = copy.deepcopy(layer.state_dict())

        def loss(given: dict[str, Tensor], x: Tensor, weights: Tensor) -> Tensor:
            y: Tensor = functional_call(layer, given, (x,))
            return (y * weights).sum()

        found = grad(loss, (0, 1))(parameters, x, weights)
        layer.load_state_dict(state)
        x_leaf = x.detach().clone().requires_grad_()
        wanted = torch.autograd.grad(loss(leaves, x_leaf, weights), [x_leaf, *leaves.values()], allow_unused=True)
        for got, want in zip([found[1], *found[0].values()], wanted, strict=True):
            torch.testing.assert_close(got, torch.zeros_like(got) if want is None else want, rtol=1e-6, atol=1e-8)
    mapped = vmap(lambda sample: layer(sample[None])[0])(x)
    torch.testing.assert_close(mapped, layer(x))


def check_second_derivatives(layer: nn.Module, x: Tensor) -> None:
    """Of the input and the parameters, against finite differences."""
    layer.eval()
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]

    def function(x: Tensor, *given: Tensor) -> Tensor:
        return functional_call(layer, dict(zip(names, given, strict=True)), (x,))

    x = x[:1].detach().clone().requires_grad_()
    assert torch.autograd.gradgradcheck(function, (x, *values), fast_mode=True, atol=1e-4, rtol=1e-3)


def _doubled(module: nn.Module, given: object, y: Tensor) -> Tensor:
    return 2 * y


def check_hooks(layer: nn.Module, x: Tensor) -> None:
    """Hooks see inputs, outputs and gradients, and may replace outputs."""
    seen: list[torch.Size] = []
    handles = [
        layer.register_forward_pre_hook(lambda module, given: seen.append(given[0].shape)),
        layer.register_forward_hook(_doubled),
        layer.register_full_backward_hook(lambda module, to_x, to_y: seen.extend([to_x[0].shape, to_y[0].shape])),
    ]
    for training in (True, False):
        seen.clear()
        y = layer.train(training)(x.detach().requires_grad_())
        y.sum().backward()
        assert seen == [x.shape, x.shape, y.shape]
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(y, 2 * layer(x))
