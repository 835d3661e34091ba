"""Build the documentation site: the pages of docs/, and those that are made from the code.

`python docs/site/make_site.py` gathers the sources in build/site-source and builds build/site with zensical, where a
warning is an error; `--serve` then shows it. What is written by hand is in docs/. Made here are the front page
(README.md), the gallery of examples/, one page per method (its docstring, its record, its published results), the
reference of the API (docstrings, by mkdocstrings), the changelog, and the notebooks of the pages that are one program.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from interactive_pages import make_interactive
from method_pages import method_index, method_page
from notebooks import PAGES, write_notebooks

import onelip
from onelip.bench.report.advice import published_candidates
from onelip.bench.report.advice_text import portraits
from onelip.layers import list_methods

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
SOURCE = BUILD / "site-source"
REFERENCE = {
    "onelip": ("Certify, convert, fuse, export, save", []),
    "layers": (
        "Layers",
        [
            *("onelip.layers.layer", "onelip.layers.convolutions", "onelip.layers.linear"),
            *(f"onelip.layers.{name}" for name in ("create_conv1d", "create_conv3d", "create_conv_transpose")),
            "onelip.layers.parametrize",
        ],
    ),
    "parts": (
        "Parts of networks",
        [f"onelip.layers.blocks.{name}" for name in ("activations", "centering", "pooling", "combine")],
    ),
    "models": ("Networks", [f"onelip.models.{name}" for name in ("convnet", "fastnet", "liresnet", "lipnextnet")]),
    "losses": ("Losses", ["onelip.losses"]),
    "certification": (
        "Certificates",
        [f"onelip.certification.{name}" for name in ("certificates", "accuracy", "explain", "registered_bounds")],
    ),
}
NAMES = (
    *("certify", "certified_accuracy", "lipschitz_bound", "lipschitz_table", "explain", "convert", "fuse"),
    *("export_onnx", "export_torch", "save_model", "load_model", "accelerate", "exact_transforms"),
    *("shared_transforms", "tune"),
    *("create", "create_conv", "create_linear", "get_method", "list_methods", "ConvNet", "OffsetCrossEntropy"),
    *("MultiMargin", "Normalise", "Residual", "UnknownLipschitzConstant", "InvalidInputError", "OnelipError"),
)
"""What `onelip` exports, what one needs first in front; its modules have pages of their own."""
EXPORTED = "What can I call? These names are in `onelip` itself: `import onelip`, then `onelip.certify(model, x)`."


INTERNALS = (
    *("traits", "choose_form"),
    *("vanilla_export", "tensors_to_transform", "core_size", "build", "request"),
    *("keep_states", "deployed", "register_parameter", "train", "create_tensors", "has_own_parameters"),
    *("LayerOptions", "gram_power", "has_frequency_form", "acts_on_frequencies", "make_convolution_geometry"),
    *("keeps_taps", "core_kernel", "core_taps", "convolution_geometry"),
    *(
        "read_geometry",
        "check_stride",
        "initialise_weight",
        "extra_repr",
        "is_frozen",
        "sources",
        "core_tensors",
        "of_groups",
    ),
)
"""What layers have for each other: their files explain it, the reference leaves it out."""
GALLERY = ("certify", "convert", "own_data", "critic", "regression", "export_and_serve")
"""The programs in the order in which one reads them."""
MOVED_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Pages of the site that are not in docs/."""


