"""The chunks of any turn are a valid stream; live, replayed and cut at a pause they make the same message."""

from collections.abc import Sequence
from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st
from tests.protocols.ag_ui.test_properties import Told, pausing, played, told

from turnwright import Usage
from turnwright.model import ModelResponse, ResponseToolCall
from turnwright.transcript.events import TurnEvent, TurnPausedEvent
from turnwright_protocols.ui import ChunkEncoder
from turnwright_protocols.ui.messages import closed_in, turn_messages
from turnwright_states.inputs import Finish
from turnwright_testing import Scenario

from .chat_page import ChatPage, Json


def message_of(turn: Told, events: Sequence[TurnEvent], *, resets: bool = True) -> Json:
    """Return the message of a page that received a turn's events in one stream."""
    encoder, page = ChunkEncoder(turn.turn, resets=resets, closed_ids=closed_in(turn.journal)), ChatPage()
    chunks = [*encoder.start(turn.turn), *(chunk for event in events for chunk in encoder.encode(event))]
    if chunks[-1]["type"] not in ("finish", "abort", "error"):
        chunks += encoder.close("left")
    return page.read(chunks).last


def comparable(parts: Sequence[Json]) -> list[Json]:
    """Return parts as far as two pages must agree: calls that were streamed, and then withdrawn, are left out."""
    public_parts = [{name: part[name] for name in part if name not in ("raw", "providerExecuted")} for part in parts]
    return [part for part in public_parts if part.get("errorText") != "the call was withdrawn"]


#: A reply that was cut off in its second call, of which the stream had more than the reply has.
CUT_OFF: Final = Scenario(
    script=(
        ModelResponse(
            text="Done.",
            calls=(ResponseToolCall("look", {"path": "a"}), ResponseToolCall("look", None)),
            finish=Finish.LENGTH,
            usage=Usage(input_tokens=1, output_tokens=1),
        ),
    )
)


@given(played)
@example(CUT_OFF)
def test_live_and_replayed_streams_make_the_same_message(scenario: Scenario) -> None:
    for turn in told(scenario):
        live, replayed = [message_of(turn, events)["parts"] for events in (turn.live, turn.journal)]
        texts = [[part for part in parts if part["type"] == "text"] for parts in (live, replayed)]
        assert texts[0] == texts[1]
        calls = [[part for part in comparable(parts) if "toolCallId" in part] for parts in (live, replayed)]
        assert calls[0] == calls[1]


@given(played)
def test_stream_without_resets_is_valid_and_has_the_answer(scenario: Scenario) -> None:
    for turn in told(scenario):
        live, replayed = [message_of(turn, events, resets=False) for events in (turn.live, turn.journal)]
        all_text = "".join(part["text"] for part in live["parts"] if part["type"] == "text")
        assert all(part["text"] in all_text for part in replayed["parts"] if part["type"] == "text")


@given(pausing, st.data())
def test_streams_of_each_segment_make_the_reloaded_message(scenario: Scenario, data: st.DataObject) -> None:
    for turn in told(scenario):
        pauses = [place for place, event in enumerate(turn.journal, 1) if isinstance(event, TurnPausedEvent)]
        cut = data.draw(st.sampled_from(pauses)) if pauses else 0
        page, first = ChatPage(), ChunkEncoder(turn.turn)
        if cut:
            chunks = [*first.start(turn.turn), *(c for event in turn.journal[:cut] for c in first.encode(event))]
            for number in range(1, len(chunks)):
                if chunks[number - 1]["type"] == "finish":  # another pause came before: another stream began
                    chunks[number - 1] = {"type": "message-metadata"}
            page.read(chunks)
        second = ChunkEncoder(turn.turn, closed_ids=closed_in(turn.journal))
        for event in turn.journal[:cut]:
            second.absorb(event)
        rest = [*second.start(turn.turn), *(c for event in turn.journal[cut:] for c in second.encode(event))]
        if rest[-1]["type"] not in ("finish", "abort", "error"):
            rest += second.close("left")
        page.read(rest)
        user, reloaded = turn_messages(turn.turn, turn.journal)
        assert user["role"] == "user"
        assert isinstance(reloaded["parts"], list)
        parts = [part for part in reloaded["parts"] if isinstance(part, dict)]
        texts, page_texts = [
            [part["text"] for part in all_parts if part["type"] in ("text", "reasoning")]
            for all_parts in (parts, page.last["parts"])
        ]
        assert texts == page_texts
