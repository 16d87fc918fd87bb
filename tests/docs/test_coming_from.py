"""Check docs/coming-from.md: our example prints what it shows, pydantic-ai's runs too, and the others parse."""

import ast

import pytest

from .page_blocks import blocks_of

PAGE = "coming-from.md"
BLOCKS = blocks_of(PAGE)
PYTHON = {block.title: block.text for block in BLOCKS if block.language in {"python", "py"}}
PRINTED = next(block.text for block in BLOCKS if block.language == "text")


def printed(code: str, capsys: pytest.CaptureFixture[str]) -> str:
    exec(compile(code, "an example", "exec"), {"__name__": "__main__"})  # noqa: S102 (our own page)
    return capsys.readouterr().out


def test_our_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(PYTHON["with_turnwright.py"], capsys) == PRINTED


def test_pydantic_ais_example_gives_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pydantic_ai", reason="needs pydantic-ai: pip install 'turnwright[pydantic-ai]'")
    assert printed(PYTHON["with_pydantic_ai.py"], capsys) == PRINTED.removeprefix("finished ")


@pytest.mark.parametrize("title", ["with_openai_agents.py", "with_langchain.py"])
def test_the_other_examples_are_python(title: str) -> None:
    """Their packages are not installed with the tests."""
    functions = ast.walk(ast.parse(PYTHON[title]))
    assert "price_of" in {one.name for one in functions if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_framework_has_its_section() -> None:
    assert [block.title for block in BLOCKS if block.language in {"python", "py", "ts"}] == [
        "with_turnwright.py",
        "with_pydantic_ai.py",
        "with_openai_agents.py",
        "with_langchain.py",
        "with_ai.ts",
    ]
