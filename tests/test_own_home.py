"""The suite has a home of its own and leaves the real one alone: `own_home` sees to both."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import own_home
import pytest

ROOT = Path(__file__).parents[1]
REAL = Path(os.environ["TESTS_REAL_HOME"])

USERS_OF_A_HOME = (
    "tests/bench/data/test_fetch.py",
    "tests/bench/report/test_ratio_figure.py",  # matplotlib
    "tests/test_hub.py",
    "tests/test_export.py::test_onnx_runs_on_any_batch_and_agrees",
    "tests/bench/engines/test_ray_address.py",
    "tests/test_own_home.py::test_home_and_caches_are_our_own",
    "tests/test_own_home.py::test_the_watch_sees_whoever_looks_into_the_real_home",
)


def test_home_and_caches_are_our_own() -> None:
    own = os.environ["TESTS_OWN_HOME"]
    child = subprocess.run(
        [sys.executable, "-c", "import pathlib; print(pathlib.Path.home())"], capture_output=True, text=True, check=True
    )
    assert [str(Path.home()), child.stdout.strip()] == [own, own]
    assert not {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "HF_HOME", "ONELIP_DATA"} & os.environ.keys()


@pytest.mark.skipif(REAL.parent == REAL, reason="everything is below a home that is the root folder")
def test_the_watch_sees_whoever_looks_into_the_real_home() -> None:
    secret = REAL / "of-no-program" / "secret"
    with contextlib.suppress(OSError):
        secret.read_bytes()
    with contextlib.suppress(OSError):
        secret.mkdir()
    with contextlib.suppress(OSError):
        os.scandir(os.fsencode(secret))
    seen, own_home.touched[:] = own_home.touched[:], []
    assert seen == [f"{event} {secret}{os.sep}" for event in ("open", "os.mkdir", "os.scandir")]


def test_nothing_needs_the_real_home(tmp_path: Path) -> None:
    """What uses a home most, where the real one can be neither read nor written, by root either: it is no folder."""
    home = tmp_path / "home"
    home.write_text("no folder")
    ours = ("TESTS_", "PYTEST_", "COV_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {"HOME": str(home)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *USERS_OF_A_HOME]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert home.read_text() == "no folder"
