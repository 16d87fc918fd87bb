"""The page about proofs, its picture, and the target that runs everything name the same checks."""

import re
import runpy
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "evidence.md").read_text("utf-8")
MADE: Final = runpy.run_path(str(ROOT / ".ci" / "draw_proof.py"))
PICTURE: Final = (ROOT / "docs" / "assets" / "proof.svg").read_text("utf-8")


def checks() -> dict[str, str]:
    """The checks of the page, each with how to run it."""
    section = PAGE.split("### What checks it\n")[1].split("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {name: command for name, _, command in rows[2:]}


def test_picture_has_every_check_of_the_page() -> None:
    assert sorted(MADE["names"]()) == sorted(checks())


def test_picture_is_fresh() -> None:
    assert MADE["drawing"]() == PICTURE


def test_drawings_have_no_own_dark_colors() -> None:
    assert 'img[src$=".svg"]' in (ROOT / "docs" / "assets" / "extra.css").read_text("utf-8")
    drawings = [*(ROOT / "docs" / "assets").glob("*.svg"), *(ROOT / "diagrams").glob("*.svg")]
    assert drawings
    assert [drawing.name for drawing in drawings if "prefers-color-scheme" in drawing.read_text("utf-8")] == []


def test_single_target_runs_every_local_check() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").split("\nproof-all:")[1].split("\n\n")[0]
    targets = {command for text in checks().values() for command in re.findall(r"make ([\w-]+)", text)}
    lines = [line for line in recipe.splitlines()[1:] if "pytest" not in line]
    ran = {"faults" if "campaigns.faults" in line else line.split()[1] for line in lines}
    assert targets | {"verify"} == ran
