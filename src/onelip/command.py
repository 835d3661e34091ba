"""The `onelip` command: the command line of the benchmark, or one line that says how to install it."""

from __future__ import annotations

import importlib.util
import sys

_NEEDED = ("cyclopts", "rich", "matplotlib", "jinja2", "PIL", "filelock")
"""What the extra `bench` installs."""


def main() -> None:
    """Entry point of the console script."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        needed = f'the command line needs the extra "bench" ({", ".join(missing)} not found)'
        print(f'onelip: {needed}: pip install "onelip[bench]"', file=sys.stderr)
        sys.exit(2)
    from onelip.bench.cli import main as run

    run()
