"""Takes docs/stepper.png: a step of the walk in the report of a run.

    python -m experiments per-vector --out RUN
    python docs/make_stepper.py RUN

Needs Chromium and its driver: apt-get install chromium, pip install "minigrad[browser]".
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).with_name("stepper.png")
STEP = "∂α"  # the score's gradient, where softmax is gone through backward


def main(run: str) -> None:
    report = (Path(run) / "report.html").resolve()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme="light")
        page.goto(report.as_uri())
        page.locator("#steps button", has_text=re.compile(f"^{STEP}$")).click()
        page.evaluate("document.activeElement.blur()")
        page.locator("#walk").screenshot(path=PICTURE)
        browser.close()
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
