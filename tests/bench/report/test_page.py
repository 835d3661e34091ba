"""The page in a real browser: each theme is loaded once, and all checks are made in it; and a page of hostile text."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from chromium import PATIENCE, barriers, needs_chromium, started_browser
from playwright.sync_api import Browser, Page
from synthetic_study import (
    finish,
    layers,
    network,
    random_candidates,
    random_limits,
    train_config,
    train_metrics,
    written_report,
)

from onelip.bench.records import RunStatus, start_run
from onelip.bench.report.advice import Limits, Verdict, measured_candidates, published_candidates, rank
from onelip.bench.report.read_study import read_study
from onelip.bench.report.write_report import write_report

pytestmark = needs_chromium


@dataclasses.dataclass(frozen=True)
class Opened:
    page: Page
    messages: list[str]
    requests: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as browser:
        yield browser


def open_page(browser: Browser, address: str, **options: Any) -> Opened:
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE)
    opened = Opened(page, [], [])
    page.on("console", lambda message: opened.messages.append(message.text))
    page.on("pageerror", lambda error: opened.messages.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(address)
    return opened


@pytest.fixture(scope="module")
def light(browser: Browser) -> Iterator[Opened]:
    """The page in the light theme; whatever was done with it, it must have stayed silent."""
    address = written_report()[1].page.as_uri()
    opened = open_page(browser, address, viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield opened
    assert opened.messages == []
    assert {url for url in opened.requests if not url.startswith("blob:")} == {address}, "nothing else is requested"


def column(page: Page, table: str, index: int) -> list[str]:
    """Texts of the visible cells of a column."""
    script = (
        "([name, index]) => [...document.querySelectorAll(`table[data-table='${name}'] tbody tr`)]"
        ".filter((row) => !row.hidden).map((row) => row.cells[index].textContent)"
    )
    return page.evaluate(script, [table, index])


def test_sorting_by_numbers_and_words(light: Opened) -> None:
    page = light.page
    ratio = page.locator("table[data-table=time] th button").nth(3)
    ratio.click()
    values = [float(text.split()[0]) for text in column(page, "time", 3)]
    assert values == sorted(values, reverse=True)
    assert len(values) == 14
    ratio.click()
    assert [float(text.split()[0]) for text in column(page, "time", 3)] == sorted(values)
    page.locator("table[data-table=time] th button").nth(0).click()
    names = column(page, "time", 0)
    assert names == sorted(names, key=str.lower)
    states = page.evaluate(
        "[...document.querySelectorAll('table[data-table=time] th[aria-sort]')].map(h => h.ariaSort)"
    )
    assert states.count("ascending") == 1
    heading = page.locator("table[data-table=memory] th button").nth(4)
    for _ in range(2):
        heading.click()
        assert column(page, "memory", 4)[-2:] == ["-", "-"], "the plain network has no ratio to itself, and sorts last"


def test_filtering_by_words(light: Opened) -> None:
    page, table = light.page, "full-cifar10-mini"
    total = len(column(page, table, 0))
    box = page.locator(f"input[data-filter={table}]")
    box.fill("soc xs 1m")
    assert set(column(page, table, 0)) == {"SOC"}
    shown = len(column(page, table, 0))
    assert 0 < shown < total
    assert page.locator(f"[data-count={table}]").inner_text() == f"{shown} of {total} rows"
    box.fill("")
    assert len(column(page, table, 0)) == total


@pytest.mark.parametrize(("name", "form"), [("ranking", "tex"), ("radar", "pdf"), ("radar", "png"), ("radar", "svg")])
def test_tables_and_figures_can_be_downloaded(light: Opened, name: str, form: str, tmp_path: Path) -> None:
    with light.page.expect_download() as waiting:
        light.page.locator(f"button[data-download={name}][data-form={form}]").click()
    waiting.value.save_as(tmp_path / "file")
    report = written_report()[1]
    beside = next(f for f in report.tables + report.figures if f.name == f"{name}.{form}")
    assert waiting.value.suggested_filename == beside.name
    assert (tmp_path / "file").read_bytes() == beside.read_bytes()


def test_marks_tell_their_values(light: Opened) -> None:
    bar = light.page.locator("#figure-bars-certified-cifar10-mini [data-tip]").first
    bar.scroll_into_view_if_needed()
    bar.hover()
    assert light.page.locator("#tip").inner_text() == "LOT S: 56.2 ± 1.6"


def test_certified_columns_are_in_sight_without_scrolling(light: Opened) -> None:
    for table, last in (("full-cifar10-mini", 6), ("accuracy-cifar10-mini", 5)):
        script = (
            "([name, index]) => { const table = document.querySelector(`table[data-table='${name}']`);"
            "return [table.rows[table.rows.length - 1].cells[index].getBoundingClientRect().right,"
            "table.parentElement.getBoundingClientRect().right]; }"
        )
        cell, box = light.page.evaluate(script, [table, last])
        assert cell <= box, table


def set_slider(page: Page, name: str, value: int) -> None:
    set_and_tell = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"
    page.locator(f"#{name}").evaluate(set_and_tell, value)


def test_the_advisor_responds_to_its_sliders_in_round_steps(light: Opened) -> None:
    page, advice = light.page, light.page.locator("#advice")
    assert "Use LOT S" in advice.inner_text()
    assert page.locator("#memory-value").inner_text() == "no limit"
    before = page.locator("#advisor-plot circle.fits").count()
    shown = []
    for step in range(int(page.locator("#memory").get_attribute("max") or 0)):
        set_slider(page, "memory", step)
        shown.append(page.locator("#memory-value").inner_text())
    assert shown == [f"at most {gib} GiB" for gib in ("1.5", "2", "3", "4", "6")]
    set_slider(page, "memory", 2)
    assert "Your limits exclude LOT S" in advice.inner_text()
    assert 0 < page.locator("#advisor-plot circle.fits").count() < before
    set_slider(page, "memory", 0)
    assert "The closest that does not is AOL XS" in advice.inner_text()
    assert page.locator("#advisor-plot circle.fits").count() == 0
    page.locator("#advisor-axis").select_option("latency")
    words = page.locator("#advisor-plot").text_content() or ""
    assert "inference time relative to plain" in words
    assert "certified accuracy" in words
    page.locator("#advisor-evidence").select_option("the paper's published results")
    page.locator("#advisor-dataset").select_option("tiny-imagenet")
    assert "Use LOT S" in advice.inner_text()
    assert page.locator("#latency-value").inner_text() == "not measured here"
    page.locator("#advisor-evidence").select_option("this study")


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


def test_the_page_and_the_command_give_the_same_advice(light: Opened) -> None:
    generator = random.Random(7)
    for _ in range(60):
        candidates, limits = random_candidates(generator, 14), random_limits(generator)
        shown = light.page.evaluate(RANK_IN_PAGE, [[dataclasses.asdict(c) for c in candidates], as_json(limits)])
        assert shown == told(rank(candidates, limits))
    study = read_study(Path(written_report()[0].name) / "study")
    embedded = light.page.evaluate("onelipAdvisor.data.evidence")
    for group, candidates in zip(embedded, (measured_candidates(study), published_candidates(study)), strict=True):
        limits = Limits(3.0 * 2**30, 10.0, 1.4)
        shown = light.page.evaluate(RANK_IN_PAGE, [group["candidates"], as_json(limits)])
        assert shown == told(rank(candidates, limits))


def test_the_navigation_stays_and_marks_the_section(light: Opened) -> None:
    page = light.page
    page.locator("nav a[href='#costs']").click()
    page.locator("nav a[href='#costs'][aria-current]").wait_for()
    assert page.evaluate("document.querySelector('nav').getBoundingClientRect().top") == 0


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


def check_theme(page: Page, dark: bool) -> None:
    for selector in ("h1", "td", "#figure-radar svg text", "#advisor-plot text"):
        ground, ink = page.evaluate(LUMINANCE, selector)
        assert (ground < 0.15 and ink > 0.6) if dark else (ground > 0.9 and ink < 0.4), selector


LABELS = """() => [...document.querySelectorAll("button, input, select, svg[role=img], [role=region]")]
    .filter((e) => !(e.textContent.trim() || e.labels?.length || e.ariaLabel)).map((e) => e.outerHTML.slice(0, 80))"""


def test_the_light_theme_its_labels_and_print(light: Opened) -> None:
    check_theme(light.page, dark=False)
    assert light.page.evaluate(LABELS) == []
    light.page.emulate_media(media="print")
    assert not light.page.locator("nav").is_visible()
    light.page.emulate_media(media="screen")


def test_the_dark_theme_and_three_widths(browser: Browser) -> None:
    address = written_report()[1].page.as_uri()
    opened = open_page(browser, address, color_scheme="dark", viewport={"width": 390, "height": 844})
    page = opened.page
    first = "document.querySelector('table[data-table=accuracy-cifar10-mini] tbody tr')"
    cell = page.evaluate(f"{first}.cells[3].getBoundingClientRect().right")
    assert cell <= 390, "a phone shows the method and the two main figures"
    for width in (390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    check_theme(page, dark=True)
    page.locator("#theme").click()
    check_theme(page, dark=False)
    assert opened.messages == []


NASTY = (
    "</script><script>hit()</script>",
    '"><img src=x onerror=hit()>',
    "'><svg onload=hit()>",
    r"\042\076<img src=x onerror=hit()>\074",
    r"\g<0>\1 a backslash \\",
    "</style><style>*{display:none}</style>",
    "{{ 7 * 7 }}{% raise %}",
    "$\\frac{$ %s {0} `hit()`",
    ' style="}body{display:none" ',
    "]]>--><!--",
    "javascript:hit()",
    "\u202e\x1b]0;t\x07\x00",
    "=cmd|' /C calc'!A0",
    "__proto__",
)


def add_hostile_records(study: Path) -> None:
    """Nasty strings in every field that a record has."""
    nasty = itertools.cycle(NASTY)
    datasets = itertools.cycle((NASTY[0] + NASTY[1], NASTY[3] + NASTY[4]))  # each takes a dozen figures
    for method, dataset in zip(NASTY, datasets, strict=False):
        config = train_config(method, "XS", dataset, "1m", note=next(nasty))
        finish(study, "train", config, train_metrics(0.5, 0.6, 60.0) | {"evaluation_failure": next(nasty)})
        work = {"network": network(method, dataset=dataset), "batch_size": 256}
        finish(study, "measure", work | {"quantity": "memory", "device": next(nasty)}, {
            "fits": True, "parameters": 2**20, "training": 2**30, "inference": 2**20})  # fmt: skip
        diagnostics = [layer | {"path": next(nasty), "kind": next(nasty)} for layer in layers(0.9)]
        finish(study, next(nasty), work, {"diagnostics": diagnostics}, job=next(nasty))
        timing = {name: {"median": 1.0, "low": 0.9, "high": 1.1} for name in ("seconds", "reference_seconds", "ratio")}
        finish(study, "measure", work | {"quantity": "time", "hardware": next(nasty)}, {
            "fits": True, "training": timing, "inference": timing, "seconds_per_epoch": 1.0})  # fmt: skip
        with start_run(study, "train", train_config(method, "S", dataset, "1m")) as run:
            run.update(status=RunStatus.FAILED, reason=next(nasty))
    for index, path in enumerate(sorted(study.glob("*/record.json"))):
        record = json.loads(path.read_text())
        text = NASTY[index % len(NASTY)]
        record |= {"command": [text] * 3, "versions": {text: text}, "commit": {"id": text, "dirty": text}, "job": text}
        gpu = {"name": text, "memory_bytes": text}
        facts = ("cpu", "os", "cores", "usable_cores", "torch_threads", "memory_bytes", "host", "engine", "load", text)
        record["machine"] = dict.fromkeys(facts, text) | {"gpus": [gpu]}
        record["metrics"] |= {text: text, f"test_accuracy{text}": {"$nonfinite": "nan"}}
        path.write_text(json.dumps(record))
        (path.parent / "log.jsonl").write_text(json.dumps({"step": 1, "train_loss": 1.0, text: text}) + f"\n{text}\n\n")
    jobs = [{"kind": "train", "name": text, "needs": [text], "network": {"method": text}, text: text} for text in NASTY]
    (study / "study.json").write_text(json.dumps({"jobs": jobs, "notes": [*NASTY]}))


def test_hostile_text_is_shown_and_executes_nothing(browser: Browser, tmp_path: Path) -> None:
    with patch("os.fsync"):
        study = tmp_path / "<img src=x onerror=hit()>"
        add_hostile_records(study)
        report = write_report(study, tmp_path / "out")
    assert report.unreadable == len(NASTY), "the odd line in the log of each training, and nothing else"
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    hits: list[str] = []
    page.expose_function("hit", lambda: hits.append("executed"))
    page.on("dialog", lambda dialog: hits.append(dialog.message))
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(report.page.as_uri())
    for element in page.locator("nav a").all():
        element.click()
    assert hits == []
    assert messages == [], "not even an attempt is made that the policy has to stop"
    assert page.evaluate("document.querySelectorAll('script').length") == 2
    assert (
        page.evaluate("document.querySelectorAll('img, svg[onload], [onerror], style:not(head > style)').length") == 0
    )
    assert page.evaluate("getComputedStyle(document.body).display") != "none"
    text = page.locator("main").text_content() or ""
    for nasty in NASTY[:11]:
        assert nasty.strip() in text, nasty
    _check_that_a_hole_would_be_found(page, report.page, messages)


def _check_that_a_hole_would_be_found(page: Page, good: Path, messages: list[str]) -> None:
    """One string that is not escaped: the policy stops it and says so, and without the policy it is executed."""
    content = good.read_text().replace("</main>", "<img src=x onerror=document.title='executed'></main>")
    leaking = good.with_name("leaking.html")
    leaking.write_text(content)
    page.goto(leaking.as_uri())
    assert page.title() != "executed"
    assert any("Content Security Policy" in message for message in messages)
    leaking.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", content))
    page.goto(leaking.as_uri())
    assert page.title() == "executed"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (768, "dark"), (390, "dark")])
def test_axe_finds_no_barrier(browser: Browser, width: int, scheme: str) -> None:
    """Contrast, labels, headings and tables by the rules of axe-core, on a desktop, a tablet and a phone."""
    view = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "bypass_csp": True}  # for axe's script
    page = open_page(browser, written_report()[1].page.as_uri(), **view).page
    assert barriers(page) == []
