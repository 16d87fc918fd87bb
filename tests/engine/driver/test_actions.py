"""The machine's actions: what each hands back to be fed, with the seconds of driving until then."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, pairwise
from typing import cast

import anyio
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine, StoreError, Tool, ToolContext, tool
from turnwright.driver.actions import perform
from turnwright.driver.segment import Segment
from turnwright.model.protocol import (
    ModelError,
    ModelRequest,
    ModelResponse,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
)
from turnwright.model.retry import Backoff
from turnwright.model.scripted import asks_for
from turnwright.store import MemoryStore, Store
from turnwright.tools.errors import ToolError
from turnwright_states import Cause, EndReason, Halt, Limits, Outcome, Usage
from turnwright_states import facts as f
from turnwright_states.limits import MAX_CALLS_PER_REPLY
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Helper")
USED = Usage(input_tokens=7)
ONE_STEP = Limits(steps=1, conclude_seconds=20, max_retries=1)
#: What a model streams: pieces, then a reply, an error, or None if it says nothing more and continues.
Line = Sequence[TextDelta | ModelResponse | ModelError | None]


@tool
def look() -> str:
    return "seen"


@tool
def rest() -> str:
    return "rested"


def error(cause: Cause) -> ModelError:
    return ModelError("no", cause=cause, partial=ModelResponse(usage=USED))


class Streams:
    """A model that streams line after line."""

    name = "streams"

    def __init__(self, *lines: Line) -> None:
        self._lines = list(lines)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:  # noqa: ARG002 (given)
        """See `Model.stream`."""
        for item in self._lines.pop(0):
            if item is None:
                await anyio.sleep_forever()
            elif isinstance(item, ModelError):
                raise item
            else:
                yield item


def ticking() -> float:
    """A clock that goes on a second whenever it is read."""
    return float(next(_SECONDS))


_SECONDS = count(100)


def engine(*lines: Line, store: Store | None = None, limits: Limits | None = None) -> Engine:
    return Engine(
        model=Streams(*lines),
        tools=[look],
        store=store or MemoryStore(),
        limits=limits,
        clock=ticking,
        backoff=Backoff(initial=0),
    )


CALLS = [asks_for(("look", {}))]
BUSY = [error(Cause.OVERLOADED)]
EMPTY = [error(Cause.EMPTY_REPLY)]
FILTERED = [error(Cause.CONTENT_FILTER)]
DONE = [ModelResponse(text="Done.")]
SO_FAR = TextDelta("So far")


@pytest.mark.parametrize(
    ("lines", "limits", "kinds"),
    [
        ([DONE], None, "model_replied"),
        ([DONE], Limits(steps=0), "model_replied"),
        ([BUSY, DONE], None, "attempt_failed model_replied"),
        ([FILTERED], None, "model_replied"),
        ([CALLS, DONE], ONE_STEP, "model_replied call_settled concluded"),
        ([CALLS, BUSY, DONE], ONE_STEP, "model_replied call_settled attempt_failed concluded"),
        ([CALLS, EMPTY, DONE], ONE_STEP, "model_replied call_settled concluded concluded"),
        ([CALLS, [None], DONE], ONE_STEP, "model_replied call_settled attempt_failed concluded"),
        ([CALLS, [SO_FAR, None]], ONE_STEP, "model_replied call_settled concluded"),
    ],
)
async def test_fact_of_each_action_has_the_time_of_completion(
    lines: Sequence[Line], limits: Limits | None, kinds: str
) -> None:
    store = MemoryStore()
    turn = await engine(*lines, store=store, limits=limits).run(AGENT, "Go.")
    facts = [fact for _, fact in await store.facts(turn.id)]
    assert [fact.kind for before, fact in pairwise(facts) if fact.elapsed > before.elapsed] == kinds.split()


@pytest.mark.parametrize(
    ("lines", "limits", "kind"),
    [
        ([FILTERED], None, f.ModelReplied),
        ([BUSY, DONE], None, f.AttemptFailed),
        ([CALLS, BUSY, DONE], ONE_STEP, f.AttemptFailed),
        ([CALLS, EMPTY, DONE], ONE_STEP, f.Concluded),
    ],
)
async def test_usage_of_a_failed_call_is_journaled(
    lines: Sequence[Line], limits: Limits | None, kind: type[f.ModelReplied | f.AttemptFailed | f.Concluded]
) -> None:
    store = MemoryStore()
    turn = await engine(*lines, store=store, limits=limits).run(AGENT, "Go.")
    usages = [fact.usage for _, fact in await store.facts(turn.id) if isinstance(fact, kind)]
    assert usages[0] == USED


async def test_text_of_a_filtered_reply_is_kept() -> None:
    turn = await engine([SO_FAR, *FILTERED]).run(AGENT, "Go.")
    assert (turn.reason, turn.text) == (EndReason.CONTENT_FILTER, "So far")


async def test_stream_ending_without_a_reply_is_a_failed_attempt() -> None:
    store = MemoryStore()
    turn = await engine([SO_FAR], DONE, store=store).run(AGENT, "Go.")
    (failed,) = [fact for _, fact in await store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    assert (failed.cause, failed.message) == (
        Cause.INTERRUPTED,
        "model streams: the stream ended without a reply",
    )
    assert turn.text == "Done."


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("hello", "`stream` yielded a str: yield deltas, and last a ModelResponse"),
        (ModelResponse(text=cast("str", None)), "ModelResponse.text must be a str, not NoneType"),
        (
            ModelResponse(calls=cast("tuple[ResponseToolCall]", ({"name": "look"},))),
            "ModelResponse.calls must be of ResponseToolCall, not dict",
        ),
        (
            ModelResponse(calls=(ResponseToolCall("look", cast("dict[str, JsonValue]", "{}")),)),
            "ResponseToolCall.arguments must be a dict (parse the model's JSON text) or None, not str",
        ),
        (
            ModelResponse(calls=(ResponseToolCall("look", {}, cast("str", None)),)),
            "ResponseToolCall.raw must be a str, not NoneType",
        ),
        (TextDelta(cast("str", None)), "a TextDelta must have a str, not NoneType"),
        (cast("TextDelta", ToolCallDelta(0, "look", cast("str", {}))), "a ToolCallDelta must have a str, not dict"),
    ],
)
async def test_model_yielding_wrong_objects_is_told_the_right_objects(
    item: TextDelta | ModelResponse, reason: str
) -> None:
    async with Engine(model=Streams([item])) as engine:
        turn = await engine.run(AGENT, "hi")
    assert (turn.reason, turn.error) == (EndReason.ENGINE_ERROR, f"TypeError: model streams: {reason}")


async def test_call_during_a_process_death_is_a_failed_attempt() -> None:
    memory = MemoryStore()
    with suppress(StoreError):
        await engine(DONE, store=FaultyStore(memory, at=1)).run(AGENT, "Go.")
    await memory.aclose()
    (row,) = await memory.turns()
    await engine(DONE, store=memory).resume(row.id)
    (failed,) = [fact for _, fact in await memory.facts(row.id) if isinstance(fact, f.AttemptFailed)]
    assert (failed.cause, failed.message) == (Cause.CRASH, "the process died during this call")
    assert failed.elapsed


@pytest.mark.parametrize("more", [0, 1])
async def test_reply_with_too_many_calls_is_refused_and_paid(more: int) -> None:
    store = MemoryStore()
    reply = ModelResponse(calls=(ResponseToolCall("look", {}),) * (MAX_CALLS_PER_REPLY + more), usage=USED)
    turn = await engine([reply], DONE, store=store).run(AGENT, "Go.")
    failed = [(fact.message, fact.usage) for _, fact in await store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    message = "model streams: the reply asks for more than 512 calls. Ask for a shorter reply."
    assert failed == [(message, USED)] * more


@pytest.mark.parametrize(("tools", "names"), [((), "none"), ((look, rest), "look, rest")])
async def test_result_of_an_unknown_tool_lists_tools_and_cuts_a_long_name(tools: Sequence[Tool], names: str) -> None:
    store = MemoryStore()
    model = Streams([asks_for(("fly" * 100, {}))], DONE)
    turn = await Engine(model=model, tools=tools, store=store).run(AGENT, "Go.")
    (settled,) = [fact for _, fact in await store.facts(turn.id) if isinstance(fact, f.CallSettled)]
    before, _, listed_names = settled.result.rpartition("; the tools are: ")
    assert listed_names == names
    assert before.startswith("there is no tool 'flyfly")
    assert len(before) < 150


async def test_tool_with_custom_code_cannot_change_journaled_arguments() -> None:
    class Own(Tool):
        def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
            for mapping in (arguments, arguments["place"]):
                with suppress(TypeError):
                    mapping["n"] = 99  # type: ignore[index, call-overload]  # neither may be changed
            raise ToolError("not like this")

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            raise AssertionError(values, context)

    own = Own(name="own", description="Its own.", parameters={"type": "object"})
    model = Streams([asks_for(("own", {"place": {"n": 1}}))], DONE)
    engine = Engine(model=model, tools=[own])
    turn = await engine.run(AGENT, "Go.")
    (reply, _) = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.ModelReplied)]
    assert reply.calls[0].arguments == {"place": {"n": 1}}


def test_halted_turn_has_no_action_to_perform() -> None:
    with pytest.raises(TypeError, match=r"^Halt is nothing to perform$"):
        perform(cast("Segment", None), Halt(Outcome.FINISHED, EndReason.ANSWERED))
