"""The page in a real browser: sorting, filtering, the advisor, themes, a phone, and silence on network and console."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from synthetic_study import built_report, random_candidates, random_limits

from onelip.bench.report.advice import Candidate, Limits, Verdict, rank
from onelip.bench.report.candidates import measured_candidates, published_candidates
from onelip.bench.report.evidence import read_evidence

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists() and "CI" not in os.environ, reason="chromium is not installed (apt-get install chromium)"
)


@dataclasses.dataclass(frozen=True)
class Opened:
    page: Page
    messages: list[str]
    requests: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address() -> str:
    return built_report()[1].page.as_uri()


def open_page(browser: Browser, address: str, **options: Any) -> Opened:
    page = browser.new_context(**options).new_page()
    opened = Opened(page, [], [])
    page.on("console", lambda message: opened.messages.append(message.text))
    page.on("pageerror", lambda error: opened.messages.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(address)
    return opened


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Opened]:
    """A page that was used in some way and must have stayed silent."""
    opened = open_page(browser, address, viewport={"width": 1280, "height": 900})
    yield opened
    assert opened.messages == []
    assert opened.requests == [address], "nothing but the page itself is ever requested"
    opened.page.context.close()


def column(page: Page, table: str, index: int) -> list[str]:
    """Texts of the visible cells of a column."""
    script = (
        "([name, index]) => [...document.querySelectorAll(`table[data-table='${name}'] tbody tr`)]"
        ".filter((row) => !row.hidden).map((row) => row.cells[index].textContent)"
    )
    return page.evaluate(script, [table, index])


def test_sorting_by_numbers_and_words(opened: Opened) -> None:
    page = opened.page
    ratio = page.locator("table[data-table=time] th button").nth(4)
    ratio.click()
    values = [float(text) for text in column(page, "time", 4)]
    assert values == sorted(values, reverse=True)
    assert len(values) == 16
    ratio.click()
    assert [float(text) for text in column(page, "time", 4)] == sorted(values)
    page.locator("table[data-table=time] th button").nth(2).click()
    names = column(page, "time", 2)
    assert names == sorted(names, key=str.lower)
    headings = page.locator("table[data-table=time] th[aria-sort]")
    states = [headings.nth(i).get_attribute("aria-sort") for i in range(headings.count())]
    assert states.count("ascending") == 1
    assert states.count("none") == len(states) - 1


def test_empty_cells_sort_last_both_ways(opened: Opened) -> None:
    heading = opened.page.locator("table[data-table=memory] th button").nth(4)
    for _ in range(2):
        heading.click()
        assert column(opened.page, "memory", 4)[-2:] == ["-", "-"], "the plain network has no ratio to itself"


def test_filtering_by_words(opened: Opened) -> None:
    page = opened.page
    total = len(column(page, "full-cifar10-mini", 0))
    box = page.locator("input[data-filter=full-cifar10-mini]")
    box.fill("soc xs 1m")
    assert set(column(page, "full-cifar10-mini", 0)) == {"SOC"}
    assert set(column(page, "full-cifar10-mini", 1)) == {"XS"}
    shown = len(column(page, "full-cifar10-mini", 0))
    assert page.locator("[data-count=full-cifar10-mini]").inner_text() == f"{shown} of {total} rows"
    box.fill("no such thing")
    assert column(page, "full-cifar10-mini", 0) == []
    box.fill("")
    assert len(column(page, "full-cifar10-mini", 0)) == total


def test_a_table_can_be_downloaded(opened: Opened, tmp_path: Path) -> None:
    with opened.page.expect_download() as waiting:
        opened.page.locator("button[data-download=ranking][data-form=tex]").click()
    waiting.value.save_as(tmp_path / "ranking.tex")
    assert waiting.value.suggested_filename == "ranking.tex"
    files = built_report()[1].tables
    assert (tmp_path / "ranking.tex").read_text() == next(f for f in files if f.name == "ranking.tex").read_text()
    opened.requests[:] = [url for url in opened.requests if not url.startswith("blob:")]


def set_slider(page: Page, name: str, value: int) -> None:
    set_and_tell = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"
    page.locator(f"#{name}").evaluate(set_and_tell, value)


def advisor_rows(page: Page) -> list[str]:
    script = "[...document.querySelectorAll('#advisor-ranking tbody tr')].map((row) => row.cells[0].textContent)"
    return page.evaluate(script)


def test_the_advisor_responds_to_its_sliders(opened: Opened) -> None:
    page = opened.page
    advice = page.locator("#advice")
    assert "Use LOT S" in advice.inner_text()
    assert page.locator("#memory-value").inner_text() == "no limit"
    filled = page.locator("#advisor-plot circle.fits")
    before = filled.count()
    set_slider(page, "memory", 40)
    assert "at most" in page.locator("#memory-value").inner_text()
    assert "LOT S would certify" in advice.inner_text()
    assert "too much memory" in advice.inner_text()
    assert 0 < filled.count() < before
    assert advisor_rows(page)[0] != "LOT S"
    set_slider(page, "memory", 0)
    set_slider(page, "latency", 0)
    assert filled.count() <= 1
    page.locator("#advisor-axis").select_option("latency")
    assert "latency relative to plain" in (page.locator("#advisor-plot").text_content() or "")


def test_the_advisor_can_use_the_papers_results(opened: Opened) -> None:
    page = opened.page
    page.locator("#advisor-evidence").select_option("the paper's published results")
    assert "Use SOC M" in page.locator("#advice").inner_text()
    page.locator("#advisor-dataset").select_option("tiny-imagenet")
    assert "Use LOT S" in page.locator("#advice").inner_text()
    assert "A100" in page.locator("#sources").inner_text()


def as_json(limits: Limits) -> dict[str, float | None]:
    return {"memory": limits.memory_bytes, "hours": limits.train_hours, "latency": limits.latency_ratio}


def told(verdicts: list[Verdict]) -> list[list[Any]]:
    return [
        [v.candidate.method, v.candidate.size, v.group, v.result.budget, list(v.broken), list(v.unknown)]
        for v in verdicts
    ]


RANK_IN_PAGE = (
    "([candidates, limits]) => onelipAdvisor.rank(candidates, limits)"
    ".map((v) => [v.candidate.method, v.candidate.size, v.group, v.result.budget, v.broken, v.unknown])"
)


def rank_in_page(page: Page, candidates: list[Candidate], limits: Limits) -> list[list[Any]]:
    return page.evaluate(RANK_IN_PAGE, [[dataclasses.asdict(c) for c in candidates], as_json(limits)])


def test_the_page_and_the_command_give_the_same_advice(opened: Opened) -> None:
    generator = random.Random(7)
    for _ in range(60):
        candidates, limits = random_candidates(generator, 14), random_limits(generator)
        assert rank_in_page(opened.page, candidates, limits) == told(rank(candidates, limits))
    evidence = read_evidence(Path(built_report()[0].name) / "study")
    embedded = opened.page.evaluate("onelipAdvisor.data.evidence")
    for group, candidates in zip(
        embedded, (measured_candidates(evidence), published_candidates(evidence)), strict=True
    ):
        limits = Limits(3.0 * 2**30, 10.0, 1.4)
        shown = opened.page.evaluate(RANK_IN_PAGE, [group["candidates"], as_json(limits)])
        assert shown == told(rank(candidates, limits))


def test_no_layout_shift(opened: Opened) -> None:
    script = """() => new Promise((done) => {
        let sum = 0;
        const add = (list) => { for (const entry of list.getEntries()) sum += entry.value; };
        new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
        setTimeout(() => done(sum), 300);
    })"""
    assert opened.page.evaluate(script) < 0.01


def test_the_navigation_stays_and_marks_the_section(opened: Opened) -> None:
    page = opened.page
    page.locator("nav a[href='#costs']").click()
    page.locator("nav a[href='#costs'][aria-current]").wait_for()
    assert page.evaluate("document.querySelector('nav').getBoundingClientRect().top") == 0


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_horizontal_overflow(browser: Browser, address: str, width: int) -> None:
    opened = open_page(browser, address, viewport={"width": width, "height": 844})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.messages == []
    opened.page.context.close()


LUMINANCE = """(selector) => {
    const of = (colour) => {
        const [r, g, b] = colour.match(/\\d+/g).map(Number);
        return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
    };
    const element = document.querySelector(selector);
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    return [of(getComputedStyle(document.body).backgroundColor), of(ink)];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_figures_follow_the_theme(browser: Browser, address: str, scheme: Any) -> None:
    opened = open_page(browser, address, color_scheme=scheme)
    for selector in ("h1", "td", "#figure-radar svg text", "#advisor-plot text"):
        ground, ink = opened.page.evaluate(LUMINANCE, selector)
        assert (ground < 0.15 and ink > 0.6) if scheme == "dark" else (ground > 0.9 and ink < 0.4), selector
    opened.page.locator("#theme").click()
    ground, _ = opened.page.evaluate(LUMINANCE, "h1")
    assert (ground > 0.9) == (scheme == "dark"), "the button changes to the other theme"
    opened.page.context.close()
