"""Take radar.png and report.png from the report of a study: its radar, and what a window of 1280 x 900 shows first.

    make compare && .venv/bin/python docs/images/make_report.py study

Chromium must be installed; the extra `dev` has what drives it.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"


def main() -> None:
    """Write both pictures beside this file."""
    parser = argparse.ArgumentParser(description="radar.png and report.png from the folder of a study")
    parser.add_argument("study", type=Path, help="folder of the study, with its report")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write; beside this file by default")
    arguments = parser.parse_args()
    report = arguments.study.resolve() / "report"
    shutil.copyfile(report / "figures" / "radar.png", arguments.out / "radar.png")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto((report / "report.html").as_uri())
        page.screenshot(path=arguments.out / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
