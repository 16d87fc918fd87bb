"""A scripted model: what it streams before its replies."""

import pytest

from turnwright import Agent, ConfigError, Engine
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.model.protocol import Delta, ResponseToolCall, TextDelta, ToolCallDelta
from turnwright.transcript.events import OutputDeltaEvent, ToolCallDeltaEvent

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]


async def streamed(model: ScriptedModel) -> list[Delta]:
    return [item async for item in model.stream(ModelRequest(())) if not isinstance(item, ModelResponse)]


async def test_calls_stream_their_arguments_word_by_word_if_asked() -> None:
    reply = asks_for(
        ("pay", {"to": "Ann Lee", "amount": 5}), ResponseToolCall("look", None, raw='{"pag'), text="I pay."
    )
    deltas = [TextDelta("I"), TextDelta(" pay.")]
    assert await streamed(ScriptedModel(reply)) == deltas
    pieces = ["", '{"to": ', '"Ann ', 'Lee", ', '"amount": ', "5}"]
    calls = [ToolCallDelta(0, "pay", piece) for piece in pieces]
    calls += [ToolCallDelta(1, "look", piece) for piece in ("", '{"pag')]
    assert await streamed(ScriptedModel(reply, stream_calls=True)) == [*deltas, *calls]


async def test_followers_get_the_deltas_of_calls_and_of_typed_answers() -> None:
    model = ScriptedModel(asks_for(("final_result", {"response": [1, 2]})), stream_calls=True)
    agent = Agent(name="Counter", output_type=list[int])
    async with Engine(model=model).stream(agent, "Count.") as events:
        turn_events = [event async for event in events]
    assert [event.partial for event in turn_events if isinstance(event, OutputDeltaEvent)][-1] == [1, 2]
    assert {type(event) for event in turn_events} >= {OutputDeltaEvent}
    model = ScriptedModel(asks_for(("look", {"page": 1})), "Done.", stream_calls=True)
    async with Engine(model=model).stream(Agent(name="Reader"), "Read.") as events:
        parts = [event.arguments_delta async for event in events if isinstance(event, ToolCallDeltaEvent)]
    assert "".join(parts) == '{"page": 1}'


@pytest.mark.parametrize("calls", [("pay", {"a": 1}), (("pay",),), (("pay", "now"),)])
def test_malformed_call_is_refused_at_the_definition(calls: tuple[object, ...]) -> None:
    with pytest.raises(
        ConfigError, match=r"is not a call: write each as a pair of a name and a dict: asks_for\(\(\"read"
    ):
        asks_for(*calls)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("line", [3, None, ["Done."], {"text": "Done."}])
async def test_line_that_is_no_reply_is_refused(line: object) -> None:
    with pytest.raises(ConfigError, match="a line of the script must be a text, a ModelResponse such as asks_for"):
        ScriptedModel("Done.", line)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    turn = await Engine(model=ScriptedModel(lambda _: line)).run(Agent(name="Reader"), "Read.")  # type: ignore[arg-type,return-value]  # pyright: ignore[reportArgumentType]
    assert str(turn.error).startswith("ConfigError: a line of the script must be a text")
