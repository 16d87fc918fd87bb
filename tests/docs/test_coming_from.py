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
    assert printed(PYTHON["turnwright"], capsys) == PRINTED


def test_pydantic_ais_example_gives_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pydantic_ai", reason="needs pydantic-ai: pip install 'turnwright[pydantic-ai]'")
    assert printed(PYTHON["pydantic-ai"], capsys) == PRINTED.removeprefix("finished ")


@pytest.mark.parametrize("title", ["openai-agents", "langchain"])
def test_the_other_examples_are_python(title: str) -> None:
    """Their packages are not installed with the tests."""
    assert "price_of" in {node.name for node in ast.walk(ast.parse(PYTHON[title])) if hasattr(node, "name")}


def test_every_framework_has_its_section() -> None:
    assert [block.title for block in BLOCKS if block.language in {"python", "py", "ts"}] == [
        "turnwright",
        "pydantic-ai",
        "openai-agents",
        "langchain",
        "ai",
    ]
