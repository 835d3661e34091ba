"""Certificate files: both checkers accept what the exporter writes, and nothing that is not true."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest
import torch
from certificate_oracle import apply, falsehood, opened, sealed
from jacobians import circular_norm
from safetensors.torch import save
from shipped_methods import SHIPPED
from torch import Tensor, nn
from torch.nn import functional as F

import onelip
import onelip_check
from onelip.certification.witnesses import UNIT, Geometry, find_witness
from onelip.errors import BrokenCertificateError, InvalidInputError
from onelip.layers import (
    Abs,
    AOLConv2d,
    AOLLinear,
    BCOPConv2d,
    BCOPLinear,
    CayleyConv2d,
    CayleyLinear,
    CPLConv2d,
    CPLLinear,
    ECOConv2d,
    FirstChannels,
    GroupSort,
    LipschitzResidual,
    LOTConv2d,
    MaxMin,
    SandwichConv2d,
    SandwichLinear,
    ScaledAvgPool2d,
    ScaledMaxPool2d,
    SLLConv2d,
    SOCConv2d,
    UnitRowsLinear,
)

ROOT = Path(__file__).parents[2]
Checker = Callable[[bytes], str]


def python_checker(content: bytes) -> str:
    """The first line that does not follow; nothing if all do."""
    try:
        check = onelip_check.Check(content)
        check.check_images(0, check.images)
    except onelip_check.NotProvenError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("checker") / "onelip_check"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra"]
    subprocess.run([compiler, *flags, "-o", program, ROOT / "checkers" / "onelip_check.c"], check=True)
    return program


@pytest.fixture(params=["python", "c"])
def checker(request: pytest.FixtureRequest, tmp_path: Path) -> Checker:
    if request.param == "python":
        return python_checker
    program = request.getfixturevalue("c_program")

    def run(content: bytes) -> str:
        (tmp_path / "file.cert").write_bytes(content)
        done = subprocess.run(
            [program, tmp_path / "file.cert"], capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout if done.returncode else ""

    return run


def weights_far_from_the_start(model: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return model


def bcop() -> nn.Module:
    first, second = BCOPConv2d(2, 4, 3, stride=2), BCOPConv2d(4, 8, 2, stride=2)
    return nn.Sequential(first, MaxMin(), second, MaxMin(), nn.Flatten(), BCOPLinear(32, 3))


def aol() -> nn.Module:
    second = AOLConv2d(4, 6, 3, padding_mode="zeros")
    return nn.Sequential(AOLConv2d(2, 4, 3), Abs(), second, nn.Flatten(), AOLLinear(96, 5))


def cpl() -> nn.Module:
    second = CPLConv2d(3, 3, 3, padding_mode="zeros")
    return nn.Sequential(CPLConv2d(3, 3, 3), second, nn.Flatten(), CPLLinear(48, 48), FirstChannels(4))


def sll() -> nn.Module:
    return nn.Sequential(SLLConv2d(2, 2, 3), nn.ReLU(), nn.Flatten(), FirstChannels(3))


def plain() -> nn.Module:
    """Strides, uneven sides, crops, circular kernels of even sides, and bounds far from 1."""
    first = nn.Conv2d(2, 6, 3, stride=2, padding=1)
    second = nn.Conv2d(6, 2, (3, 2), padding=(1, 0), padding_mode="circular")
    head = nn.Linear(18, 5), nn.ReLU(), nn.Linear(5, 3)
    return nn.Sequential(first, GroupSort(3), second, nn.PixelUnshuffle(3), nn.Flatten(), *head)


def overlapping() -> nn.Module:
    """A kernel that is larger than the torus it wraps around."""
    return nn.Sequential(nn.Conv2d(1, 2, 5, padding=2, padding_mode="circular"), nn.Flatten(), nn.Linear(18, 2))


def no_head() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 4), MaxMin())


def cayley() -> nn.Module:
    """Frequencies of a circle, of a torus that is larger than the image, and behind a stride."""
    layers = CayleyConv2d(2, 2, 3), MaxMin(), CayleyConv2d(2, 4, 3, padding_mode="zeros"), LOTConv2d(4, 4, 3, stride=2)
    return nn.Sequential(*layers, nn.Flatten(), CayleyLinear(16, 3))


def eco() -> nn.Module:
    return nn.Sequential(ECOConv2d(2, 2, 3, padding_mode="zeros"), ECOConv2d(2, 2, 3), nn.Flatten(), nn.Linear(32, 3))


def sandwich() -> nn.Module:
    layers = SandwichConv2d(2, 4, 3, padding_mode="zeros"), SandwichConv2d(4, 2, 3), SandwichConv2d(2, 2, 1)
    return nn.Sequential(*layers, nn.Flatten(), SandwichLinear(32, 4))


class Branches(nn.Module):
    """Values that are used twice, sums, differences, factors, concatenation and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = AOLConv2d(2, 2, 3), nn.Conv2d(2, 2, 3, padding="same", groups=2)
        self.step = LipschitzResidual(nn.Sequential(AOLConv2d(2, 2, 3), nn.ReLU()))
        self.norm, self.pool, self.mean = nn.BatchNorm2d(4), ScaledMaxPool2d(2, 1), ScaledAvgPool2d(3)
        self.head = UnitRowsLinear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.step(torch.relu(x + self.first(x)) * 0.5)
        z = torch.cat([y, (x - self.second(y)) / 2], 1)
        return self.head(self.mean(self.pool(self.norm(z))).flatten(1)) + 0.25


