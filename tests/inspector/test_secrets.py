"""No page shows a value whose key names a secret, with any content and at any depth."""

import html
import json
import re
from functools import partial

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.hypothesis_examples import percent_of_examples

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.model import ScriptedModel
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.privacy.redaction import HIDDEN, Redactor, opened_in
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.tabs import TABS

from .conftest import browser

NOBODYS = Redactor({})

NAMES = st.builds(
    "{}{}".format,
    st.sampled_from(["", "db_", "my ", "é", "x\n", 'a "', "\\"]),
    st.sampled_from(
        ("password", "PASSWD", "passphrase", "Secret", "client_secret", "secretKey", "api_key", "access-key", "_pass")
    )
    | st.sampled_from(
        ("private_key", "auth_token", "accessToken", "session_token", "secrets", "passwords", "Authorization")
    ),
)
#: Words that no page has of its own.
WORDS = ("qorrekt", "hxrse", "battqry", "stzple", "Шлюхтер", "wörqlich", "q1w2e3r4")
BETWEEN = st.sampled_from(
    [" ", "  ", "\n", "\r\n", "\t", '"', "'", "\\", '\\"', '"}', "']", ", ", ": ", "=", "\u2028", "<", "&"]
)
VALUES = st.lists(st.tuples(BETWEEN, st.sampled_from(WORDS)), min_size=1, max_size=6).flatmap(
    lambda parts: BETWEEN.map(lambda last: "".join(gap + word for gap, word in parts) + last)
)
UNDER = st.recursive(
    VALUES, lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(st.just("value"), inner, min_size=1)
)
ARGUMENTS = st.recursive(
    st.dictionaries(NAMES, UNDER, min_size=1, max_size=2),
    lambda inner: st.dictionaries(st.sampled_from(["login", "a b", "form"]), inner | st.lists(inner), min_size=1),
    max_leaves=3,
)


def words_in(text: str) -> list[str]:
    """The words that are in a text or page, however they are written."""
    text = html.unescape(text)
    return [word for word in WORDS if word in text or json.dumps(word)[1:-1] in text]


@given(ARGUMENTS)
@example({"passphrase": "qorrekt hxrse battqry stzple"})
def test_secret_values_are_hidden_in_structures_and_every_notation(arguments: dict[str, JsonValue]) -> None:
    assert words_in(json.dumps(NOBODYS.hide_in(arguments), ensure_ascii=False)) == []
    text = json.dumps(arguments)
    for _ in range(4):
        assert words_in(NOBODYS.hide(f"It is {text}, and so on.")) == []
        text = json.dumps({"said": text}, indent=2, ensure_ascii=False)
    assert words_in(NOBODYS.hide(repr(arguments))) == []


@given(st.text(alphabet="ab \n\\'é", max_size=40), st.sampled_from(['{}: "', '"{}":"', "{} = '", "{}='", "--{} '"]))
def test_quoted_secret_is_hidden_up_to_the_closing_quote(secret_text: str, opening: str) -> None:
    begun = opening.format("api-key")
    quote = begun[-1]
    value = secret_text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    hidden = NOBODYS.hide(f"before {begun}{value}{quote}, and after")
    assert hidden == f"before {begun}{HIDDEN if value else ''}{quote}, and after"


def test_unterminated_secret_is_hidden_to_the_end_of_the_text() -> None:
    text = 'see passphrase: "qorrekt hxrse'
    assert NOBODYS.hide(text) == 'see passphrase: "***'
    assert opened_in(text) == (4, 17)
    assert opened_in(f'{text}" and') is None


def test_numeric_secret_is_hidden_but_booleans_are_shown() -> None:
    hidden = NOBODYS.hide_in({"password": 12345678, "secret": True, "api_key": None, "passwd": "", "n": 12345678})
    assert hidden == {"password": HIDDEN, "secret": True, "api_key": None, "passwd": "", "n": 12345678}


def test_remark_in_brackets_is_no_value() -> None:
    for text in ("no secret = [] here", "secrets: {a, b}", "the password (see [1]) is 'old'"):
        assert "***" not in NOBODYS.hide(text).replace("= []", "")


@tool
async def login(form: JsonValue = None) -> str:
    """Log in."""
    return f"logged in with {json.dumps(form, ensure_ascii=False)}"


@tool(needs_approval=True)
async def enter(form: JsonValue = None) -> str:
    """Log in when somebody allows it."""
    return repr(form)


@pytest.mark.timeout(900)
@settings(max_examples=percent_of_examples(15))
@given(ARGUMENTS)
@example({"passphrase": "qorrekt hxrse battqry stzple"})
@example({"password": '\\"qorrekt '})
@example({"password": {"value": " qorrekt"}})
def test_turn_pages_show_no_part_of_a_secret(arguments: dict[str, JsonValue]) -> None:
    anyio.run(partial(_check_pages, arguments))


async def _check_pages(arguments: dict[str, JsonValue]) -> None:
    text = json.dumps(arguments, ensure_ascii=False)
    calls = (
        ResponseToolCall("login", {"form": arguments}),
        ResponseToolCall("login", arguments),
        ResponseToolCall("login", None, text[:-1]),
        ResponseToolCall("enter", {"form": arguments}),
    )
    hosted: dict[str, JsonValue] = {"type": "web_search_call", "action": arguments}
    detail: dict[str, JsonValue] = {"type": "openai_response", "item": hosted}
    reply = ModelResponse(
        text=f"I send {text}",
        reasoning=repr(arguments),
        reasoning_details=(detail, {**detail, "item": arguments}),
        calls=calls,
    )
    model = ScriptedModel(reply, f"It is: {text}", f"Done: {text}")
    async with Engine(model=model, tools=[login, enter]) as engine:
        agent = Agent(name="A", instructions=f"Use {text}")
        turn: TurnResult = await engine.run(agent, f"Take {text}", session="s")
        other_turn: TurnResult = await engine.run(agent, text)
        app = inspector_app(engine, access=Open())
        async with browser(app) as client:
            for _ in range(2):
                paths = [
                    "/",
                    "/sessions",
                    "/statistics",
                    "/agents",
                    "/needs-you",
                    "/session?session=s",
                    f"/turns/{turn.id}/journal.jsonl",
                ]
                paths.append(f"/turns/{turn.id}/export.jsonl")
                paths += [f"/compare?left={turn.id}&right={other_turn.id}&pair={pair}" for pair in (1, 2)]
                paths += [f"/turns/{turn.id}/edit?step={step}" for step in (1, 2)]
                paths += [f"/turns/{turn.id}?tab={tab}{step}" for tab in TABS for step in ("", "&step=1", "&step=2")]
                paths += [f"/turns/{turn.id}?raw=1"]
                for path in paths:
                    page = await client.get(path)
                    assert page.status_code == 200, path
                    assert words_in(page.text) == [], (path, re.findall(".{60}(?:" + "|".join(WORDS) + ")", page.text))
                for word in words_in(text):
                    page = await client.get("/", params={"q": word})
                    assert 'id="row-' not in page.text, word
                if not turn.interrupts:
                    return
                turn = await engine.resume(turn.id, {turn.interrupts[0].id: True})
