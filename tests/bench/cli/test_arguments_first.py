"""Arguments are checked before data, files and work: in every command, in an empty folder with an empty cache.

Whatever else a command line names is missing there, so that a check that comes too late shows: the message would be
about the data set, the model or the study.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from onelip.bench import cli

TRAIN = ("--method", "aol", "--budget", "1m")
MODEL = "missing.safetensors"
ATTACK, CHECK, OWN = ("attack", MODEL), ("check", MODEL), ("check", "nowhere:net")
EXPORT = ("export", MODEL, "--onnx", "out.onnx")
COMPARE, MEASURE, REPRODUCE = ("compare", "--preset", "cpu"), ("measure", "time"), ("reproduce", "--methods", "aol")

ONE_IS_WRONG: dict[tuple[str, ...], tuple[str, ...]] = {
    ("advise", "--study", "missing", "--gpu-memory", "much"): ("'much'",),
    ("advise", "--study", "missing", "--train-hours", "-1"): ("--train-hours", "-1"),
    ("advise", "--study", "missing", "--max-latency", "fast"): ("'fast'",),
    (*ATTACK, "--eps", "0"): ("'0'", "positive"),
    (*ATTACK, "--attacks", "pdg"): ("pdg", "pgd"),
    (*ATTACK, "--samples", "0"): ("--samples", "not 0"),
    (*ATTACK, "--batch-size", "0"): ("--batch-size", "not 0"),
    (*ATTACK, "--dataset", "cifra10"): ("'cifra10'", "'cifar10'"),
    ("certify", MODEL, "--samples", "0"): ("--samples", "not 0"),
    ("certify", MODEL, "--dataset", "cifra10"): ("'cifra10'", "'cifar10'"),
    ("certify", MODEL, "--proof", "missing/images.cert"): ("missing/images.cert", "folder"),
    (*CHECK, "--samples", "0"): ("--samples", "not 0"),
    (*CHECK, "--tolerance", "nan"): ("--tolerance",),
    (*CHECK, "--figure", "layers.txt"): ("layers.txt", ".png"),
    (*CHECK, "--figure", "missing/layers.png"): ("missing",),
    (*CHECK, "--dataset", "cifra10"): ("'cifra10'", "'cifar10'"),
    (*OWN, "--input-shape", "0"): ("--input-shape", "0"),
    (*OWN, "--input-shape", "3", "--num-classes", "0"): ("--num-classes", "0"),
    ("compare", "--preset", "cpu", "--budgets", "5x"): ("'5x'",),
    (*COMPARE, "--methods", "bcpo"): ("'bcpo'", "'bcop'"),
    (*COMPARE, "--width", "0"): ("width", "0"),
    (*COMPARE, "--device", "tpu"): ("--device", "tpu"),
    (*COMPARE, "--checkpoint-every", "often"): ("'often'",),
    (*COMPARE, "--workers", "0"): ("workers", "0"),
    (*COMPARE, "--gpus-per-training", "0"): ("--gpus-per-training",),
    (*COMPARE, "--engine", "slurm", "--slurm-local", "--time", "long"): ("'long'",),
    (*COMPARE, "--engine", "ray", "--cpus-per-job", "0"): ("--cpus-per-job", "0"),
    (*COMPARE, "--dry-run", "--workers", "0"): ("workers", "0"),
    ("data", "fetch", "cifra10", "--from", "missing"): ("'cifra10'", "'cifar10'"),
    ("data", "verify", "cifar10-mini", "cifra10"): ("'cifra10'", "'cifar10'"),
    ("doctor", "--report", "gpu.json", "--device", "cuda:77"): ("cuda:77",),
    ("doctor", "--report", "gpu.json", "--device", "cpu", "--tests", "missing.xml"): ("missing.xml",),
    ("doctor", "--report", "missing/gpu.json"): ("--report", "no folder missing"),
    ("evaluate", "train-missing", "--device", "cuda:77"): ("cuda:77", "cpu"),
    (*EXPORT, "--input-shape", "-1"): ("--input-shape", "-1"),
    (*EXPORT, "--input-shape", "3", "0", "32"): ("--input-shape", "0"),
    ("export", MODEL, "--onnx", "missing/out.onnx"): ("missing/out.onnx", "folder"),
    ("export", MODEL, "--torch-export", "missing/out.pt2"): ("missing/out.pt2", "folder"),
    ("export", MODEL): ("--onnx", "--torch-export"),
    ("job", "missing", "train-x", "--processes", "0"): ("processes", "0"),
    ("job", "missing", "train-x", "--checkpoint-every", "often"): ("'often'",),
    ("jobs", "missing", "--state", "lost"): ("--state", "lost"),
    ("leaderboard", "missing", "--out", "missing/page.md"): ("missing/page.md", "folder"),
    (*MEASURE, "--device", "cuda:77"): ("cuda:77", "cpu"),
    (*MEASURE, "--methods", "bcpo"): ("'bcpo'", "bcop"),
    (*MEASURE, "--batch-size", "0"): ("--batch-size", "not 0"),
    (*MEASURE, "--width", "0"): ("width", "0"),
    (*MEASURE, "--kernel-size", "2"): ("--kernel-size must be odd", "not 2"),
    ("measure", "memory", "--predict", "--device", "tpu"): ("--device tpu", "cpu or cuda"),
    (*MEASURE, "--rounds", "0"): ("--rounds", "0"),
    (*MEASURE, "--budget", "5x"): ("'5x'",),
    (*MEASURE, "--model", "nowhere:net", "--budget", "5x"): ("'5x'",),
    (*MEASURE, "--model", "nowhere:net", "--device", "cuda:77"): ("cuda:77",),
    (*MEASURE, "--methods", "aol", "--figure", "costs.txt"): ("costs.txt", ".png"),
    (*MEASURE, "--methods", "aol", "--figure", "missing/costs.png"): ("missing",),
    ("measure", "memory", "--model", "nowhere:net", "--device", "cuda:77"): ("cuda:77",),
    ("measure", "macs", "--model", "nowhere:net", "--batch-size", "0"): ("--batch-size", "not 0"),
    ("measure", "certify", "--model", "nowhere:net", "--seconds", "0"): ("--seconds", "0"),
    ("paper", "radar", "--out", __file__): ("--out", "is a file"),
    ("paper", "radra", "--study", "missing"): ("radra", "'radar'"),
    ("published", "results", "--method", "bcpo"): ("--method bcpo", "BCOP"),
    (*REPRODUCE, "--device", "cuda:77"): ("cuda:77", "cpu"),
    (*REPRODUCE, "--epochs", "0"): ("epoch 0",),
    (*REPRODUCE, "--size", "XXL"): ("XXL",),
    ("reproduce", "--defects", "--device", "cuda:77"): ("cuda:77", "cpu"),
    ("reproduce", "--defects", "--width", "0"): ("width", "0"),
    ("reproduce", "--defects", "--methods", "aol"): ("aol", "eco"),
    ("runs", "list", "--runs-dir", "missing", "--status", "lost"): ("lost", "finished"),
    ("search", *TRAIN, "--device", "cuda:77"): ("cuda:77", "cpu"),
    ("search", *TRAIN, "--trials", "0"): ("trials", "0"),
    ("search", *TRAIN, "--checkpoint-every", "often"): ("'often'",),
    ("search", *TRAIN, "--batch-size", "0"): ("batch_size", "0"),
    ("search", "--model", "nowhere:net", "--budget", "1m", "--device", "cuda:77"): ("cuda:77",),
    ("theory", "--b", "0"): ("b", "0"),
    ("train", "--method", "bcpo", "--budget", "1m"): ("'bcpo'", "'bcop'"),
    ("train", "--method", "aol", "--budget", "5x"): ("'5x'",),
    ("train", "--method", "aol"): ("budget", "epochs"),
    ("train", *TRAIN, "--width", "0"): ("width", "0"),
    ("train", *TRAIN, "--kernel-size", "2"): ("--kernel-size must be odd", "not 2"),
    ("train", *TRAIN, "--size", "XXL"): ("XXL",),
    ("train", *TRAIN, "--batch-size", "0"): ("batch_size", "0"),
    ("train", *TRAIN, "--device", "cuda:77"): ("cuda:77", "cpu"),
    ("train", *TRAIN, "--device", "cup"): ("'cup'", "cpu"),
    ("train", *TRAIN, "--checkpoint-every", "often"): ("'often'",),
    ("train", *TRAIN, "--optimizer", "adm"): ("adm", "adam"),
    ("train", "--model", "nowhere:net", "--budget", "1m", "--device", "cuda:77"): ("cuda:77", "cpu"),
}


@pytest.mark.parametrize("arguments", ONE_IS_WRONG, ids=" ".join)
def test_the_argument_is_named_and_nothing_is_read_or_written(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "no data"))
    assert cli.run([*arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("onelip: ")
    assert printed.err.count("\n") == 1
    assert all(word in printed.err for word in ONE_IS_WRONG[arguments])
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_a_folder_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("link").symlink_to("file")
    assert cli.run(["search", *TRAIN, "--studies-dir", "link"]) == 2
    assert capsys.readouterr().err == "onelip: --studies-dir link: is a file: give a folder; see onelip search --help\n"


def test_every_command_with_arguments_to_check_is_here() -> None:
    without = {"completion", "methods", "report"}  # flags, paths and choices only
    assert {arguments[0] for arguments in ONE_IS_WRONG} == cli.commands().keys() - without