SHAPES = {bcop: (2, 8, 8), aol: (2, 4, 4), cpl: (3, 4, 4), sll: (2, 6, 6), plain: (2, 6, 7), overlapping: (1, 3, 3)}
SHAPES |= {no_head: (7,), cayley: (2, 4, 4), eco: (2, 4, 4), sandwich: (2, 4, 4), Branches: (2, 4, 4)}


def written(model: nn.Module, x: Tensor, path: Path, **options: float) -> bytes:
    certificate = onelip.certify(model, x, **options)  # pyright: ignore[reportArgumentType]
    certificate.save(path / "images.cert", model=model)
    return (path / "images.cert").read_bytes()


@pytest.fixture(params=SHAPES, ids=lambda make: make.__name__)
def valid(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    torch.manual_seed(3)
    return written(weights_far_from_the_start(request.param()), torch.randn(4, *SHAPES[request.param]), tmp_path)


def test_a_file_is_checked_and_true(valid: bytes, checker: Checker) -> None:
    assert checker(valid) == ""
    assert falsehood(valid) is None


def test_bounds_are_those_of_the_exact_norm_and_no_smaller_one_is_accepted(valid: bytes, checker: Checker) -> None:
    certificate, tensors = opened(valid)
    x = tensors["inputs"].double()
    for number, entry in enumerate(certificate["operations"]):
        x, norm = apply(entry, tensors, x)
        bound = float(tensors["bounds"][number])
        assert norm * (1 - 1e-12) <= bound
        circular = entry.get("mode") == "circular" and x.shape[1] % (entry["image"][1] * entry["image"][2]) == 0
        if circular or entry["op"] == "linear":  # else images are cropped, which a bound on the torus ignores
            assert bound <= norm * (1 + 2e-4) + 1e-9
        smaller = tensors["bounds"].clone()
        smaller[number] = norm * (1 - 1e-7)
        assert "does not follow" in checker(sealed(certificate, tensors | {"bounds": smaller}))


def test_no_more_is_accepted_than_scores_and_bounds_give(valid: bytes, checker: Checker) -> None:
    certificate, tensors = opened(valid)
    certain = tensors["radii"] > 0
    assert bool(certain.any())
    for name, changed in {
        "radii": tensors["radii"] * (1 + 1e-6) + certain * 1e-9,
        "margins": tensors["margins"] + 1e-7,
        "scores": tensors["scores"] + 1e-7,
        "errors": tensors["errors"] / 1e4,
        "predictions": (tensors["predictions"] + 1) % tensors["scores"].shape[1],
        "inputs": tensors["inputs"] + 1e-3,
        "input_scale": tensors["input_scale"] * (1 + 1e-6),
    }.items():
        said = checker(sealed(certificate, tensors | {name: changed}))
        assert said, name


def test_radii_are_nearly_those_of_the_certificate(tmp_path: Path) -> None:
    for make in (bcop, aol):
        model, x = weights_far_from_the_start(make()), torch.randn(8, *SHAPES[make])
        certificate = onelip.certify(model, x, input_scale=4.0)
        certificate.save(tmp_path / "file", model=model)
        _, tensors = opened((tmp_path / "file").read_bytes())
        assert bool((tensors["radii"] <= certificate.radii).all())
        torch.testing.assert_close(tensors["radii"], certificate.radii, rtol=1e-3, atol=1e-6)


def test_the_radius_holds_at_the_worst_point_of_an_affine_classifier(checker: Checker, tmp_path: Path) -> None:
    """The nearest change of the class is at (y_p - y_j) / ||w_p - w_j||: the file claims no more, nor much less."""
    head = nn.Linear(6, 4)
    model, x = weights_far_from_the_start(nn.Sequential(head)), torch.randn(9, 6)
    content = written(model, x, tmp_path)
    assert checker(content) == ""
    rows = head.weight.detach().double()
    scores = x.double() @ rows.T + head.bias.detach().double()
    chosen = scores.argmax(1)
    gaps = scores.gather(1, chosen[:, None]) - scores
    distances = (rows[chosen][:, None] - rows).norm(dim=2)
    nearest = (gaps / distances).nan_to_num(nan=torch.inf).amin(1)
    radii = opened(content)[1]["radii"]
    assert bool((radii <= nearest).all())
    torch.testing.assert_close(radii, nearest, rtol=1e-5, atol=1e-7)


def crafted(operation: Mapping[str, object], weight: Tensor, x: Tensor, scores: Tensor, **claims: float) -> bytes:
    """A file about one operation and one input, with claims that are empty unless they are given."""
    said = {"bounds": 1.0, "errors": 1e-6, "margins": -1e-5, "radii": 0.0, "input_scale": 1.0} | claims
    tensors = {name: torch.tensor([value], dtype=torch.float64) for name, value in said.items()}
    tensors |= {"weight": weight, "inputs": x[None], "scores": scores[None], "predictions": torch.tensor([0])}
    whole = {"weight": "weight", "witness": {"side": "output"}, **operation}
    return sealed({"format": "onelip certificate", "version": 1, "operations": [whole]}, tensors)


def test_scores_without_rounding_errors_would_be_fooled(checker: Checker) -> None:
    """One sum, in an order in which float64 loses a thousand small terms: the sign is wrong, and so is the class."""
    small = 2.0**-40
    terms = [2.0**13 + 1, *[-small] * 1000, -(2.0**13) - 1, 2.0**-31]
    naive = 0.0
    for term in terms:
        naive += term
    assert naive > 0 > sum(map(Fraction, terms))
    weight = torch.tensor([terms, [0.0] * len(terms)], dtype=torch.float64)
    x, scores = torch.ones(len(terms), dtype=torch.float64), torch.tensor([naive, 0.0], dtype=torch.float64)
    linear = {"op": "linear"}
    claims = {"bounds": 2.0**14, "errors": 2.0**-29}
    assert checker(crafted(linear, weight, x, scores, **claims, margins=-(2.0**-28))) == ""  # scores: true
    assert "margin" in checker(crafted(linear, weight, x, scores, **claims, margins=2.0**-32, radii=2.0**-60))


def test_row_sums_without_rounding_errors_would_be_fooled(checker: Checker) -> None:
    """1 + 2^-60 is 1 in float64: the norm of this row is larger than 1, and no file may say 1."""
    weight = torch.tensor([[1.0, 2.0**-30], [0.0, 0.0]], dtype=torch.float64)
    assert float((weight @ weight.T).abs().sum(1).amax()) == 1.0
    linear, zeros = {"op": "linear"}, torch.zeros(2, dtype=torch.float64)
    assert "does not follow" in checker(crafted(linear, weight, zeros, zeros, bounds=1.0))
    assert checker(crafted(linear, weight, zeros, zeros, bounds=1 + 2.0**-39)) == ""


def test_the_bound_is_that_of_the_columns_as_checkers_round_them() -> None:
    """A thousand entries of a row, each of them rounded, add up to more than float64 leaves open."""
    weight = torch.randn(4, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    witness = find_witness(weight, Geometry((16, 16), padding=(1, 1), circular=True))
    assert witness.columns is not None
    units = witness.columns / UNIT
    assert torch.equal(units, units.floor())
    norm = float(circular_norm(weight.double(), (16, 16)))
    assert norm <= witness.bound <= norm * (1 + 1e-6)


def test_a_circular_kernel_may_not_read_a_pixel_twice(checker: Checker) -> None:
    """Outputs beyond the torus repeat others: one tap, padded by 1, reads a pixel of 2 x 2 up to four times."""
    weight = torch.zeros(1, 1, 2, 2)
    weight[0, 0, 0, 0] = 1
    convolution = {"op": "convolution", "image": [1, 2, 2], "stride": [1, 1], "padding": [1, 1], "mode": "circular"}
    assert "circular" in checker(crafted(convolution, weight, torch.zeros(4), torch.zeros(9)))


def test_the_torus_is_that_of_the_image(checker: Checker) -> None:
    """On a smaller torus taps cancel: 1 and -1 at a distance of 2 are 0 on a torus of 2."""
    weight = torch.tensor([1.0, 0.0, -1.0]).reshape(1, 1, 1, 3)
    for mode, torus, accepted in (
        ("circular", 3, True),
        ("circular", 2, False),
        ("zeros", 5, True),
        ("zeros", 2, False),
    ):
        witness = {"side": "output", "torus": [1, torus]}
        convolution = {"op": "convolution", "image": [1, 1, 3], "stride": [1, 1], "padding": [0, 1], "mode": mode}
        content = crafted(convolution | {"witness": witness}, weight, torch.zeros(3), torch.zeros(3), bounds=2.0)
        assert (checker(content) == "") == accepted


@pytest.mark.parametrize(
    "value", ["NaN", "1e999", "1.0", "-1", "01", "9" * 11, '"\\u0061"', '"é"', "[" * 9999, "1, 2", '1, "a": 2']
)
def test_odd_json_is_refused(value: str, checker: Checker) -> None:
    for text in (f'{{"a": {value}}}', f'{{"a": 1}} {value}'):
        assert "JSON" in checker(sealed(text, {"inputs": torch.zeros(1, 1)}))


def test_odd_files_are_refused(checker: Checker, tmp_path: Path) -> None:
    content = written(sll(), torch.randn(2, *SHAPES[sll]), tmp_path)
    length = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + length], content[8 + length :]
    longer = (length + 1).to_bytes(8, "little") + header + b" " + body
    assert checker(longer) == ""  # spaces behind the header are usual
    for odd in (
        b"", content[:7], content[:-1], content + b"\0", b"\xff" * 8 + content[8:],
        content[:8] + header.replace(b'"F32"', b'"F16"') + body,
        content[:8] + header.replace(b"{", b"[", 1) + body,
        content[: 8 + length] + bytes([body[0] ^ 1]) + body[1:],
        content[: 8 + length] + body[:-1] + bytes([body[-1] ^ 1]),
    ):  # fmt: skip
        assert checker(odd)


@pytest.fixture(scope="module")
def tampering() -> ModuleType:
    specification = importlib.util.spec_from_file_location(
        "tampering", ROOT / "benchmarks" / "certificate_tampering.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["tampering"] = module
    specification.loader.exec_module(module)
    return module


def test_no_mutation_is_accepted_unless_it_is_true(tampering: ModuleType, tmp_path: Path) -> None:
    counts = tampering.attack(300, 1, tmp_path, {"python": tampering.accepted_by_python})
    assert counts["refused"] > 200
    assert counts["accepted and true"] > 0


def test_the_checker_runs_alone(tmp_path: Path) -> None:
    """One file, copied, in a Python without packages; it imports the standard library and nothing else."""
    source = (ROOT / "src" / "onelip_check.py").read_text("utf-8")
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [])
        + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
    }
    assert imported <= set(sys.stdlib_module_names)
    file = tmp_path / "images.cert"
    written(bcop(), torch.randn(3, *SHAPES[bcop]), tmp_path)
    shutil.copy(ROOT / "src" / "onelip_check.py", tmp_path / "copied.py")
    program = [sys.executable, "-I", "-S", "copied.py"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run("images.cert")
    assert (done.returncode, done.stdout.startswith("checked: 5 bounds, 3 images")) == (0, True), done.stderr
    assert run("images.cert", "--images", "2").returncode == 3
    assert run("images.cert", "--seconds", "0").returncode == 3
    assert run("missing.cert").returncode == 2
    file.write_bytes(file.read_bytes()[:-1])
    done = run("images.cert")
    assert (done.returncode, done.stdout.startswith("NOT CHECKED")) == (1, True)


def test_weights_and_inputs_that_are_no_multiples_of_the_unit(checker: Checker, tmp_path: Path) -> None:
    first, second = nn.Linear(5, 4, dtype=torch.float64), nn.Linear(4, 3, dtype=torch.float64)
    model = weights_far_from_the_start(nn.Sequential(first, second))
    with torch.no_grad():
        first.weight[0] *= 1e-13
    content = written(model, torch.randn(3, 5, dtype=torch.float64) / 3, tmp_path)
    assert checker(content) == ""
    assert falsehood(content) is None


class Small(nn.Module):
    """A network as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = x + self.second(x)
        return self.head(x.view(x.size(0), -1))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "converted": lambda: onelip.convert(Small(), method="aol", input_shape=(3, 8, 8)),
    "fastnet": lambda: onelip.models.FastNet(width=4, input_shape=(3, 8, 8)),
    "liresnet": lambda: onelip.models.LiResNet(width=8, num_classes=4, input_shape=(3, 8, 8), depth=2, dense=2),
    **{f"convnet {key}": lambda key=key: onelip.ConvNet(key, None, 4, input_size=8, width=4) for key in SHIPPED},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_every_method_are_listed_with_their_radii(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = NETWORKS[name]().eval()
    certificate = onelip.certify(model, torch.rand(2, 3, 8, 8))
    certificate.save(tmp_path / "file", model=model)
    content = (tmp_path / "file").read_bytes()
    assert python_checker(content) == ""
    share = 0.7 if name == "converted" else 0.999  # beside x, a branch whose constant is below 1 counts 1
    radii = opened(content)[1]["radii"]
    assert bool((radii <= certificate.radii).all() and (radii >= share * certificate.radii - 1e-6).all())


class Shifted(nn.Module):
    """A branch of its own, whose call is refused."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x).flatten(1)


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) if x.shape[1] == 2 else x


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (nn.Sequential(nn.Conv2d(2, 2, 3, padding_mode="reflect", padding=1), nn.Flatten()), "its padding is reflect"),
        (nn.Sequential(SOCConv2d(2, 2, 1, padding_mode="zeros"), nn.Flatten()), "0 .* its operator is a "),
        (nn.Sequential(nn.Identity(), Shifted()), r"1 \(Shifted\) is no plain operation: it calls sigmoid"),
        (Asks(), None),
    ],
)
def test_what_cannot_be_listed_is_refused_in_one_line(model: nn.Module, why: str | None, tmp_path: Path) -> None:
    x, file = torch.rand(2, 2, 4, 4), tmp_path / "file"
    if why is None:
        onelip.certify(model, x).save(file, model=model)  # it moves entries, whatever it asks
        return
    with pytest.raises(InvalidInputError, match=why) as said:
        onelip.certify(model, x).save(file, model=model)
    assert "\n" not in str(said.value)
    assert not file.exists()


