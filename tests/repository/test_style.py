"""The style check refuses what `.ci/style.toml` names, and nothing in code."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / ".ci"))

import check_style  # noqa: E402 (after the path is set)

#: For each pattern, a text that it refuses.
REFUSED = {
    "DESIGN \\d": "See DESIGN 4.8.",
    "take up": "A worker takes up the turn.",
    "let go": "It lets go of the turn.",
    "make way": "It made way for another.",
    "see to": "The engine sees to it.",
    "held against": "It is held against the table.",
    "come along": "The model comes along.",
    "be whole": "The reply is whole.",
    "hear": "Nothing was heard of it.",
    "tell": "The model is told so.",
    "stand": "The reason stands in the journal.",
    "whoever": "Whoever drives the turn.",
    "formerly": "Formerly a tuple.",
    "colour": "The colours of states.",
    "cancelled": "The call was cancelled.",
    "synthesise": "A synthesised answer.",
    "is no": "The path is no folder.",
    "go on": "The turn goes on.",
    "a step": "It makes 400 calls a step.",
    "licence": "The licence of the files.",
}


def complaints(text: str) -> list[str]:
    return [problem for _, problem in check_style.problems_of_words(text)]


def test_each_pattern_refuses_its_text() -> None:
    refused = {pattern.pattern for text in REFUSED.values() for pattern, _ in check_style.WORDS if pattern.search(text)}
    assert all(complaints(text) for text in REFUSED.values())
    assert refused == set(check_style.STYLE["words"])


def test_code_spans_are_left_out() -> None:
    assert complaints("`told` and ``let go`` are names") == []


def test_a_source_is_checked_in_docstrings_comments_and_messages(tmp_path: Path) -> None:
    source = tmp_path / "told.py"
    source.write_text(
        '"""What a module does."""\n\ntold = 1  # whoever reads it\n"""How many."""\nERROR = f"turn {told} is told"\n',
        encoding="utf-8",
    )
    assert [line for line, _ in check_style.problems_of_source(source)] == [1, 4, 3, 5]


def test_other_files_are_checked_in_comments_strings_and_the_text_of_templates(tmp_path: Path) -> None:
    texts = {
        ".js": 'tell("is told") // A page is told.\nconst told = 1 /* whoever\nhears */\n',
        ".css": ".told { top: 0 } /* is told */\n\n/*\nis heard */\n",
        ".html": "{% macro told() %}{{ told }}\n<p>is told</p>{# heard\nis whole #}\n",
        ".toml": 'told = 1\nwhy = "is told"  # is heard\n[whoever]\n',
        ".yml": "told: 1 # is told\n",
    }
    lines = {".js": [1, 2, 3], ".css": [1, 4], ".html": [2, 2, 3], ".toml": [2, 2], ".yml": [1]}
    for suffix, text in texts.items():
        file = tmp_path / f"file{suffix}"
        file.write_text(text, encoding="utf-8")
        assert sorted(line for line, _ in check_style.problems_of_other(file)) == lines[suffix], suffix


def test_a_page_is_checked_in_prose_and_its_code_for_width_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    prose = " ".join(["word"] * (check_style.LIMITS["sentence_words"] + 1))
    code = "told = " + "1" * check_style.LIMITS["code_columns"]
    page.write_text(f"It is told.\n\n```python\ntold = 1\n{code}\n```\n\n{prose}.\n", encoding="utf-8")
    assert sorted(line for line, _ in check_style.problems_of_page(page)) == [1, 5, 8]


def test_a_file_with_a_complaint_fails_the_check(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The model is told.\n", encoding="utf-8")
    command = [sys.executable, ".ci/check_style.py", str(page)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, re.findall(r'page\.md:1: "told"', ran.stdout)) == (1, ['page.md:1: "told"'])
