"""Draw the badges of the README from pyproject.toml and the version: what they say is what the package states.

python docs/images/make_badges.py
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LETTER, EDGE = 6.6, 8


def main() -> None:
    """Write one file for each badge beside this file."""
    for name, text in badges().items():
        (HERE / f"badge-{name}.svg").write_text(text)


def badges() -> dict[str, str]:
    """Version, Python, torch, licence, and the paper: the picture of each by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [version] = re.findall(r'__version__ = "(.+)"', (ROOT / "src" / "onelip" / "version.py").read_text())
    pythons = [line.rsplit(" ", 1)[1] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    [torch] = [line.removeprefix("torch>=") for line in project["dependencies"] if line.startswith("torch")]
    facts = {
        "version": ("version", version),
        "python": ("Python", f"{pythons[0]} to {pythons[-1]}"),
        "torch": ("torch", f"{torch} or newer"),
        "licence": ("licence", project["license"]),
        "paper": ("paper", "CVPR 2024"),
    }
    return {name: badge(*words) for name, words in facts.items()}


def badge(label: str, value: str) -> str:
    """A grey half with the label and a blue one with the value."""
    left, right = (2 * EDGE + LETTER * len(words) for words in (label, value))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{left + right:.0f}" height="20" role="img">
<title>{label}: {value}</title>
<clipPath id="round"><rect width="{left + right:.0f}" height="20" rx="4"/></clipPath>
<g clip-path="url(#round)">
<rect width="{left:.0f}" height="20" fill="#4a4f57"/>
<rect x="{left:.0f}" width="{right:.0f}" height="20" fill="#0a4f9e"/>
</g>
<g fill="#fff" text-anchor="middle" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">
<text x="{left / 2:.0f}" y="14">{label}</text>
<text x="{left + right / 2:.0f}" y="14">{value}</text>
</g>
</svg>
"""


if __name__ == "__main__":
    main()