def main() -> None:
    """Gather, build, and serve if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--serve", action="store_true", help="show the site on localhost after building it")
    serve = parser.parse_args().serve
    gather()
    command = [sys.executable, "-m", "zensical"]
    subprocess.run([*command, "build", "--clean", "--strict"], cwd=BUILD, check=True)
    if serve:
        subprocess.run([*command, "serve"], cwd=BUILD, check=True)


def gather() -> None:
    """All pages in build/site-source, with links that fit there."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE, ignore=shutil.ignore_patterns("*.py", "*.json", "*.log", "site"))
    for name, target in MOVED_PAGES.items():
        shutil.copy(ROOT / name, SOURCE / target)
    for page in SOURCE.glob("*.md"):
        page.write_text(moved(page.read_text()))
    (SOURCE / "gallery.md").write_text(gallery())
    for name in ("extra.css", "extra.js"):
        shutil.copy(Path(__file__).with_name(name), SOURCE)
    shutil.copytree(Path(__file__).with_name("overrides"), BUILD / "overrides", dirs_exist_ok=True)
    make_interactive(SOURCE)
    write_notebooks(SOURCE / "notebooks")
    for name in PAGES:
        page = SOURCE / f"{name}.md"
        title, text = page.read_text().split("\n", 1)
        page.write_text(f"{title}\n\n[This page as a notebook](notebooks/{name}.ipynb)\n{text}")
    (SOURCE / "methods").mkdir()
    best = dict(portraits([c for c in published_candidates() if c.dataset == "cifar10"]))
    for method in list_methods():
        (SOURCE / "methods" / f"{method.key}.md").write_text(method_page(method, best.get(method.title)))
    (SOURCE / "methods" / "index.md").write_text(method_index())
    frame = (Path(__file__).with_name("zensical.toml")).read_text()
    entries = "".join(f'    {{ "{method.title}" = "methods/{method.key}.md" }},\n' for method in list_methods())
    (BUILD / "zensical.toml").write_text(re.sub(r"    # one line per method .*\n", entries, frame))
    (SOURCE / "api").mkdir()
    for name, (title, modules) in REFERENCE.items():
        entries = [_entry(module) for module in modules] or [EXPORTED, *map(_name_entry, NAMES)]
        (SOURCE / "api" / f"{name}.md").write_text("\n\n".join([f"# {title}", *entries]) + "\n")


def gallery() -> str:
    """The programs of examples/, each with what it does, how to run it, and its code."""
    parts = ["# Gallery", "Each program is complete and has fewer than 60 lines."]
    for name in GALLERY:
        _, words, code = (ROOT / "examples" / f"{name}.py").read_text().split('"""', 2)
        purpose, usage = words.strip().split("\n\n")
        parts += [f"## {name.replace('_', ' ').capitalize()}", purpose, f"```sh\n{usage}\n```"]
        parts.append(f"```python\n{code.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _entry(module: str) -> str:
    """A module for mkdocstrings, those of layers with what their users call."""
    if module not in REFERENCE["layers"][1]:
        return f"::: {module}"
    filters = ", ".join(f'"!^{name}$"' for name in INTERNALS)
    return f'::: {module}\n    options:\n      filters: ["!^_", {filters}]'


def _name_entry(name: str) -> str:
    """A name of `onelip`, from the module that defines it: a function may be named like its module."""
    defined = getattr(onelip, name).__module__
    return f"::: {defined}.{name}\n    options:\n      show_root_full_path: false"


def moved(text: str) -> str:
    """Links between files of the repository as links between pages of the site, and lists as the site reads them.

    Code in a numbered list is indented by the three spaces of the list and four more; the site's Markdown wants eight.
    """
    text = re.sub(r"\]\((?:\.\./)?docs/", "](", text)
    text = re.sub(r"\]\((?:\.\./)?examples/(\w+)\.py", lambda link: f"](gallery.md#{link[1].replace('_', '-')}", text)
    for old, new in MOVED_PAGES.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(old)}", f"]({new}", text)
    text = re.sub(r"\[(!\[[^\]]*\]\([^)]*\))\]\(LICENSE\)", r"\1", text)
    text = re.sub(r"\[(LICENSE|CITATION\.cff)\]\((?:\.\./)?\1\)", r"`\1`", text)
    text = re.sub(r"\[([^\]]+)\]\((?:\.\./)?(LICENSE|CITATION\.cff)\)", r"\1 (file `\2`)", text)
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [re.sub(r"^ {7}(?=\S)", " " * 8, prose, flags=re.MULTILINE) for prose in parts[::2]]
    return "".join(parts)


if __name__ == "__main__":
    main()
