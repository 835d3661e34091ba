"""The wheel that the sdist builds, in an environment that has torch, numpy and safetensors, and nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]


def required(distribution: str) -> set[str]:
    """Names of a distribution and of all that it needs here, without extras."""
    found, waiting = set(), [distribution]
    while waiting:
        name = waiting.pop()
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # needed on other systems only
        if name not in found:
            found.add(name)
            waiting += [re.split(r"[\s<>=!~;\[(]", line)[0] for line in requirements if "extra ==" not in line]
    return found


def top_level_files(distribution: str) -> set[str]:
    """First parts of the paths of the files that a distribution has installed."""
    files = importlib.metadata.files(distribution) or []
    return {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it; the packages that it needs are linked, not installed again."""
    folder = tmp_path_factory.mktemp("packaging")
    source = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(source, cwd=ROOT, capture_output=True, check=True)
    (sdist,) = folder.glob("onelip-*.tar.gz")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(folder), str(sdist)], check=True)
    (wheel,) = folder.glob("onelip-*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    for distribution in {name for wanted in ("torch", "numpy", "safetensors") for name in required(wanted)}:
        home = Path(str(importlib.metadata.distribution(distribution).locate_file("")))
        for part in top_level_files(distribution):
            if not (packages / part).exists():
                (packages / part).symlink_to(home / part)
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "env/bin/python"),
        "install",
        "--quiet",
        "--no-deps",
    ]
    subprocess.run([*install, "--no-index", str(wheel)], check=True)
    return folder / "env" / "bin" / "python"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)


def test_the_library_is_small(python: Path) -> None:
    (wheel,) = python.parents[2].glob("onelip-*.whl")
    assert sum(entry.file_size for entry in zipfile.ZipFile(wheel).infolist()) < 4 * 2**20


def test_the_images_of_the_extra_come_from_the_same_folder(tmp_path: Path) -> None:
    source = tmp_path / "a clone"
    for part in ("src/onelip/version.py", "README.md", "LICENSE", "pyproject.toml", "packages/cifar10-mini"):
        (source / part).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, source / part)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    build = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("onelip-*.whl")
    (distribution,) = importlib.metadata.Distribution.discover(path=[str(wheel)])
    (needed,) = [line for line in distribution.requires or [] if "cifar10-mini" in line and "'bench'" in line]
    address = needed.split(" @ ")[1].split(" ;")[0]
    subprocess.run([*build[:-1], unquote(urlsplit(address).path)], check=True)
    (images,) = tmp_path.glob("onelip_cifar10_mini-*.whl")
    assert sum(name.endswith(".webp") for name in zipfile.ZipFile(images).namelist()) == 10


def test_the_library_works_without_the_extra(python: Path) -> None:
    code = """
import torch, onelip
model = torch.nn.Sequential(onelip.layers.AOLConv2d(3, 8, 3), onelip.layers.MaxMin(), torch.nn.Flatten(),
                            onelip.layers.AOLLinear(8 * 16, 4))
print(onelip.certify(model, torch.rand(2, 3, 4, 4)).radii.shape, onelip.__file__)
"""
    done = run(python, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2])" in done.stdout
    assert str(ROOT) not in done.stdout


def test_the_command_says_what_to_install(python: Path) -> None:
    done = run(python.with_name("onelip"), "methods")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "onelip[bench]" in done.stderr
    assert "cyclopts" in done.stderr


def test_the_checker_of_certificates_is_a_command(python: Path) -> None:
    done = run(python.with_name("onelip-check"), "missing.cert")
    assert done.returncode == 2
    assert "missing.cert" in done.stderr
