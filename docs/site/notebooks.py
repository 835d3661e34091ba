"""Pages of the documentation as Jupyter notebooks, in build/notebooks (`make notebooks`) and on the site.

Python blocks of a page are cells, commands are cells that begin with "!", and the rest is text. What the page shows
below a block is the output of its cell: the tests run the pages and compare it with what is printed.

    python docs/site/notebooks.py
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
PAGES = ("tutorial", "radius", "your_model", "deployment")
"""Those whose code is one program."""


def write_notebooks(folder: Path) -> None:
    """One notebook per page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        (folder / f"{name}.ipynb").write_text(notebook((DOCS / f"{name}.md").read_text()))


def notebook(page: str) -> str:
    """The page as a notebook."""
    cells: list[dict[str, Any]] = []
    for index, part in enumerate(re.split(r"^(```(?:python|sh|text)\n.*?^```$)", page, flags=re.DOTALL | re.MULTILINE)):
        language, _, content = part.removesuffix("```").partition("\n")
        name = {"id": f"cell-{index}", "metadata": {}}
        if not part.strip():
            continue
        if language == "```text" and cells and cells[-1]["cell_type"] == "code":
            cells[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": _lines(content)}]
        elif language in ("```python", "```sh"):
            code = content.strip()
            if language == "```sh":
                code = "\n".join(f"!{line}" for line in code.splitlines())
            code_cell = {"cell_type": "code", "execution_count": None, "outputs": [], "source": _lines(code)}
            cells.append({**code_cell, **name})
        else:
            cells.append({"cell_type": "markdown", **_words(part.strip()), **name})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _words(text: str) -> dict[str, Any]:
    """Text for a notebook that stands alone: it holds its pictures, and links to other pages become their words."""
    pictures = re.findall(r"!\[[^\]]*\]\(images/([^)]+\.png)\)", text)
    text = re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)
    cell: dict[str, Any] = {"source": _lines(text.replace("](images/", "](attachment:"))}
    if pictures:
        encoded = {name: base64.b64encode((DOCS / "images" / name).read_bytes()).decode() for name in pictures}
        cell["attachments"] = {name: {"image/png": data} for name, data in encoded.items()}
    return cell


if __name__ == "__main__":
    write_notebooks(DOCS.parent / "build" / "notebooks")
