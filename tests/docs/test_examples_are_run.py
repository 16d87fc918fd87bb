"""Every Python example of every page is run by a test, and the page says by which; or it says why not."""

import ast
import re
from pathlib import Path

import pytest

from .repository_pages import PAGES, ROOT, Block, blocks, name_of

EXAMPLES = [
    pytest.param(page, block, id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, block in enumerate(
        block for block in blocks(page.read_text(encoding="utf-8")) if block.language == "python"
    )
]


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_example_names_the_running_test(page: Path, block: Block) -> None:
    """The comment stands right above it: `tested by tests/...`, or `not run:` with the reason."""
    if any(re.match(r"not run: \w", comment) for comment in block.comments):
        return
    paths = [match[1] for comment in block.comments if (match := re.match(r"tested by (tests/\S+\.py)$", comment))]
    assert paths, f"{name_of(page)}: no comment above ```python {block.text.splitlines()[0]!r}"
    test = ROOT / paths[0]
    assert test.is_file(), paths[0]
    assert page.name in test.read_text(encoding="utf-8"), f"{paths[0]} does not speak of {page.name}"


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_example_is_valid_python(page: Path, block: Block) -> None:  # noqa: ARG001 (it names the test)
    """Pieces of a coroutine are: they may await."""
    compile(block.text, "example", "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
