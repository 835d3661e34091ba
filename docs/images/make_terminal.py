"""Draw compare.svg: a terminal in which `make compare` runs, faster than it did.

The text is compare.log, what `time make compare` printed when its output was piped into a file, with the time that
each job took in brackets. A line appears when its job ended, on a clock that is made faster so that all of it takes
`SECONDS`.
Two animations do it: a cover moves down line by line until the screen is full, then the lines move up below it. Where
somebody prefers no motion, the last screen is shown.

    python docs/images/make_terminal.py
"""

from __future__ import annotations

import re
from html import escape
from itertools import accumulate
from pathlib import Path

HERE = Path(__file__).parent
SECONDS, REST = 26.0, 8.0
"""How long the animation takes, and how long the last screen stays."""
COLOURS = {
    r"^\$": "prompt",
    r"^\[[ \d]+/\d+\]|\(\d+ s\)$|^ method .*|^ ─+$": "dim",
    r"certified [\d.]+ %|\d+\.\d+$": "value",
}
"""What stands out, as in a terminal: the prompt, what frames the news, the certified accuracies."""
COLUMNS, ROWS, CELL, ROW, EDGE, BAR = 92, 24, 7.83, 18, 14, 30


def main() -> None:
    """Write the picture beside this file."""
    (HERE / "compare.svg").write_text(terminal((HERE / "compare.log").read_text()))


def terminal(log: str) -> str:
    """The picture of this output."""
    *printed, real = log.rstrip().splitlines()
    minutes, seconds = re.findall(r"\d+(?=m)|(?<=m)\d+", real)
    lines = ["$ make compare", *printed]
    took = [int(found[1]) if (found := re.search(r"\((\d+) s\)$", line)) else 0 for line in lines]
    clock = list(accumulate(took))
    pace = SECONDS / clock[-1]
    # Every line has at least a moment of its own: the first two, and the table at the end, cost no time.
    times = [0.03 * index + pace * seconds for index, seconds in enumerate(clock)]
    whole = times[-1] + REST
    width, height = 2 * EDGE + COLUMNS * CELL, BAR + 2 * EDGE + ROWS * ROW
    place = [100 * time / whole for time in times]
    cover = [(place[index], (index + 1) * ROW) for index in range(min(ROWS, len(lines)))]
    moves = [(0.0, 0), *((place[index], -(index + 1 - ROWS) * ROW) for index in range(ROWS, len(lines)))]
    text = "\n".join(
        f'<text y="{(index + 1) * ROW - 5}">{coloured(line)}</text>' for index, line in enumerate(lines) if line.strip()
    )
    title = f"make compare: {minutes} min {seconds} s, shown in {SECONDS:.0f} s"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">
<title>{title}</title>
<style>
text {{ font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d7dde5; white-space: pre }}
.bar, .dim {{ fill: #a0a9b5 }}
.prompt {{ fill: #7ee787 }}
.value {{ fill: #79c0ff }}
#lines {{ animation: move {whole:.2f}s step-end infinite }}
#cover {{ animation: uncover {whole:.2f}s step-end infinite }}
@keyframes move {{ {_frames(moves)} }}
@keyframes uncover {{ {_frames(cover)} }}
@media (prefers-reduced-motion: reduce) {{
#lines {{ animation: none; transform: translateY({moves[-1][1]}px) }} #cover {{ display: none }}
}}
</style>
<rect width="{width:.0f}" height="{height}" rx="8" fill="#161b22"/>
<circle cx="20" cy="16" r="5" fill="#ff6159"/><circle cx="38" cy="16" r="5" fill="#ffbd2e"/>
<circle cx="56" cy="16" r="5" fill="#28c941"/>
<text class="bar" x="{width / 2:.0f}" y="20" text-anchor="middle">{title}</text>
<svg x="{EDGE}" y="{BAR + EDGE}" width="{COLUMNS * CELL:.0f}" height="{ROWS * ROW}">
<g id="lines">
{text}
</g>
<rect id="cover" width="100%" height="100%" fill="#161b22"/>
</svg>
</svg>
"""


def coloured(line: str) -> str:
    """One line as SVG."""
    names = list(COLOURS.values())
    parts = re.split("|".join(f"({pattern})" for pattern in COLOURS), line)
    # Behind every plain part stand as many groups as there are colours, of which at most one has matched.
    whole = ""
    for index, part in enumerate(parts):
        place = index % (len(names) + 1)
        if part:
            whole += escape(part) if place == 0 else f'<tspan class="{names[place - 1]}">{escape(part)}</tspan>'
    return whole


def _frames(steps: list[tuple[float, int]]) -> str:
    return " ".join(f"{share:.2f}% {{ transform: translateY({pixels}px) }}" for share, pixels in steps)


if __name__ == "__main__":
    main()
