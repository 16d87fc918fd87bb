"""Answers on a terminal are Markdown, of which no part of the text is lost."""

import pytest

from turnwright.cli.markdown import RenderedMarkdown
from turnwright.cli.screen import Screen


def rendered(text: str, width: int = 100) -> str:
    screen = Screen()
    screen.width = width
    with screen.capture() as capture:
        screen.print(RenderedMarkdown(text))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_markdown_marks_become_styles() -> None:
    text = rendered("Use **bold** and `code`:\n\n- one\n- two\n\n```python\nprint(1)\n```")
    assert "Use bold and code:" in text
    assert " • one\n • two" in text
    assert " print(1)" in text
    assert "```" not in text


@pytest.mark.parametrize(
    "text",
    [
        "first line\nsecond line",
        "if a < b & c > d: <b>html</b> &amp;",
        "<script>alert(1)</script>",
        "[1]: http://example.com",
        "\\x1b[31m",
    ],
)
def test_text_without_markdown_is_unchanged(text: str) -> None:
    assert rendered(text).strip() == text


def test_link_addresses_are_shown_beside_the_text() -> None:
    text = rendered("See [the bank](http://evil.example) and ![a cat](http://cat.example).")
    assert text.strip() == "See the bank (http://evil.example) and !a cat (http://cat.example)."
    assert "\x1b]8" not in rendered("[x](http://y.example)")


def test_escape_sequence_of_the_model_is_shown() -> None:
    assert rendered("**\x1b]0;owned\x07**").strip() == r"\x1b]0;owned\x07"
