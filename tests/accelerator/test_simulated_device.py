"""What an accelerator would be asked for, seen without one: reads by the host, kernels, batches.

Whole networks cannot be run on simulated CUDA tensors without a driver: slices ask for the device. Meta tensors, which
refuse to mix with those of the CPU, are in tests/layers/test_device_forms.py.
"""

from __future__ import annotations

import functools
import importlib.util
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from onelip.bench.measurement.second_device import HostReads
from onelip.layers import MethodInfo, list_methods
from onelip.linalg.devices import pretend_device
from onelip.models import ConvNet, FastNet

each_method = pytest.mark.parametrize("method", list_methods(), ids=lambda m: m.key)
FACTORISATIONS = ("linalg_", "_linalg_", "cholesky", "triangular_solve", "lu_", "_fft_")


class Operations(TorchDispatchMode):
    """Notes every operation, and the shapes of what is factorised."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()
        self.factorised: Counter[tuple[str, torch.Size]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func)
        name = str(func).removeprefix("aten.")
        if name.startswith(FACTORISATIONS) and not name.startswith("linalg_vector_norm"):
            self.factorised[name, args[0].shape[-2:]] += 1
        return func(*args, **(kwargs or {}))


@functools.cache
def kernel_table() -> dict[str, dict[str, Any]]:
    """torch's own list of operators and of the devices that have a kernel, which comes with it."""
    yaml = pytest.importorskip("yaml")
    spec = importlib.util.find_spec("torchgen")
    assert spec is not None
    assert spec.origin is not None
    listed = Path(spec.origin).parent / "packaged/ATen/native/native_functions.yaml"
    return {entry["func"].partition("(")[0]: entry for entry in yaml.safe_load(listed.read_text("utf-8"))}


def has_cuda_kernel(operation: Any) -> bool:
    """By the dispatcher, in a torch that is built for CUDA; else by the list that it is built from."""
    name = operation.name().removeprefix("aten::")
    if torch.version.cuda is not None:
        explicit = "CompositeExplicitAutograd"
        keys = ("CUDA", "CompositeImplicitAutograd", explicit, f"{explicit}NonFunctional")
        return any(torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), key) for key in keys)
    entry = kernel_table()[name]
    entry = kernel_table()[entry.get("structured_delegate", name)]
    keys = {key.strip() for names in entry.get("dispatch", {"Composite": ""}) for key in names.split(",")}
    return "ufunc_inner_loop" in entry or any(key == "CUDA" or key.startswith("Composite") for key in keys)


def test_the_table_of_kernels_knows_what_has_none() -> None:
    aten = torch.ops.aten
    assert has_cuda_kernel(aten.linalg_qr.default)
    assert has_cuda_kernel(aten._fft_r2c.default)
    assert not has_cuda_kernel(aten.mkldnn_linear.default)


def read_one_by_one() -> dict[str, Callable[[Tensor], object]]:
    return {
        "_local_scalar_dense": lambda x: x.sum().item(),
        "nonzero": lambda x: x.nonzero(),
        "index.Tensor": lambda x: x[x > 0],
        "masked_select": lambda x: x.masked_select(x > 0),
        "equal": lambda x: torch.equal(x, x),
        "_unique2": lambda x: x.unique(),
    }


@pytest.mark.parametrize("name", read_one_by_one())
def test_reads_of_the_host_are_counted(name: str) -> None:
    with HostReads() as reads:
        read_one_by_one()[name](torch.randn(3))
    assert any(found.startswith(name) for found in reads.counts), reads.counts


def simulated_cuda() -> FakeTensorMode:
    """A mode with CUDA tensors that have no data; a torch built for CPUs needs a guard that does nothing."""
    getattr(torch._C, "_ensureCUDADeviceGuardSet", lambda: None)()  # torch 2.9 has none and needs none
    return FakeTensorMode()


def test_copies_to_the_cpu_are_counted() -> None:
    with simulated_cuda(), torch.no_grad(), HostReads() as reads:
        x = torch.ones(3, device="cuda") * 2
        assert not reads.counts
        x.cpu()
        assert reads.counts.total() == 1
        with pytest.raises(Exception, match="device"):
            x.add(torch.ones(3))


@each_method
def test_a_step_never_waits_and_has_kernels(method: MethodInfo) -> None:
    net, x = ConvNet(method.key, None, 10, input_size=16, width=4), torch.randn(2, 3, 16, 16)
    with pretend_device("accelerator"):
        net.train()(x)  # constants are made once
        with Operations() as operations, HostReads() as reads:
            net(x).square().sum().backward()
            net.eval()(x)
    assert not reads.counts
    assert [str(operation) for operation in operations.seen if not has_cuda_kernel(operation)] == []


def test_a_step_of_fastnet_never_waits_and_has_kernels() -> None:
    net, x = FastNet(width=16), torch.randn(2, 3, 32, 32)
    with pretend_device("accelerator"):
        net.train()(x)
        with Operations() as operations, HostReads() as reads:
            net(x).square().sum().backward()
    assert not reads.counts
    assert [str(operation) for operation in operations.seen if not has_cuda_kernel(operation)] == []


@each_method
def test_factorisations_are_batched(method: MethodInfo) -> None:
    """Layers of one shape and all their frequencies are factorised by one call, which is a batched kernel on CUDA."""
    with torch.device("meta"), pretend_device("accelerator"), torch.no_grad():
        net, x = ConvNet(method.key, "XS", 10).train(), torch.empty(2, 3, 32, 32)
        with Operations() as operations:
            net(x)
    matrices = {key: count for key, count in operations.factorised.items() if not key[0].startswith("_fft_")}
    assert max(matrices.values(), default=0) <= 2, matrices  # the first layer has an image of its own
