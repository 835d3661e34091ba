"""Take report.png: the advisor in the report of the study that comes with the repository.

    onelip report docs/reference/minutes --out minutes && .venv/bin/python docs/images/make_report.py minutes

Chromium must be installed; the extra `dev` has what drives it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"


def main() -> None:
    """Write the picture beside this file."""
    parser = argparse.ArgumentParser(description="report.png from the folder of a report")
    parser.add_argument("report", type=Path, help="folder with report.html")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write; beside this file by default")
    arguments = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto((arguments.report.resolve() / "report.html").as_uri())
        box = page.locator("section:has(#advisor-plot)").first.bounding_box()
        assert box is not None
        clip = {"x": box["x"] - 24, "y": box["y"] - 24, "width": box["width"] + 48, "height": box["height"] + 48}
        page.screenshot(path=arguments.out / "report.png", full_page=True, clip=clip)  # type: ignore[arg-type]
        browser.close()


if __name__ == "__main__":
    main()
