"""The two interactive pages of the site: "What is a certified radius?" and "Which layer should I use?".

Static files and no server: the pages load scripts beside them. The advisor's page, style and rule are those of the
report (`onelip.bench.report`), so both say what `onelip advise` says.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from importlib import resources
from pathlib import Path

from radius_page import radius_script

from onelip.bench.report.advice import Candidate, measured_candidates, published_candidates
from onelip.bench.report.method_style import css_variable, method_style, slug
from onelip.bench.report.page import advisor_data
from onelip.bench.report.read_study import read_study
from onelip.bench.report.table_files import script_json
from onelip.layers import list_methods

DOCS = Path(__file__).parents[1]
PARTS = Path(__file__).parent / "interactive"
REPORT = resources.files("onelip.bench.report")


def make_interactive(source: Path) -> None:
    """Put the parts into the gathered pages in place of their comments, and the scripts beside them."""
    folder = source / "interactive"
    shutil.copytree(PARTS, folder, ignore=shutil.ignore_patterns("*.html"))
    (folder / "radius_data.js").write_text(radius_script())
    (folder / "advisor_data.js").write_text(
        f"const onelipData = {script_json({'advisor': advisor_data(candidates_of_site())})};\n"
    )
    (folder / "advisor.js").write_text(REPORT.joinpath("advisor.js").read_text(encoding="utf-8"))
    style = (PARTS / "interactive.css").read_text() + REPORT.joinpath("advisor.css").read_text(encoding="utf-8")
    (folder / "interactive.css").write_text(style + method_colours())
    put_in(source / "radius.md", (PARTS / "radius.html").read_text(), "radius_data", "network", "radius")
    advisor = REPORT.joinpath("advisor.html").read_text(encoding="utf-8")
    put_in(source / "choosing.md", advisor, "advisor_data", "advisor")


def put_in(page: Path, part: str, *scripts: str) -> None:
    """The part in place of the page's one comment `<!-- interactive -->`, with style and scripts."""
    head = '<link rel="stylesheet" href="interactive/interactive.css">'
    tail = "".join(f'<script src="interactive/{name}.js"></script>\n' for name in scripts)
    before, after = page.read_text().split("<!-- interactive -->")
    page.write_text(f'{before}<div class="interactive">\n{head}\n{part.strip()}\n{tail}</div>{after}')


def candidates_of_site() -> list[tuple[str, list[Candidate]]]:
    """The paper's results and our own short trainings, each with latencies as docs/speed.md lists them."""
    studies = [read_study(DOCS / "reference" / name) for name in ("minutes", "eight_minutes")]
    own: dict[tuple[str, str], Candidate] = {}
    for candidate in (candidate for study in studies for candidate in measured_candidates(study)):
        before = own.get((candidate.method, candidate.size))
        results = () if before is None else before.results
        found = dataclasses.replace(candidate, results=(*results, *candidate.results))
        own[candidate.method, candidate.size] = dataclasses.replace(found, result_source="our own, one core of a CPU")
    evidence = {"the paper, hours on an A100": published_candidates(), "ours, minutes on a CPU": list(own.values())}
    timed = latencies()
    return [(name, [with_latency(c, timed) for c in group]) for name, group in evidence.items()]


def with_latency(candidate: Candidate, timed: dict[tuple[str, str], float]) -> Candidate:
    """The candidate with the ratio that was measured for its method and size, if there is one."""
    ratio = timed.get((candidate.method, candidate.size))
    source = "not measured for sizes beyond M" if ratio is None else "onelip on two CPU cores, batch 256 (see Speed)"
    return dataclasses.replace(candidate, latency_ratio=ratio, latency_source=source)


def latencies() -> dict[tuple[str, str], float]:
    """Inference relative to plain convolutions by method and size: the first table of docs/speed.md."""
    rows = re.findall(r"^\|(.+)\|$", (DOCS / "speed.md").read_text(), re.MULTILINE)
    heading, _, *body = [[cell.strip() for cell in row.split("|")] for row in rows]
    keys = {method.title: method.key for method in list_methods()}
    found: dict[tuple[str, str], float] = {}
    for row in body[: len(keys)]:
        for name, value in zip(heading, row, strict=True):
            if name.endswith(" inference"):
                found[keys[row[0]], name.removesuffix(" inference")] = float(value)
    assert len(found) == 3 * len(keys)
    return found


def method_colours() -> str:
    """One colour per method in each theme, as in the report."""
    methods = [(method.key, method_style(method.key)) for method in list_methods()]
    light = "".join(f"{css_variable(key)}:{style.light};" for key, style in methods)
    dark = "".join(f"{css_variable(key)}:{style.dark};" for key, style in methods)
    dots = "".join(f".dot-{slug(key)}{{background:var({css_variable(key)})}}\n" for key, _ in methods)
    return f"[data-md-color-scheme=default]{{{light}}}\n[data-md-color-scheme=slate]{{{dark}}}\n{dots}"
