"""The style check refuses the words and names of `.ci/style.toml`, and nothing else in code."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_each_pattern_refuses_the_matching_text() -> None:
    refused = {pattern.pattern for text in REFUSED.values() for pattern, _ in check_style.WORDS if pattern.search(text)}
    assert all(complaints(text) for text in REFUSED.values())
    assert refused == set(check_style.STYLE["words"])


def test_code_spans_are_left_out() -> None:
    assert complaints("`told` and ``let go`` are names") == []


def test_source_is_checked_in_docstrings_comments_and_messages(tmp_path: Path) -> None:
    source = tmp_path / "told.py"
    source.write_text(
        '"""What a module does."""\n\nturn = 1  # whoever reads it\n"""How many."""\nERROR = f"turn {turn} is told"\n',
        encoding="utf-8",
    )
    assert [line for line, _ in check_style.problems_of_source(source)] == [1, 4, 3, 5]


def test_other_files_are_checked_in_comments_strings_and_templates(tmp_path: Path) -> None:
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


def test_page_is_checked_in_prose_and_code_only_for_width(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    prose = " ".join(["word"] * (check_style.LIMITS["sentence_words"] + 1))
    code = "told = " + "1" * check_style.LIMITS["code_columns"]
    page.write_text(f"It is told.\n\n```python\ntold = 1\n{code}\n```\n\n{prose}.\n", encoding="utf-8")
    assert sorted(line for line, _ in check_style.problems_of_page(page)) == [1, 5, 8]


#: A bad name in each place that binds one, a line each.
PLANTED_NAMES = """
found = 1
def count(said, *, told): ...
class Row:
    kept: int
rows = [one for one in range(3)]
for found, count in {}.items(): ...
rows[0]._seen = 2
with open("rows") as it: ...
if (given := rows): ...
match rows:
    case [first, *others]: ...
try: ...
except OSError as that: ...
"""


def names_refused(code: str) -> list[tuple[int, str]]:
    return sorted(
        (line, problem.split('"')[1]) for line, problem in check_style.problems_of_names(ast.walk(ast.parse(code)))
    )


def test_refused_names_are_found_at_every_binding() -> None:
    assert names_refused(PLANTED_NAMES) == [
        (2, "found"),
        (3, "said"),
        (3, "told"),
        (5, "kept"),
        (6, "one"),
        (7, "found"),
        (8, "_seen"),
        (9, "it"),
        (10, "given"),
        (12, "others"),
        (14, "that"),
    ]


def test_names_with_a_noun_and_names_only_read_are_accepted() -> None:
    assert names_refused("kept_rows, seen_ids = module.found, given\n") == []


def test_names_on_the_list_of_exceptions_are_accepted() -> None:
    tree = ast.parse("def __eq__(self, other, one): ...")
    assert [problem.split('"')[1] for _, problem in check_style.problems_of_names(ast.walk(tree), ["other"])] == ["one"]


def test_refused_names_are_distinct_and_have_advice() -> None:
    refused = [name for pattern in check_style.NAMES["refused"] for name in pattern.split("|")]
    assert len(refused) == len(set(refused))
    assert all("noun" in instead for instead in check_style.NAMES["refused"].values())


@pytest.mark.parametrize(
    ("name", "complaints_count"),
    [
        ("test_plain_and_fast_argument_check_agree", 0),
        ("test_" + "a" * 65, 0),
        ("test_" + "a" * 66, 1),
        ("test_what_it_takes_is_taken", 2),
        ("describe_what_it_takes", 0),
    ],
)
def test_tests_with_long_names_or_pronouns_are_refused(name: str, complaints_count: int) -> None:
    for code in (f"def {name}(): ...", f"class Suite:\n    async def {name}(self): ..."):
        assert len(list(check_style.problems_of_test_names(ast.walk(ast.parse(code))))) == complaints_count


def test_exceptions_of_names_are_existing_paths() -> None:
    patterns = [place for places in check_style.NAMES["exceptions"].values() for place in places]
    assert [pattern for pattern in patterns if not any(ROOT.glob(pattern))] == []


def test_names_of_variables_and_tests_are_checked_in_any_file(tmp_path: Path) -> None:
    source = tmp_path / "test_rows.py"
    source.write_text("def test_what(rows): ...\n\n\nfound = 1\n", encoding="utf-8")
    assert sorted(line for line, _ in check_style.problems_of_source(source)) == [1, 4]


def test_file_with_a_complaint_fails_the_check(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The model is told.\n", encoding="utf-8")
    command = [sys.executable, ".ci/check_style.py", str(page)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, re.findall(r'page\.md:1: "told"', ran.stdout)) == (1, ['page.md:1: "told"'])
