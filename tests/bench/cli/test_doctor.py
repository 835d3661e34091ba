from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.bench import cli
from onelip.bench.cli import doctor
from onelip.bench.measurement import second_device
from onelip.bench.measurement.throughput import Rounds


def test_a_healthy_machine_has_no_failure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_METHODS", ("aol",))
    assert cli.run(["doctor", "--json"]) == 0
    findings = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert {"torch", "device", "threads", "precision", "data", "certify aol"} <= findings.keys()
    assert all(finding["state"] != "FAILED" for finding in findings.values())


@pytest.mark.parametrize(
    ("modes", "tunables", "state"),
    [
        ("[always] madvise never", "", "ok"),
        ("always [madvise] never", "", "note"),
        ("always [madvise] never", "glibc.malloc.hugetlb=1", "ok"),
        ("always madvise [never]", "glibc.malloc.hugetlb=1", "note"),
    ],
)
def test_small_pages_are_told(modes: str, tunables: str, state: str, tmp_path: Path) -> None:
    (tmp_path / "enabled").write_text(modes)
    assert [finding.state for finding in doctor.page_finding(tmp_path / "enabled", tunables)] == [state]
    assert not list(doctor.page_finding(tmp_path / "none", tunables))


def test_points_lie_inside_their_balls_and_close_to_the_edge() -> None:
    torch.manual_seed(0)
    images, radii = torch.rand(3, 3, 4, 4), torch.tensor([0.5, 0.01, 0.0])
    for points in doctor.edges(nn.Sequential(nn.Flatten(), nn.Linear(48, 10)), images, radii):
        distances = (points.double() - images.double()).flatten(1).norm(dim=1)
        assert (distances <= radii.double()).all()
        assert distances[0] == 0 or distances[0] > 0.499  # 0: towards the predicted class itself


def test_a_certificate_that_is_too_large_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = doctor.onelip.certify

    def careless(model: nn.Module, images: Tensor, **options: Any) -> Any:
        certificate = honest(model, images, **options)
        return SimpleNamespace(predictions=certificate.predictions, radii=torch.full_like(certificate.radii, 50.0))

    monkeypatch.setattr(doctor.onelip, "certify", careless)
    assert doctor.certificate_finding("bcop").state == "FAILED"


def test_attacks_without_strength_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_BEYOND", 1)  # at the radius itself nothing may change: such attacks prove nothing
    finding = doctor.certificate_finding("bcop")
    assert finding.state == "FAILED"
    assert "0 within 1 times" in finding.text


def test_a_report_has_layers_networks_and_failed_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_METHODS", ())
    monkeypatch.setattr(doctor, "_REPORTED", ("aol",))
    monkeypatch.setattr(doctor, "_SMALL_BATCH", 2)
    monkeypatch.setattr(second_device, "ROUNDS", Rounds(warm_up=0, least=1, most=1))
    results = tmp_path / "results.xml"
    broken = '<testcase name="a"><failure message="b is not c"/></testcase>'
    results.write_text(f'<testsuites><testsuite>{broken}<testcase name="d"/></testsuite></testsuites>')
    path = tmp_path / "here.json"
    assert cli.run(["doctor", "--quiet", "--report", str(path), "--device", "cpu", "--tests", str(results)]) == 0
    report = json.loads(path.read_text())
    assert report["tests"] == {"run": 2, "skipped": 0, "failures": [{"test": "a", "message": "b is not c"}]}
    assert [row["kind"] for row in report["layers"]] == ["convolution", "linear"]
    assert [row["method"] for row in report["networks"]] == ["aol"]
    text = path.with_suffix(".md").read_text()
    assert "| aol | linear | 0e+00 |" in text
    assert "* a: b is not c" in text
    assert "| method | training step |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cpu"], "options of --report"),
        (["--report", "gpu.txt"], "must end in .json"),
        (["--report", "gpu.json", "--device", "nonsense"], "no device 'nonsense' here"),
        (["--report", "gpu.json", "--device", "cpu", "--tests", "missing.xml"], "no result of pytest --junitxml"),
    ],
)
def test_bad_reports_are_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_METHODS", ())
    monkeypatch.setattr(doctor, "_REPORTED", ())
    assert cli.run(["doctor", "--quiet", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
