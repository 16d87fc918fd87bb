"""A reply is streamed word by word without its secrets; each listener receives complete words from where it began."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.secrets_made import SECRETS

from turnwright.privacy.redaction import redactor
from turnwright.transcript.events import DeltaEvent, ReasoningDeltaEvent, TextDeltaEvent, ToolCallDeltaEvent
from turnwright_inspector.http.event_stream import PageEvent, PageEventStream
from turnwright_inspector.views.redacted_stream import Replies, Words

SECRET_WORDS = ("qorrekt", "hxrse", "battqry")
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(["It is", "so,", "\n", "été", "x" * 30, "{", "}", "1 and"]),
        st.sampled_from(SECRETS[:6]),
        st.sampled_from(
            ['"passphrase": "{}"', "secret='{}'", '{{\\"api_key\\":\\"{}\\"}}', '{{"secrets": ["{}"]}}']
        ).map(lambda form: form.format(" ".join(SECRET_WORDS))),
        st.just(f'password: "{"hxrse " * 200}"'),
    ),
    min_size=1,
    max_size=6,
).map(" ".join)


def pieces_of(
    text: str, sizes: Sequence[int], *, kind: type[TextDeltaEvent | ReasoningDeltaEvent] = TextDeltaEvent, seq: int = 3
) -> list[DeltaEvent]:
    """The text in pieces of these lengths, again and again."""
    pieces: list[DeltaEvent] = []
    while text:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(kind(turn="t", seq=seq, index=len(pieces), text=text[:size]))
        text = text[size:]
    return pieces


def heard(words: Words, pieces: Iterable[DeltaEvent]) -> str:
    """Return the text that a page shows after these pieces and the end of the reply."""
    text = ""
    for event in [*(addition for piece in pieces for addition in words.add(piece)), *words.rest()]:
        assert event.name == "piece"
        text = "" if event.fields["kind"] == "restarted" else text + str(event.fields["text"])
    return text


@given(TEXTS, st.lists(st.integers(1, 40), min_size=1, max_size=5))
@example(f"The key is {SECRETS[0]}, and no other", [4])
@example('"passphrase": "qorrekt hxrse battqry", and so on', [3, 1])
def test_streamed_pieces_contain_no_secret_for_any_split(text: str, sizes: list[int]) -> None:
    text_shown = heard(Words(Replies()), pieces_of(text, sizes))
    for secret in (*SECRETS[:6], *SECRET_WORDS):
        assert secret not in text_shown


@given(
    st.lists(st.sampled_from(["It is", "so,", "\n", "été", "x" * 30, SECRETS[0], "password: 'a b'"]), min_size=1),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
def test_streamed_text_equals_the_redacted_text(words: list[str], sizes: list[int]) -> None:
    text = " ".join(words)
    assert heard(Words(Replies()), pieces_of(text, sizes)) == redactor().hide(text)


def test_reply_text_follows_the_reasoning() -> None:
    replies = Replies()
    thought = pieces_of("Hm, yes", [3], kind=ReasoningDeltaEvent)
    text_pieces = [
        TextDeltaEvent(turn="t", seq=3, index=len(thought) + n, text=text) for n, text in enumerate(["One ", "two"])
    ]
    words = Words(replies)
    events = [event for piece in (*thought, *text_pieces) for event in words.add(piece)] + list(words.rest())
    assert "".join(str(event.fields["text"]) for event in events if event.fields["kind"] == "reasoning") == "Hm, yes"
    assert "".join(str(event.fields["text"]) for event in events if event.fields["kind"] == "text") == "One two"


@given(TEXTS, st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 50), st.integers(0, 50))
def test_late_listener_receives_the_complete_text(text: str, sizes: list[int], after: int, behind: int) -> None:
    """Also while another listener is behind, or ahead."""
    replies, pieces = Replies(), pieces_of(text, sizes)
    after = min(after, len(pieces) - 1)
    heard(Words(replies), pieces[: max(after, len(pieces) - behind)])
    assert heard(Words(replies), pieces[after:]) == heard(Words(Replies()), pieces)


def test_missed_text_is_marked_without_partial_words() -> None:
    pieces = pieces_of("one two thr|ee four| five six".replace("|", ""), [11, 8])
    assert heard(Words(Replies()), pieces[1:]) == "… four five six"
    assert heard(Words(Replies()), pieces_of(f"It is {SECRETS[0]} then", [12])[1:]) == "… then"
    replies = Replies()
    heard(Words(replies), pieces_of("one two three four five six", [4])[:2])
    assert heard(Words(replies), pieces_of("one two three four five six", [4])[4:]) == "one two … five six"


def test_text_of_another_reply_is_not_sent() -> None:
    replies = Replies()
    heard(Words(replies), pieces_of("an older reply", [4], seq=2))
    heard(Words(replies), pieces_of("what was void", [3]))
    again = pieces_of("said again", [5])
    heard(Words(replies), again[:1])
    assert heard(Words(replies), again[1:]) == "said again"


pytestmark = pytest.mark.anyio


async def sent(*events: PageEvent, rest: float = 0.0, then: Sequence[PageEvent] = ()) -> list[tuple[str, object]]:
    """Return the names and first data that a browser receives for `events`, sent at once, and for `then`."""
    waits = anyio.Event()

    async def source() -> AsyncGenerator[PageEvent]:
        for event in events:
            yield event
        if then:
            await waits.wait()
        for event in then:
            yield event

    heard: list[tuple[str, object]] = []

    async def send(message: Any) -> None:  # noqa: ANN401 (as ASGI has it)
        lines = message.get("body", b"").decode().splitlines()
        fields = dict(line.split(": ", 1) for line in lines if line)
        if "event" in fields:
            heard.append((fields["event"], fields["data"]))
            if fields["event"] == "grown" and len(heard) > 1:
                waits.set()

    async def receive() -> dict[str, object]:
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(60):
        await PageEventStream(source(), lambda: rest)({"type": "http", "method": "GET"}, receive, send)
    return heard


def said(text: str) -> PageEvent:
    return PageEvent.of("piece", kind="text", text=text)


async def test_frequent_changes_are_sent_at_intervals() -> None:
    events = await sent(
        PageEvent.grown(1), PageEvent.grown(2), PageEvent.grown(3), rest=0.1, then=[PageEvent.of("ended")]
    )
    assert events == [("grown", '{"seq": 1}'), ("grown", '{"seq": 3}'), ("ended", "{}")]
    assert [name for name, _ in await sent(PageEvent.grown(1), PageEvent.grown(2))] == ["grown", "grown"]


async def test_end_is_sent_at_once() -> None:
    events = await sent(PageEvent.grown(1), PageEvent.grown(2), PageEvent.of("ended"), rest=3600.0)
    assert [name for name, _ in events] == ["grown", "grown", "ended"]


async def test_streamed_text_is_sent_at_once_and_again_after_a_page_update() -> None:
    """A page that receives `grown` drops the streamed text, for the journal has it then."""
    events = (PageEvent.grown(1), said("a"), PageEvent.grown(2), said("b"), PageEvent.grown(3), said("c"), said("d"))
    shown_text, last = "", []
    for name, data in await sent(*events, rest=0.1, then=[PageEvent.of("ended")]):
        if name == "grown" or '"restarted"' in str(data):
            last.append(shown_text)
            shown_text = ""
        elif name == "piece":
            shown_text += str(data).split('"')[-2]
    assert (last, shown_text) == (["", "a", "b", "cd"], "cd")


def test_arguments_of_each_call_are_separate_and_redacted() -> None:
    pieces: list[DeltaEvent] = [
        TextDeltaEvent("t", 3, 0, "I write."),
        ToolCallDeltaEvent("t", 3, 1, 0, "write", '{"text": "to be '),
        ToolCallDeltaEvent("t", 3, 2, 0, "write", 'sure", "password": "hxrse-battery-9"}'),
        ToolCallDeltaEvent("t", 3, 3, 1, "look", "{}"),
    ]
    words = Words(Replies())
    texts: dict[str, str] = {}
    for event in [*(addition for piece in pieces for addition in words.add(piece)), *words.rest()]:
        texts[str(event.fields["kind"])] = texts.get(str(event.fields["kind"]), "") + str(event.fields["text"])
    assert texts == {
        "text": "I write.",
        "call 1: write": redactor().hide('{"text": "to be sure", "password": "hxrse-battery-9"}'),
        "call 2: look": "{}",
    }
    assert "battery" not in texts["call 1: write"]
