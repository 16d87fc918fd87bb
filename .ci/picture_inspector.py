"""Take the pictures of docs/inspector.md: start `turnwright demo --serve`, and photograph it with Chromium.

    python .ci/picture_inspector.py

The executable is looked for as in `BROWSERS`.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

ASSETS: Final = Path(__file__).resolve().parent.parent / "docs" / "assets"
BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM: Final = next(filter(None, map(shutil.which, BROWSERS)), "")
#: The pictures: a name, the text of the link to the page in the list of turns (none: the list), and the height.
PICTURES: Final = (
    ("inspector-turns", "", 760),
    ("inspector", "Find the unknown word.", 900),
    ("inspector-question", "Delete old.log", 700),
)


def main() -> None:
    """Write the pictures."""
    command = [sys.executable, "-m", "turnwright", "demo", "--serve", "--port", "0", "--json"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served,  # noqa: S603 (our own command)
        sync_playwright() as playwright,
    ):
        address = json.loads(next(iter(served.stdout or ())))["address"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(color_scheme="light")
        page.goto(address)
        page.wait_for_timeout(5000)  # the last of the sample turns begins
        for name, link, height in PICTURES:
            page.set_viewport_size({"width": 1280, "height": height})
            page.get_by_role("link", name="Turns").first.click()
            if link:
                page.get_by_role("link", name=link).first.click()
            page.wait_for_timeout(1500)
            page.screenshot(path=ASSETS / f"{name}.png")
        browser.close()
        served.terminate()


if __name__ == "__main__":
    main()
