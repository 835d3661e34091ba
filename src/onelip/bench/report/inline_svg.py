"""Figures inside the page: ids of their own, the colours of the theme, and classes in place of style attributes.

The page's content security policy allows one style sheet, by its hash, and no style attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from onelip.bench.report.figures.drawing import AXIS, GRID, GROUND, INK, SVG, FigureFiles, ReportFigure
from onelip.bench.report.method_style import css_variable, method_style

_HREF = "{http://www.w3.org/1999/xlink}href"
_PIXELS_PER_INCH = 96


class InlineFigures:
    """Makes the SVG elements of one page and collects the style rules that they share."""

    def __init__(self, methods: Iterable[str]) -> None:
        self._variables = {method_style(key).light: f"var({css_variable(key)})" for key in methods}
        self._variables |= {INK: "var(--ink)", AXIS: "var(--axis)", GRID: "var(--grid)", GROUND: "var(--ground)"}
        self._classes: dict[str, str] = {}

    @property
    def css(self) -> str:
        """The rules of all classes."""
        return "".join(f".{name}{{{style}}}\n" for style, name in self._classes.items())

    def element(self, figure: ReportFigure, files: FigureFiles) -> str:
        """The figure as an element of the page."""
        root = ElementTree.fromstring(files.svg)
        width, height = (round(side * _PIXELS_PER_INCH) for side in figure.figure.get_size_inches())
        root.attrib |= {"width": str(width), "height": str(height)}
        for parent in root.iter():
            for style in parent.findall(f"{SVG}style"):
                parent.remove(style)
        for element in root.iter():
            attributes = element.attrib
            if "id" in attributes:  # axes_1 occurs in every figure, but a page must have each id once
                attributes["id"] = f"{figure.name}-{attributes['id']}"
            if _HREF in attributes:
                attributes[_HREF] = f"#{figure.name}-{attributes[_HREF][1:]}"
            for name in ("clip-path", "fill"):
                if attributes.get(name, "").startswith("url(#"):
                    attributes[name] = f"url(#{figure.name}-{attributes[name][5:]}"
            style = attributes.pop("style", None)
            if style is not None:
                themed = re.sub(r"#[0-9a-f]{6}\b", lambda match: self._variables.get(match[0], match[0]), style)
                attributes["class"] = self._classes.setdefault(themed, f"s{len(self._classes)}")
        return ElementTree.tostring(root, encoding="unicode")
