"""The pages of the methods: formula and reason from each file's docstring, when to use it, costs, results, paper."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from onelip.bench.paper.complexity import pretty, published_costs
from onelip.layers import MethodInfo, list_methods

GUARANTEES = {
    "orthogonal": "Orthogonal: a square, circularly padded layer keeps all norms; others keep what fits.",
    "bounded": "Bounded: the layer never increases a distance, and may decrease it.",
    "none": "None: the plain layer that the others are compared with.",
}
OPERATIONS = {
    r"CONVs\b": "convolutions",
    r"CONV\b": "convolution",
    r"MVs\b": "matrix-vector products",
    r"MMs?\b": "matrix products",
    r"INVs\b": "inverses",
    r"ACT\b": "activation",
    r"BnB\b": "Björck's iteration",
    r"F4\b": 'the "Fantastic Four" bound',
    r"Newton\b": "Newton's iteration",
    r"FFTs?\b": "Fourier transforms",
    r" & ": " and ",
    r"^-$": "none",
}
"""The paper's abbreviations, written out."""
WHEN: dict[str, str] = tomllib.loads(Path(__file__).with_name("when.toml").read_text())


def method_page(method: MethodInfo, best: str | None) -> str:
    """Formula and reason, names, costs, results, paper."""
    docstring = typeset((sys.modules[method.conv.__module__].__doc__ or "").strip())
    costs, conv, linear = published_costs(method.key), method.conv.__name__, method.linear_layer.__name__
    inputs = f"{spelled(costs.input_operations)} | {pretty(costs.input_macs)} | {pretty(costs.input_memory)}"
    parameters = f"{spelled(costs.parameter_operations)} | {pretty(costs.parameter_macs)}"
    parameters += f" | {pretty(costs.parameter_memory)}"
    results = "The comparison paper has no results with 3 x 3 kernels for it. To compare it on your data: "
    results += f"`onelip compare --methods {method.key} bcop aol`."
    if best:
        results = f"In the comparison paper, on CIFAR-10: {best[0].lower()}{best[1:]}"
    paper = f"\n## Paper\n\n[{method.paper}]({method.link}), {method.year}.\n"
    if method.guarantee == "none":
        results, paper = "`onelip compare` trains it beside the others.", ""
    return f"""# {method.title}

{docstring}

**Guarantee.** {GUARANTEES[method.guarantee]}

```python
from onelip.layers import {conv}, {linear}

{conv}(16, 32, kernel_size=3, stride=2)
{linear}(128, 10)
```

## When to use it

{when(method.key)}

{results}

## What it costs

For a batch of b images of s x s pixels, c channels, kernels of k x k and t inner iterations, as the paper counts, with
C = b s² c² k², M = b s² c and P = c² k², the products, inputs and parameters of a plain convolution:

| transformation | operations | multiply-adds | memory |
|---|---|---|---|
| of the input, in every pass | {inputs} |
| of the parameters, per training step | {parameters} |

In evaluation the parameters are transformed once. [Speed](../speed.md) has measured times.
[Reproducing the paper](../reproduction.md#what-follows-the-published-code) says what differs from the published code.
{paper}"""


def spelled(operations: str) -> str:
    """Operations as words: "FFTs & MVs" are Fourier transforms and matrix-vector products."""
    for short, words in OPERATIONS.items():
        operations = re.sub(short, words, operations)
    return operations


def method_index() -> str:
    """All methods with their guarantees, and when to take them."""
    rows = [f"| [{m.title}]({m.key}.md) | {m.year} | {m.guarantee} | {when(m.key)} |" for m in list_methods()]
    return "\n".join(
        [
            "# The methods",
            "",
            f"Which ways are there to build a 1-Lipschitz layer? onelip has these {len(rows) - 1} behind one",
            "interface, and the plain layer as a baseline. An *orthogonal* layer keeps all distances, a *bounded*",
            "one never increases them. [Which layer should I use?](../choosing.md) compares them.",
            "",
            "![All methods by year and by what makes them 1-Lipschitz](../images/zoo.png)",
            "",
            "| method | year | guarantee | when to use it |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def when(key: str) -> str:
    """When to take a method, on one line."""
    return " ".join(WHEN[key].split())


_SIGNS = [
    (r"<([^<>=]+, [^<>=]+)>", r"⟨\1⟩"),  # an inner product would be read as a tag
    (r"<=", "≤"),
    (r">=", "≥"),
    (r"!=", "≠"),
    (r"->", "→"),
    (r"(?<=[\w)\]|^']) - (?=[\w(\[|<])", " \u2212 "),
    (r"(?<=[\[(])-(?=\d)", "\u2212"),
    (r"\|\|", "‖"),
    (r"(?<=\w) x (?=\w)", " \u00d7 "),
    (r"\bsum_\(([^()]*)\)", r"Σ<sub>\1</sub>"),
    (r"\bsum_(\w)", r"Σ<sub>\1</sub>"),
    (r"(?<![A-Za-z])([A-Za-z])_(\w{1,2})\b", r"\1<sub>\2</sub>"),
    (r"\|_(\w{1,2})\b", r"|<sub>\1</sub>"),
    (r"\^\(((?:[^()]|\([^()]*\))*)\)", r"<sup>\1</sup>"),
    (r"\^(-?\w+)", r"<sup>\1</sup>"),
    (r"<sup>-", "<sup>\u2212"),
    (r"\bsqrt\((\w+)\)", r"√\1"),
    (r"\bsqrt\(", "√("),
    (r"\bsigma\b", "\u03c3"),
    (r"\beps\b", "\u03b5"),
    (r"\balpha\b", "\u03b1"),
    (r"\bPsi\b", "\u03a8"),
]


def typeset(text: str) -> str:
    """The formulas of a docstring as one would write them by hand; what stands between backticks is left alone."""
    parts = re.split(r"(`[^`]*`)", text)
    for index in range(0, len(parts), 2):
        for pattern, sign in _SIGNS:
            parts[index] = re.sub(pattern, sign, parts[index])
    return "".join(parts)
