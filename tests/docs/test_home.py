"""docs/index.md tells the truth: its example prints what it says, and its commands are the README's."""

import re
import subprocess
import sys
from pathlib import Path

from .repository_pages import DOCS, ROOT, blocks

PAGE = (DOCS / "index.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    (example,) = (block.text for block in blocks(PAGE) if block.language == "python")
    ran = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True)
    promised = re.search(r"It prints `(.+?)`", PAGE)
    assert promised is not None
    assert ran.stdout.strip() == promised[1]


def test_the_commands_and_what_they_print_are_those_of_the_readme() -> None:
    commands, output = (block.text for block in blocks(PAGE) if block.language in ("console", "text"))
    assert commands in README
    assert output in README
