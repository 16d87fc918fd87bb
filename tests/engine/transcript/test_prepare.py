"""A hook that prepares a request may call a model of its own, and meets that model's errors."""

from collections.abc import Sequence

import pytest

from turnwright import Agent, Engine, Limits, Message, tool
from turnwright.message import ToolResultPart
from turnwright.model import Backoff, ModelError, ScriptedModel, asks_for
from turnwright.tools import ToolContext
from turnwright_states import CallStatus, Cause, EndReason, Outcome
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
AT_ONCE = Backoff(initial=0.0)


class Prepares:
    """Raises these errors, one per call, and then sends what it is given."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def __call__(self, messages: tuple[Message, ...]) -> Sequence[Message]:
        if self.errors:
            raise self.errors.pop(0)
        return messages


async def test_transient_model_error_is_a_failed_attempt() -> None:
    prepare = Prepares(ModelError("busy", cause=Cause.OVERLOADED))
    model = ScriptedModel("Done.")
    engine = Engine(model=model, history_processor=prepare, backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.text, len(model.requests)) == (Outcome.FINISHED, "Done.", 1)
    failed = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    assert [(fact.cause, fact.retry) for fact in failed] == [(Cause.OVERLOADED, True)]


@pytest.mark.parametrize("cause", [Cause.OVERLOADED, Cause.AUTHENTICATION])
async def test_final_model_error_ends_the_turn(cause: Cause) -> None:
    engine = Engine(
        model=ScriptedModel("Done."),
        history_processor=Prepares(ModelError("no", cause=cause)),
        limits=Limits(max_retries=0),
    )
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.MODEL_ERROR)


async def test_unexpected_error_ends_the_turn_as_an_engine_error() -> None:
    turn = await Engine(model=ScriptedModel("Done."), history_processor=Prepares(LookupError("gone"))).run(AGENT, "hi")
    assert (turn.reason, turn.error) == (
        EndReason.ENGINE_ERROR,
        "history_processor 'Prepares' raised LookupError: gone",
    )


@pytest.mark.parametrize("asks_first", [True, False])
async def test_asking_without_a_pause_left_settles_calls_as_unknown_or_refused(
    asks_first: bool,
) -> None:
    """As docs/tools.md says of `ask`."""

    @tool(needs_approval=asks_first)
    async def pay(context: ToolContext) -> str:
        """Pay."""
        return context.ask("Which account?")

    model = ScriptedModel(asks_for(("pay", {})), "Done.")
    turn = await Engine(model=model, tools=[pay], limits=Limits(max_pauses=0)).run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    parts = [part for message in turn.messages for part in message.parts]
    (status,) = [part.status for part in parts if isinstance(part, ToolResultPart)]
    assert status is (CallStatus.REFUSED if asks_first else CallStatus.UNKNOWN)
