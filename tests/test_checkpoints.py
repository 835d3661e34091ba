from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import model_factories
import pytest
import safetensors.torch
import torch
from torch import nn

from onelip.checkpoints import load_model, save_model
from onelip.errors import InvalidInputError
from onelip.fusing import fuse
from onelip.layers import list_methods
from onelip.models import ConvNet


def small_net(method: str = "aol", dtype: torch.dtype = torch.float32) -> ConvNet:
    return ConvNet(method, None, 4, 8, width=4, dtype=dtype)


@pytest.mark.parametrize("method", [method.key for method in list_methods()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip(method: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = small_net(method, dtype)
    x = torch.randn(2, 3, 8, 8, dtype=dtype)
    model(x).sum().backward()  # buffers of methods that warm-start have moved
    random_state = torch.get_rng_state()
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert torch.equal(torch.get_rng_state(), random_state), "neither draws random numbers"
    assert again.config == model.config
    assert again.training
    assert all(p.requires_grad for p in again.parameters())
    assert not any(tensor.is_meta for tensor in [*again.parameters(), *again.buffers()])
    assert {p.dtype for p in again.parameters()} == {dtype}
    assert torch.equal(again.eval()(x), model.eval()(x))


def test_header_is_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(small_net(), path)
    with safetensors.safe_open(path, framework="pt") as file:
        header = file.metadata()
    described = json.loads(header["onelip"])
    assert (described["format"], described["version"], described["config"]["method"]) == ("ConvNet", 3, "aol")


def test_equal_networks_give_equal_files_and_the_checksum_is_checked(tmp_path: Path) -> None:
    """In two processes: the order of a hash map may be drawn once per process."""
    code = (
        "import sys, torch; from onelip import ConvNet, save_model; torch.manual_seed(0); "
        "print(save_model(ConvNet('bcop', None, 4, input_size=8, width=4), sys.argv[1]))"
    )
    paths = [tmp_path / f"{index}.safetensors" for index in range(2)]
    other = subprocess.check_output([sys.executable, "-c", code, str(paths[0])], text=True).strip()
    torch.manual_seed(0)
    digests = [other, save_model(small_net("bcop"), paths[1])]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    load_model(paths[0], sha256=digests[1])
    content = bytearray(paths[0].read_bytes())
    content[-1] ^= 1
    paths[0].write_bytes(content)
    load_model(paths[0])
    with pytest.raises(InvalidInputError, match="SHA-256"):
        load_model(paths[0], sha256=digests[0])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_neither_saved_nor_loaded(value: float, tmp_path: Path) -> None:
    model, path = small_net(), tmp_path / "model.safetensors"
    save_model(model, path)
    old = path.read_bytes()
    with torch.no_grad():
        model.stem.weight.view(-1)[0] = value  # type: ignore[operator, union-attr]
    with pytest.raises(InvalidInputError, match="not finite: stem"):
        save_model(model, path)
    assert path.read_bytes() == old
    safetensors.torch.save_file(model.state_dict(), path, metadata=good_header())
    with pytest.raises(InvalidInputError, match="not finite: stem"):
        load_model(path)


def test_loaded_weights_can_be_trained(tmp_path: Path) -> None:
    save_model(small_net(), tmp_path / "model.safetensors")
    model = load_model(tmp_path / "model.safetensors")
    before = model.stem.weight.detach().clone()  # type: ignore[operator, union-attr]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(torch.randn(4, 3, 8, 8)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.stem.weight)  # type: ignore[arg-type]


def test_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    save_model(small_net(), path)
    old = path.read_bytes()

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(Exception, match="No space left on device"):
        save_model(small_net("soc"), path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_only_networks_with_their_own_parameters_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(InvalidInputError, match=r"Linear needs the function that rebuilds it.*factory="):
        save_model(nn.Linear(2, 2), path)
    with pytest.raises(InvalidInputError, match="save the network before fusing"):
        save_model(fuse(small_net("cayley")), path)  # type: ignore[arg-type]
    assert not path.exists()


def rewritten(path: Path, header: dict[str, str] | None) -> None:
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file(tensors, path, metadata=header)


def good_header() -> dict[str, str]:
    config = {
        "method": "aol", "size": None, "num_classes": 4, "input_size": 8, "kernel_size": 3, "in_channels": 3,
        "width": 4, "activation": "maxmin", "padding_mode": "circular", "init": "auto", "setting": "own",
    }  # fmt: skip
    return {"onelip": json.dumps({"format": "ConvNet", "version": 3, "config": config})}


def changed(**changes: object) -> dict[str, str]:
    return {"onelip": json.dumps(json.loads(good_header()["onelip"]) | changes)}


def changed_config(**changes: object) -> dict[str, str]:
    return changed(config=json.loads(good_header()["onelip"])["config"] | changes)


@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        ("model_factories:sequential", {"num_classes": 3, "input_shape": (3, 8, 8)}),
        ("model_factories:converted", {"num_classes": 3, "input_shape": [3, 8, 8]}),
        (model_factories.tied, {"features": 4}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_models_of_factories(factory: Any, arguments: dict[str, Any], dtype: torch.dtype, tmp_path: Path) -> None:
    function = getattr(model_factories, factory.split(":")[1]) if isinstance(factory, str) else factory
    model = function(**arguments).to(dtype)
    for parameter in model.parameters():
        parameter.data += 0.01 * torch.randn_like(parameter)
    path = tmp_path / "model.safetensors"
    digest = save_model(model, path, factory=factory, arguments=arguments)
    x = torch.randn(2, *arguments.get("input_shape", (4,)), dtype=dtype)
    state = torch.get_rng_state()
    full_name = f"model_factories:{function.__name__}"
    for given in ({"factory": function}, {"allow": "model_factories"}, {"allow": (full_name,)}):
        again = load_model(path, sha256=digest, **given)
        assert torch.equal(again.eval()(x), model.eval()(x))
        assert {p.dtype for p in again.parameters()} == {dtype}
        assert len(list(again.parameters())) == len(list(model.parameters())), "tied weights stay tied"
    assert torch.equal(torch.get_rng_state(), state)
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(InvalidInputError, match="SHA-256"):
        load_model(path, sha256=digest, allow="model_factories")


def test_a_file_imports_nothing_that_is_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, trace = tmp_path / "model.safetensors", tmp_path / "trace"
    (tmp_path / "trap.py").write_text(f"open({str(trace)!r}, 'w').close()\nfrom os import system\ndef make(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, arguments: Any = None) -> None:
        header = {"format": "factory", "version": 3, "factory": name, "arguments": arguments or {}}
        safetensors.torch.save_file({"weight": torch.ones(1)}, path, {"onelip": json.dumps(header)})

    write("trap:make")
    for allow in ((), "tra", "trap.make", "trap:other", ("trapper", "torch")):
        with pytest.raises(InvalidInputError, match=r"trap:make.*allow="):
            load_model(path, allow=allow)
    assert not trace.exists()
    with pytest.raises(InvalidInputError, match=r"not an nn\.Module"):
        load_model(path, allow="trap")
    assert trace.exists()
    for name in ("trap:system", "trap:os.system", "os:system", "trap", "trap:make()", "trap:_x:y"):
        write(name, {"command": f"touch {tmp_path / 'ran'}"})
        with pytest.raises(InvalidInputError):
            load_model(path, allow="trap")
    write("trap:absent")
    with pytest.raises(InvalidInputError, match="absent"):
        load_model(path, allow="trap")
    assert not (tmp_path / "ran").exists()


def test_factories_that_do_not_rebuild_the_model(tmp_path: Path) -> None:
    model, path = model_factories.sequential(num_classes=3, input_shape=(3, 8, 8)), tmp_path / "model.safetensors"
    arguments = {"num_classes": 3, "input_shape": (3, 8, 8)}
    with pytest.raises(InvalidInputError, match="expected"):
        save_model(model, path, factory="model_factories:sequential", arguments=arguments | {"num_classes": 4})
    with pytest.raises(InvalidInputError, match="JSON"):
        save_model(model, path, factory="model_factories:sequential", arguments={"num_classes": torch.ones(1)})
    with pytest.raises(InvalidInputError, match="absent_module"):
        save_model(model, path, factory="absent_module:f")
    with pytest.raises(InvalidInputError, match="failed"):
        save_model(model, path, factory="model_factories:sequential")
    with pytest.raises(InvalidInputError, match="module:function"):
        save_model(model, path, factory=lambda: model)
    assert not path.exists()
    save_model(model, path, factory="model_factories:sequential", arguments=arguments)
    with pytest.raises(InvalidInputError, match="tensors are not those"):
        load_model(path, factory=lambda **_: nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "not a network saved by this version of onelip"),
        ({"format": "onelip.ConvNet", "format_version": "2"}, "not a network saved by this version of onelip"),
        (changed(version=1), "this onelip reads ConvNet, network, factory of version 3"),
        (changed(format="GAN"), "this onelip reads ConvNet, network, factory of version 3"),
        ({"onelip": "{"}, "not JSON"),
        ({"onelip": "[" * 100_000}, "not JSON"),
        ({"onelip": "[]"}, "not a JSON object"),
        (changed(config=[]), "config in its header needs exactly activation, "),
        (changed_config(extra=1), "config in its header needs exactly activation, "),
        (changed_config(width=[4]), "config.width"),
        (changed_config(width=2**40), "config.width"),
        (changed_config(width=10**400), "config.width"),
        (changed_config(input_size=2**20, width=2**20), "beyond"),
        (changed_config(kernel_size="3"), "kernel_size"),
        (changed_config(size=5, width=None), "size"),
        (changed_config(activation=7), "activation"),
        (changed_config(method="gan"), "there is no method 'gan'"),
        (changed_config(width=8), "the tensors are not those of the network in its header"),
    ],
)
def test_foreign_headers(header: dict[str, str] | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(small_net(), path)
    rewritten(path, good_header())
    load_model(path)
    rewritten(path, header)
    with pytest.raises(InvalidInputError) as caught:
        load_model(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, -1])
def test_truncated_files(kept: float, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(small_net(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else int(kept)])
    with pytest.raises(InvalidInputError, match="damaged or not a safetensors file"):
        load_model(path)


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(small_net(), path)
    with pytest.raises(InvalidInputError, match="damaged or not a safetensors file"):
        load_model(path)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_model(tmp_path / "nothing.safetensors")
    with pytest.raises(InvalidInputError, match="path of a file, got a NoneType"):
        load_model(None)  # pyright: ignore[reportArgumentType, reportCallIssue]
