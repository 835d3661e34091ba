"""The documentation site: it builds without a warning, every page is reachable, every link and picture exists."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """docs/site/make_site.py with its output in a folder of the test."""
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "site" / "make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    build = tmp_path_factory.mktemp("site")
    vars(module).update(BUILD=build, SOURCE=build / "site-source")
    module.gather()
    return module


def pages_of(entries: list[dict[str, object]]) -> set[str]:
    found: set[str] = set()
    for value in (value for entry in entries for value in entry.values()):
        found |= {value} if isinstance(value, str) else pages_of(value)  # type: ignore[arg-type]
    return found


def test_the_menu_has_every_page_and_no_other(site: ModuleType) -> None:
    menu = pages_of(tomllib.loads((site.BUILD / "zensical.toml").read_text())["project"]["nav"])
    assert menu == {page.relative_to(site.SOURCE).as_posix() for page in site.SOURCE.rglob("*.md")}


def test_links_and_pictures_exist(site: ModuleType) -> None:
    for page in site.SOURCE.rglob("*.md"):
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
            if not target.startswith(("http", "mailto:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_site_builds_without_a_warning(site: ModuleType) -> None:
    frame = (site.BUILD / "zensical.toml").read_text().replace('"../src"', json.dumps(str(ROOT / "src")))
    (site.BUILD / "zensical.toml").write_text(frame)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=site.BUILD, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "onelip.certification" in (site.BUILD / "site" / "api" / "certification" / "index.html").read_text()
    outside = set(re.findall(r'(?:src|href)="(https?://[^"/]+)', (site.BUILD / "site" / "index.html").read_text()))
    assert outside <= {"https://arxiv.org", "https://openreview.net", "https://doi.org", "https://zensical.org"}


def test_the_notebook_has_the_code_of_the_page(site: ModuleType) -> None:
    cells = json.loads(site.notebook("# A\n\ntext\n\n```python\nx = 1\ny = 2\n```\n\nmore\n"))["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown"]
    assert "".join(cells[1]["source"]) == "x = 1\ny = 2"