class Doubled(nn.Conv2d):
    """A convolution by its class and its `forward`, and another one by what it computes."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return 2 * super()._conv_forward(input, weight, bias)


class Capped(nn.ReLU):
    """A ReLU by its class, and up to 6 by what it computes."""

    def forward(self, input: Tensor) -> Tensor:
        return input.clamp(0, 6)


def test_another_model_than_the_certified_one_is_refused(tmp_path: Path) -> None:
    x, doubled = torch.rand(2, 4, 1, 1), nn.Sequential(Doubled(4, 3, 1), nn.Flatten())
    with pytest.raises(BrokenCertificateError):
        onelip.certify(doubled, x).save(tmp_path / "file", model=doubled)
    capped = nn.Sequential(nn.Linear(4, 4), Capped(), nn.Linear(4, 3))
    with pytest.raises(InvalidInputError, match="it calls clamp"):  # also where no value of these inputs reaches 6
        onelip.certify(capped, torch.zeros(2, 4)).save(tmp_path / "file", model=capped)
    one, other = nn.Linear(4, 3), nn.Linear(4, 3)
    certificate = onelip.certify(nn.Sequential(one), 10 * torch.eye(4))
    with torch.no_grad():
        other.weight.copy_(-one.weight)
    with pytest.raises(InvalidInputError, match="predicts other classes than the certificate"):
        certificate.save(tmp_path / "file", model=nn.Sequential(other))
    assert not (tmp_path / "file").exists()


def test_hooks_are_listed_as_what_they_compute(tmp_path: Path) -> None:
    x, hooked = torch.rand(2, 4), nn.Sequential(nn.Linear(4, 3))
    hooked[0].register_forward_hook(lambda *given: given[2] + given[2])
    onelip.certify(hooked, x).save(tmp_path / "file", model=hooked)
    assert python_checker((tmp_path / "file").read_bytes()) == ""


def test_vectors_may_not_grow_without_end(checker: Checker) -> None:
    """A file of some kilobytes must not cost a terabyte: each operation makes a thousand entries of one."""
    weight = torch.zeros(1000, 1, 1, 1)
    weight[0] = 1
    tensors = {f"weight{number}": weight for number in range(4)}
    operations = [
        {"op": "convolution", "weight": f"weight{number}", "image": [1, 1000**number, 1], "stride": [1, 1]}
        | {"padding": [0, 0], "mode": "zeros", "witness": {"side": "output"}}
        for number in range(4)
    ]
    said = {"bounds": torch.ones(4), "errors": torch.ones(1), "margins": -torch.ones(1), "radii": torch.zeros(1)}
    said |= {"input_scale": torch.ones(1), "inputs": torch.zeros(1, 1), "scores": torch.zeros(1, 2)}
    said |= {"predictions": torch.zeros(1, dtype=torch.int64)}
    content = sealed({"format": "onelip certificate", "version": 1, "operations": operations}, tensors | said)
    assert "more than 2^26" in checker(content)


def test_a_stride_beyond_the_integers_of_a_machine_is_refused(checker: Checker) -> None:
    """2^32 times 2^32 channels are 0 in 64 bits: without any row, no norm would be left to bound."""
    weight, x, scores = 100 * torch.eye(2)[..., None, None], torch.tensor([1.0, 0.0]), torch.tensor([100.0, 0.0])
    operation = {"op": "convolution", "image": [2, 1, 1], "stride": [2**32, 2**32], "padding": [0, 0], "mode": "zeros"}
    assert "stride" in checker(crafted(operation, weight, x, scores, bounds=0.0, radii=1000.0, margins=99.0))


def test_columns_of_weights_may_be_too_large_to_multiply(checker: Checker) -> None:
    """A row of the adjoint adds up to 2^34 and meets activations of 2^14: 2^128 units, which is 0 in 128 bits.

    Its large weights cancel on a torus of one pixel, so that the norm is small; the true second score is -2^24.
    """
    rows, small = 2**15, 2.0**-5
    large = (2.0**19 - small) / 2
    taps = torch.tensor([large, small, -large], dtype=torch.float64)
    operation = {"op": "residual", "rest": 1, "image": [1, 1, 1], "mode": "circular", "bias": "bias"}
    operation |= {"witness": {"side": "input", "torus": [1, 1]}}
    x = torch.tensor([-1.0, 0.0], dtype=torch.float64)
    certificate, tensors = opened(crafted(operation, taps.repeat(rows, 1).reshape(rows, 1, 1, 3), x, x, bounds=31.001))
    tensors |= {"bias": torch.full((rows,), 2.0**14), "predictions": torch.tensor([1]), "margins": torch.tensor([0.9])}
    assert "an activation may reach 2^15" in checker(sealed(certificate, tensors))


def test_json_is_read_in_one_way(checker: Checker) -> None:
    """No other encoding, no truth value for a number, and no object whose keys take long to compare."""
    weight, x = torch.eye(2), torch.zeros(2)
    content = crafted({"op": "linear"}, weight, x, x)
    certificate, tensors = opened(content)
    assert checker(content) == ""
    said = checker(sealed(certificate | {"version": True}, tensors))
    assert "version" in said or "JSON" in said
    wide = json.dumps(certificate).encode("utf-16-le")
    text = torch.frombuffer(bytearray(wide), dtype=torch.uint8)
    hashes = {"certificate_sha256": hashlib.sha256(wide).hexdigest()}
    assert "JSON" in checker(save({"certificate": text, **tensors}, hashes))
    many = {"op": "linear"} | {f"{number:0100d}": 0 for number in range(2**15)}
    assert "JSON: too many entries" in checker(crafted(many, weight, x, x))


def test_a_stride_beyond_the_image_is_listed(tmp_path: Path) -> None:
    """The shortcut of a ResNet, 1 x 1 every second pixel, on an image of one pixel."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1, stride=2), nn.Flatten(), nn.Linear(4, 3))
    assert python_checker(written(model, torch.randn(2, 3, 1, 1), tmp_path)) == ""
