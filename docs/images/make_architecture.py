"""Draws docs/images/architecture.svg: the two halves and the direction of imports."""

from __future__ import annotations

from pathlib import Path

LIBRARY = [
    ("layers", "one method = one file:\nparameters, transformation, bound"),
    ("certification", "the graph of a model,\nits bounds, its radii"),
    ("conversion", "an ordinary model,\nmade 1-Lipschitz"),
    ("linalg", "the definition of every result"),
    ("fast", "faster forms of the same"),
    ("proofs", "upper bounds, rounding included"),
    ("models", "networks"),
    ("losses", "what training minimises"),
    ("export, fuse, save", "other runtimes, files"),
]
BENCH = [
    ("cli", "one command = one file"),
    ("study", "a list of jobs,\nsearches of learning rates"),
    ("engines", "who runs them:\nlocal, slurm, ray"),
    ("training", "the loop, its state, evaluation"),
    ("measurement", "time, memory, operations"),
    ("report", "records in, tables,\nfigures and advice out"),
    ("data", "images"),
    ("records", "specs, recipes, records, locks"),
    ("paper", "the paper's tables, settings\nand networks"),
]
WIDTH, BOX_W, BOX_H, GAP = 940, 280, 64, 12


def box(x: float, y: float, name: str, words: str, room: str) -> str:
    """One module with a line or two about it."""
    lines = words.split("\n")
    texts = "".join(
        f'<text x="{x + 12}" y="{y + 38 + 15 * i}" class="words">{line}</text>' for i, line in enumerate(lines)
    )
    rect = f'<rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="6" class="{room}"/>'
    return f'{rect}<text x="{x + 12}" y="{y + 18}" class="name">{name}</text>{texts}'


def room(y: float, title: str, note: str, modules: list[tuple[str, str]], kind: str) -> tuple[str, float]:
    """A frame with its modules in three columns; returns the drawing and its lower edge."""
    rows = -(-len(modules) // 3)
    height = 52 + rows * (BOX_H + GAP)
    parts = [
        f'<rect x="10" y="{y}" width="{WIDTH - 20}" height="{height}" rx="10" class="room"/>',
        f'<text x="28" y="{y + 26}" class="title">{title}</text><text x="{WIDTH - 28}" y="{y + 26}" '
        f'text-anchor="end" class="words">{note}</text>',
    ]
    for index, (name, words) in enumerate(modules):
        column, row = index % 3, index // 3
        parts.append(box(28 + column * (BOX_W + 20), y + 42 + row * (BOX_H + GAP), name, words, kind))
    return "".join(parts), y + height


def main() -> None:
    """Write the picture."""
    bench, end = room(10, "onelip.bench", "extra “bench”: the comparison", BENCH, "bench")
    arrow = (
        f'<line x1="{WIDTH / 2}" y1="{end + 4}" x2="{WIDTH / 2}" y2="{end + 30}" class="arrow" marker-end="url(#tip)"/>'
        f'<text x="{WIDTH / 2 + 14}" y="{end + 22}" class="words">imports, never the other way</text>'
    )
    library, end = room(end + 36, "onelip", "needs torch, numpy, safetensors", LIBRARY, "library")
    style = (
        "text{font-family:system-ui,sans-serif;fill:#1c2733}.title{font-size:17px;font-weight:700}"
        ".name{font-size:14px;font-weight:600}.words{font-size:12px;fill:#44525f}"
        ".room{fill:#f7f9fb;stroke:#b9c4ce}.library{fill:#dcebf7;stroke:#4a86b8}.bench{fill:#fbeedb;stroke:#c58a2c}"
        ".arrow{stroke:#44525f;stroke-width:2}"
    )
    tip = '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    tip += '<path d="M0 0L8 4L0 8z" fill="#44525f"/></marker></defs>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {end + 10:.0f}" role="img" '
    head += 'aria-label="The benchmark above the library; imports go down only">'
    paper = '<rect width="100%" height="100%" rx="10" fill="#fff"/>'  # dark pages are behind it
    target = Path(__file__).with_name("architecture.svg")
    target.write_text(f"{head}<style>{style}</style>{paper}{tip}{bench}{arrow}{library}</svg>\n", encoding="utf-8")


if __name__ == "__main__":
    main()
