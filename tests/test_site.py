"""The documentation site: it builds without a warning, every page is reachable, every link and picture exists."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import make_site
import pytest
import radius_page
import torch
from chromium import PATIENCE, barriers, needs_chromium, started_browser
from interactive_pages import candidates_of_site
from method_pages import WHEN, typeset
from notebooks import PAGES
from playwright.sync_api import Browser, Page
from shipped_methods import SHIPPED
from test_docs import blocks

import onelip
from onelip.bench.report.advice import GIB, Limits, rank
from onelip.bench.report.method_style import method_style

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


KINDS = ("", "choosing/", "radius/", "training/", "methods/", "methods/sandwich/", "api/onelip/", "api/models/")
"""A page of each kind: the front page, the interactive ones, with code, an index, a method, a reference."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for the whole file: Playwright starts no second one beside it."""
    with started_browser() as browser:
        yield browser


@needs_chromium
def test_axe_finds_no_barrier(built: Path, browser: Browser) -> None:
    handler = functools.partial(SilentHandler, directory=str(built))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "dark")):
            view: Any = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
            page = browser.new_context(**view).new_page()
            page.set_default_timeout(PATIENCE)
            for kind in KINDS:
                page.goto(f"http://127.0.0.1:{server.server_port}/{kind}")
                page.emulate_media(reduced_motion="reduce")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, kind
                assert barriers(page) == [], (kind, width, scheme)
        server.shutdown()


@pytest.fixture(scope="module")
def opened(built: Path, browser: Browser) -> Iterator[Page]:
    """A page of the site as a file: the interactive pages need no server. They print no error."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    assert errors == []


def set_slider(page: Page, name: str, value: float) -> None:
    set_and_tell = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"
    page.locator(f"#{name}").evaluate(set_and_tell, value)


@needs_chromium
def test_the_page_of_radii_computes_what_the_network_computes(opened: Page, built: Path) -> None:
    opened.goto((built / "radius" / "index.html").as_uri())
    data = opened.evaluate("({mean: onelipRadius.data.mean, radii: onelipRadius.pictures.map((p) => p.radius)})")
    model = radius_page.half_weights(onelip.fuse(onelip.load_model(radius_page.NETWORK))).double()
    for index, radius in enumerate(data["radii"]):
        moved = f"onelipRadius.moved(onelipRadius.pictures[{index}], {{u}}, {{v}})"
        at = [moved.format(u=u * radius, v=v * radius) for u, v in ((0, 0), (0.999, 0), (-0.6, 0.79), (2, 1))]
        images = opened.evaluate(f"[{', '.join(at)}].map((pixels) => [...pixels])")
        x = torch.tensor(images, dtype=torch.float64).view(4, 32, 32, 3).permute(0, 3, 1, 2)
        x = x - torch.tensor(data["mean"], dtype=torch.float64)[:, None, None]
        shown = opened.evaluate(f"[{', '.join(at)}].map((pixels) => onelipRadius.scoresOf(pixels))")
        torch.testing.assert_close(torch.tensor(shown, dtype=torch.float64), model(x), rtol=1e-9, atol=1e-9)
        assert float(onelip.certify(model, x[:1]).radii) == pytest.approx(radius, rel=1e-6)
        assert len(set(torch.tensor(shown).argmax(1)[:3].tolist())) == 1, "within the certified ball"


@needs_chromium
def test_the_page_of_radii_says_what_is_proven_and_what_is_not(opened: Page, built: Path) -> None:
    opened.goto((built / "radius" / "index.html").as_uri())
    answer = opened.locator("#radius-answer")
    assert "every change of this length leaves the answer" in answer.inner_text()
    set_slider(opened, "radius-length", opened.evaluate("1.02 * onelipRadius.pictures[0].found"))
    assert "has changed" in answer.inner_text()
    set_slider(opened, "radius-angle", 180)
    assert "happens to stay" in answer.inner_text()
    opened.locator("#radius-picture").select_option("2")
    assert "“frog”" in answer.inner_text()


@needs_chromium
def test_the_page_of_layers_advises_by_the_rule_of_the_command(opened: Page, built: Path) -> None:
    opened.goto((built / "choosing" / "index.html").as_uri())
    advice = opened.locator("#advice")
    assert "Use SOC M" in advice.inner_text()
    set_slider(opened, "memory", 1)
    set_slider(opened, "latency", 6)
    values = opened.evaluate(
        "[...document.querySelectorAll('#memory-value, #latency-value')].map((o) => o.textContent)"
    )
    gib, ratio = (float(re.findall(r"[\d.]+", value)[0]) for value in values)
    shown = [c for c in candidates_of_site()[0][1] if c.dataset == "cifar10"]
    best = rank(shown, Limits(gib * GIB, None, ratio))[0].candidate
    assert f"Use {method_style(best.method).label} {best.size}:" in advice.inner_text()
    assert best.latency_ratio is not None
    opened.locator("#advisor-evidence").select_option("ours, minutes on a CPU")
    assert "Use BCOP XS" in advice.inner_text()


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def test_the_reference_has_every_function_and_class_of_onelip(built: Path) -> None:
    page = (built / "api" / "onelip" / "index.html").read_text()
    for name in onelip.__all__:
        thing = getattr(onelip, name)
        if callable(thing):
            assert f'id="{thing.__module__}.{name}"' in page, name


def test_the_gallery_has_every_example(site: ModuleType) -> None:
    programs = {path.stem: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    assert set(site.GALLERY) == set(programs)
    page = (site.SOURCE / "gallery.md").read_text()
    assert all(text.split('"""')[2].strip() in page for text in programs.values())


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
