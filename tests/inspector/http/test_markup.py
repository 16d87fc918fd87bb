"""Markdown, code and JSON become elements that run nothing, load nothing and hide nothing but secrets."""

import html
import json
import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from pydantic import JsonValue
from tests.secrets_made import SECRETS

from turnwright.privacy.redaction import redactor
from turnwright_inspector.http.markup import ColoringBudget, coloring, highlight, markdown
from turnwright_inspector.http.render import environment, json_text, visible

#: Every element that a text may become, with its attributes.
ALLOWED = {
    **dict.fromkeys(("em", "strong", "s", "code", "br", "hr", "li"), ()),
    **dict.fromkeys(("ul", "blockquote"), ("dir",)),
    **dict.fromkeys(("thead", "tbody", "tr", "th", "td", "i"), ()),
    "p": ("dir", "class"),
    "ol": ("start", "dir"),
    "a": ("href", "title", "rel", "hx-boost"),
    "pre": ("tabindex", "role", "aria-label"),
    "div": ("class", "tabindex", "role", "aria-label", "dir"),
    "table": ("class",),
    "span": ("class",),
    "details": ("class", "open"),
    "summary": ("data-lines",),
}
#: Elements without an end.
VOID = ("br", "hr")


class Elements(HTMLParser):
    """Fails for any element that is not allowed, and for one that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert set(dict(attrs)) <= set(ALLOWED[tag]), (tag, attrs)
        self.links += [str(value) for name, value in attrs if name == "href"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(text: str) -> str:
    return visible(redactor().hide(text))


def read(text: str) -> Elements:
    elements = Elements()
    elements.feed(str(text))
    elements.close()
    assert elements.open == []
    return elements


def rendered(text: str) -> Elements:
    return read(markdown(text, shown))


PIECES = st.sampled_from(
    [
        *(
            "<script>",
            "</p>",
            "<img src=x onerror=y>",
            "[a](",
            "![",
            "](javascript:x)",
            "](https://a.b/?q='\"><b>)",
            ")",
        ),
        *(
            "```py\n",
            "```\n",
            "`",
            "**",
            "_",
            "~~",
            "> ",
            "- ",
            "1. ",
            "# ",
            "|",
            "\n|-|-|\n",
            "\n",
            "\n\n",
            "    ",
            "\\",
        ),
        *("&lt;", "&#x202e;", "&quot;", "<http://a>", "\u202e", "\x00", "word", "{", '"a": [', "]", "}", "---"),
    ]
)


@given(st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=200))
def test_any_text_renders_only_allowed_elements(text: str) -> None:
    html = rendered(text)
    assert all(link.lower().startswith(("http://", "https://", "mailto:")) for link in html.links)
    assert not re.search("[\x00-\x08\x0e-\x1f\u202a-\u202e]", html.text)
    for language in ("json", "python", "html", "no-such-language"):
        assert read(highlight(shown(text), language)).text.splitlines() == shown(text).splitlines()


def test_markdown_is_rendered_as_html() -> None:
    html = markdown("# Title\n\nSome **bold** `code`\nand [a link](https://a.example/b).\n\n- one\n- two\n", shown)
    assert html == (
        '<p class="md-h1" dir="auto">Title</p><p dir="auto">Some <strong>bold</strong> <code>code</code><br>\nand '
        '<a href="https://a.example/b" title="https://a.example/b" rel="noopener noreferrer nofollow" hx-boost="false">'
        'a link</a>.</p><ul dir="auto"><li>one</li><li>two</li></ul>'
    )


def test_nested_blocks_have_a_text_direction() -> None:
    loose = markdown("1. שלום\n\n2. two\n\n> a\n\n| a |\n|-|\n| b |", shown)
    assert '<ol start="1" dir="auto"><li><p>שלום</p></li><li><p>two</p></li></ol>' in loose
    assert '<blockquote dir="auto"><p>a</p></blockquote>' in loose
    assert 'aria-label="Table" dir="auto"><table class="table">' in loose


def test_html_becomes_text_and_remote_pictures_become_links() -> None:
    assert rendered("<b onclick=x>hi</b>").text == "<b onclick=x>hi</b>"
    html = rendered("![a cat](https://a.example/cat.png) ![x](data:image/png;base64,AA) [y](javascript:alert(1))")
    assert html.links == ["https://a.example/cat.png"]
    assert html.text == "[a cat] [x] [y](javascript:alert(1))"


@pytest.mark.parametrize("secret", SECRETS)
def test_markdown_of_any_form_shows_no_secret(secret: str) -> None:
    ways = [
        secret,
        f"`{secret}`",
        f"```\n{secret}\n```",
        f"[a](https://a.example/?k={secret})",
        f"| a |\n|-|\n|{secret}|",
    ]
    ways += [f"&#{ord(secret[0])};{secret[1:]}", secret.replace("_", r"\_").replace("-", r"\-")]
    for text in ways:
        assert secret not in html.unescape(markdown(f"It is {text} .", shown)), text


def test_character_of_an_html_entity_is_made_visible() -> None:
    assert rendered("a&#x202e;b").text == "a[U+202E]b"


def test_deeply_nested_markdown_is_shown_as_written() -> None:
    text = "> " * 30 + "the end"
    assert rendered(text).text == text
    assert "the end" in rendered("- " * 15 + "the end").text


def test_long_code_is_folded_and_highlighted() -> None:
    html = markdown("```python\ndef f():\n    return 1  # one\n```", shown)
    assert '<span class="hl-k">def</span>' in html
    assert "<details" not in html
    assert "<summary>python, 60 lines</summary>" in markdown("```python\n" + "pass\n" * 60 + "```", shown)


NESTED: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(alphabet='a"\\{[,: ', max_size=6),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(alphabet='a"{', max_size=3), inner, max_size=6),
    max_leaves=30,
)


@given(NESTED, st.integers(0, 400))
def test_folded_json_keeps_the_text(value: JsonValue, length: int) -> None:
    """Whole, and cut off anywhere."""
    text = json_text(value)
    assert json.loads(read(highlight(text, "json")).text) == value
    assert read(highlight(text[:length], "json")).text == text[:length]


def test_multi_line_parts_of_json_are_folded() -> None:
    html = highlight(json_text({"a": {"b": [1, 2, 3, 4, 5]}, "c": [1]}), "json")
    assert re.findall(r'data-lines="(\d+)"', html) == ["7", "5"]
    assert '<span class="hl-f">&#34;c&#34;: </span>' in html


def test_money_has_a_currency_and_four_decimals() -> None:
    page = environment().from_string("{% for one in costs %}{{ one|dollars }} {% endfor %}")
    assert page.render(costs=[0.0, 0.0042, 0.5, 1200.5, 0.00001, 1e300]) == (
        "$0.0000 $0.0042 $0.5000 $1,200.5000 &lt;$0.0001 $1.00e+300 "
    )


def test_only_json_text_is_laid_out() -> None:
    page = environment().from_string("{{ text|data_in }}")
    assert page.render(text='{"a":[1]}') == html.escape(json_text({"a": [1]})).replace("&quot;", "&#34;")
    assert [page.render(text=text) for text in ("[1", "17", "hello", '{"a": ' * 5000)] == [""] * 4
    assert "hunter2" not in page.render(text='{"password": "hunter22"}')


def test_highlighting_of_a_page_has_a_single_budget() -> None:
    """Code after it is shown without colors, and complete; the next page has a budget of its own."""
    ticks = iter(range(1_000))
    text = "def a(b):\n    return b  # <c>\n"
    with coloring(ColoringBudget(seconds=8, clock=lambda: next(ticks))):
        first, second = highlight(text, "python"), highlight(text, "python")
    assert first.count("<span") > 0
    assert "hl-c" not in first
    assert second == escape(text)
    assert read(first).text == text
    assert "hl-c" in highlight(text, "python")


@pytest.mark.parametrize("language", ["diff", "python", "html", "ini"])
def test_pages_of_hostile_code_take_bounded_time(language: str) -> None:
    """Any number of blocks costs one budget, and one pattern that had begun. They took 5.7 s a block."""
    start = time.process_time()
    with coloring(ColoringBudget()):
        for _ in range(50):
            for text in ("+" * 4_000, "(" * 4_000, "<a " * 1_300, "=" * 4_000, "+" * 12_000):
                assert read(highlight(text, language)).text == text
    assert time.process_time() - start < 5


def test_very_long_code_is_shown_without_colors() -> None:
    assert "<span" in highlight("# a\n" * 1_000, "python")
    assert "<span" not in highlight("# a\n" * 1_001, "python")
