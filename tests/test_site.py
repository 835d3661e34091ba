"""The documentation site: it builds without a warning, every page is reachable, every link and picture exists."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import make_site
import pytest
from chromium import barriers, needs_chromium, started_browser
from method_pages import WHEN, typeset
from notebooks import PAGES
from shipped_methods import SHIPPED
from test_docs import blocks

import onelip

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """docs/site/make_site.py with its output in a folder of the test."""
    build = tmp_path_factory.mktemp("site")
    make_site.BUILD, make_site.SOURCE = build, build / "site-source"
    make_site.gather()
    return make_site


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


@pytest.fixture(scope="module")
def built(site: ModuleType) -> Path:
    """The folder of the site; building it gives no warning."""
    frame = (site.BUILD / "zensical.toml").read_text().replace('"../src"', json.dumps(str(ROOT / "src")))
    (site.BUILD / "zensical.toml").write_text(frame)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=site.BUILD, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return site.BUILD / "site"


def test_the_site_is_complete_and_asks_no_other_host(built: Path) -> None:
    assert "onelip.certification" in (built / "api" / "certification" / "index.html").read_text()
    outside = set(re.findall(r'(?:src|href)="(https?://[^"/]+)', (built / "index.html").read_text()))
    assert outside <= {"https://arxiv.org", "https://openreview.net", "https://doi.org", "https://zensical.org"}


KINDS = ("", "choosing/", "training/", "methods/", "methods/sandwich/", "api/onelip/", "api/models/")
"""A page of each kind: the front page, with tables, with code, an index, a method, a reference."""


@needs_chromium
def test_axe_finds_no_barrier(built: Path) -> None:
    handler = functools.partial(SilentHandler, directory=str(built))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, started_browser() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "dark")):
            view: Any = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
            page = browser.new_context(**view).new_page()
            page.set_default_timeout(0)  # a loaded machine may take as long as it likes
            for kind in KINDS:
                page.goto(f"http://127.0.0.1:{server.server_port}/{kind}")
                page.emulate_media(reduced_motion="reduce")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, kind
                assert barriers(page) == [], (kind, width, scheme)
        server.shutdown()


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def test_the_reference_has_every_function_and_class_of_onelip(built: Path) -> None:
    page = (built / "api" / "onelip" / "index.html").read_text()
    for name in onelip.__all__:
        thing = getattr(onelip, name)
        if callable(thing):
            assert f'id="{thing.__module__}.{name}"' in page, name


def test_code_in_a_numbered_list_is_code_on_the_site_too() -> None:
    assert make_site.moved("1. Do\n\n       this\n") == "1. Do\n\n        this\n"
    fenced = "```text\n       as it was printed\n```\n"
    assert make_site.moved(fenced) == fenced


def test_an_address_that_does_not_exist_leads_somewhere(built: Path) -> None:
    page = (built / "404.html").read_text()
    for name in ("tutorial", "choosing", "faq"):
        assert re.search(rf'href="[^"]*{name}/"', page), name


def test_formulas_of_docstrings_are_typeset() -> None:
    assert typeset("D_jj = (sum_k |P^T P|_jk)^(-1/2)") == (
        "D<sub>jj</sub> = (Σ<sub>k</sub> |P<sup>T</sup> P|<sub>jk</sub>)<sup>\u22121/2</sup>"
    )
    assert typeset("4 <a, b> <= ||x||^2, a k x k kernel, `W^T <= a_b`") == (
        "4 ⟨a, b⟩ ≤ ‖x‖<sup>2</sup>, a k \u00d7 k kernel, `W^T <= a_b`"
    )


def test_every_method_says_when_to_use_it() -> None:
    assert set(WHEN) == set(SHIPPED)


@pytest.mark.parametrize("page", PAGES)
def test_a_notebook_is_its_page(site: ModuleType, page: str) -> None:
    """Its cells are the blocks of the page in order, with what they print; it needs no other file."""
    path = site.SOURCE / "notebooks" / f"{page}.ipynb"
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    shown = ["".join(output["text"]) for cell in cells for output in cell.get("outputs", ())]
    of_page = blocks(ROOT / "docs" / f"{page}.md")
    assert [text for text in code if not text.startswith("!")] == [t.strip() for name, t in of_page if name == "python"]
    assert [text[1:] for text in code if text.startswith("!")] == [t.strip() for name, t in of_page if name == "sh"]
    assert shown == [text for name, text in of_page if name == "text"]
    for cell in (cell for cell in cells if cell["cell_type"] == "markdown"):
        assert set(re.findall(r"\]\((?!https?:)([^)]+)", "".join(cell["source"]))) == {
            f"attachment:{name}" for name in cell.get("attachments", ())
        }
