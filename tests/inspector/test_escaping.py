"""Every page shows the words of models, tools and people as plain text, and shows no secret in them."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest
from pydantic import JsonValue
from tests.secrets_made import SECRETS

from turnwright import Agent, Engine, tool
from turnwright.message import FilePart
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.store import SqliteStore
from turnwright_inspector import inspector_app
from turnwright_inspector.http.access import Open
from turnwright_inspector.http.render import amount, environment, moment, seconds, span, visible
from turnwright_inspector.tabs import TABS
from turnwright_states import Cause

from .conftest import browser

pytestmark = pytest.mark.anyio

EVIL = (
    "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)></textarea></title></pre></svg>"
    " {{ 7 * 7 }} {% raw %} &lt; \u202ertl\u202c \u200b \U000e0041 \x00\x07\x1b[31m \u2028 " + "w" * 3000
)


class Seen(HTMLParser):
    """The elements of a page and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.bad += [f"{tag} {name}" for name in names if name.startswith("on")]
        if tag == "script" and not names.get("src"):
            self.bad.append("script")
        if tag == "img" and names.get("src") == "x":
            self.bad.append("img")
        if str(names.get("href", "")).lower().startswith(("javascript:", "data:")):
            self.bad.append(f"{tag} href")


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{EVIL} {word}"


@tool
async def fails(word: str) -> str:
    """It fails."""
    raise ValueError(f"{EVIL} {word}")


@tool(needs_approval=True)
async def asks(word: str) -> str:
    """It asks."""
    return word


async def turns_of_evil(file: Path, text: str) -> list[str]:
    """An ended turn and a paused one in which everybody says this."""
    calls = (
        ResponseToolCall("look_up", {"word": text}),
        ResponseToolCall("fails", {"word": text}),
        ResponseToolCall(text[:400], {text: text}),
        ResponseToolCall("look_up", None, f"{{no json {text}"),
    )
    hosted: dict[str, JsonValue] = {"type": "openai_response", "item": {"type": text, "query": text}}
    clean = "".join(letter for letter in text if letter.isprintable())
    agent = Agent(name=f"A {clean}", instructions=text, steps=1)
    model = ScriptedModel(
        ModelError(text, cause=Cause.OVERLOADED),
        ModelResponse(text=text, reasoning=text, reasoning_details=(hosted,), calls=calls),
        text,
        asks_for(("asks", {"word": text})),
        name=f"m {text}"[:200],
    )
    never = Backoff(initial=0.0, max_retry_after=0.0)
    tools = [look_up, fails, asks]
    async with Engine(model=model, tools=tools, store=SqliteStore(file), backoff=never) as engine:
        picture = FilePart.of(b"x", "image/png", text[:300])
        ended = await engine.run(agent, text, session=f"s {clean[:900]}", files=[picture])
        paused = await engine.run(agent, text)
        return [ended.id, paused.id]


async def pages_of(file: Path, names: list[str]) -> dict[str, str]:
    texts = {}
    async with (
        Engine(model=ScriptedModel(), tools=[look_up, fails, asks], store=SqliteStore(file)) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        paths = ["/", "/sessions", "/statistics", "/?q=script", "/agents", "/needs-you"]
        paths += ["/session?" + urlencode({"session": session.id}) for session in await engine.sessions()]
        paths += [f"/turns/{name}?tab={tab}{step}" for name in names for tab in TABS for step in ("", "&step=1")]
        paths += [f"/turns/{name}?raw=1" for name in names]
        paths += [f"/turns/{name}/{file}.jsonl" for name in names for file in ("journal", "export")]
        paths += [f"/compare?left={names[0]}&right={names[1]}&pair={pair}" for pair in (1, 2)]
        paths += [f"/turns/{name}/edit?step=conclude" for name in names]
        for path in paths:
            response = await client.get(path)
            assert response.status_code == 200, path
            texts[path] = response.text
    return texts


async def test_hostile_text_is_inert_on_every_page(tmp_path: Path) -> None:
    file = tmp_path / "turns.db"
    pages = await pages_of(file, await turns_of_evil(file, EVIL))
    for path, text in pages.items():
        if path.endswith(".jsonl"):
            assert all(json.loads(line)["seq"] for line in text.splitlines())
            continue
        seen_page = Seen()
        seen_page.feed(text)
        assert seen_page.bad == [], path
        assert not re.search("[\x00-\x08\x0e-\x1f\u200b\u2028\u202a-\u202e\U000e0000-\U000e007f]", text), path
        assert text.rstrip().endswith("</html>")


async def test_no_page_or_downloaded_journal_shows_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "turns.db"
    secret_text = " ".join(["It is", *SECRETS, "password=hunter22hunter22", "."])
    pages = await pages_of(file, await turns_of_evil(file, secret_text))
    for path, text in pages.items():
        for secret in (*SECRETS, "hunter22"):
            assert secret not in text, path
        if path.endswith(".jsonl"):
            assert all(json.loads(line)["kind"] for line in text.splitlines())


def test_invisible_characters_are_made_visible() -> None:
    assert visible("a\tb\nc\r") == "a\tb\nc\r"
    assert visible("\x00\x1b\x7f\x85\u202e\ud800\u2067") == "␀␛␡[U+0085][U+202E][U+D800][U+2067]"
    hidden = "\u061c\u200b\u2060\ufeff\u00ad\u2028\u2029\U000e0041"
    assert visible(hidden) == "".join(f"[U+{ord(letter):04X}]" for letter in hidden)
    page = environment().from_string("<p title='{{ text }}'>{{ text }}</p>{{ 5 }}{{ none }}{{ [text] }}")
    page.render(text="\ud800<b>").encode()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min 0 s"),
        (3725.0, "1 h 2 min"),
    ],
)
def test_times_are_written_in_words(value: float, words: str) -> None:
    assert seconds(value) == words


def test_numbers_and_moments_are_formatted_for_people() -> None:
    assert [amount(number) for number in (0, 1234567, 0.5, 1.25, 0.0042, 0.000013, 0.00000001)] == [
        *("0", "1,234,567", "0.5", "1.25", "0.0042", "0.000013", "0.00000001")
    ]
    assert [amount(number) for number in (1e15, 10**400, -(10**400), 2**60 - 1)] == [
        *("1.00e+15", "1.00e+400", "-1.00e+400", "1.15e+18")
    ]
    assert [span(seconds) for seconds in (60, 14400, 604800, 90)] == ["1 minute", "4 hours", "7 days", "90 seconds"]
    assert moment(0) == "1970-01-01T00:00:00Z"
    assert moment(1e300) == "1e+300 s"
