"""A function of the app may be async or not, wherever one is taken. An error names it."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from turnwright import Agent, Engine, Message, ToolContext, TurnInfo, TurnResult, tool
from turnwright.driver.dependencies import FinishedCall
from turnwright.errors import CannotRunError, ConfigError
from turnwright.model import ScriptedModel, asks_for
from turnwright_states import EndReason, Outcome

pytestmark = [pytest.mark.anyio]

AGENT = Agent(name="Clerk", steps=4)


def model() -> ScriptedModel:
    return ScriptedModel(asks_for(("look", {"n": 1})), "Done.")


@tool
async def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


def shorten(messages: tuple[Message, ...]) -> Sequence[Message]:
    return messages[-1:]


async def shorten_soon(messages: tuple[Message, ...]) -> Sequence[Message]:
    return messages[-1:]


def sum_up(batch: tuple[FinishedCall, ...]) -> str:
    return f"{len(batch)} calls"


async def sum_up_soon(batch: tuple[FinishedCall, ...]) -> str:
    return f"{len(batch)} calls"


class SumUp:
    """An object that is called."""

    def __call__(self, batch: tuple[FinishedCall, ...]) -> str:
        return f"{len(batch)} calls"


@pytest.mark.parametrize("function", [shorten, shorten_soon])
async def test_a_history_processor_may_be_plain_or_async(function: Any) -> None:  # noqa: ANN401 (either kind)
    scripted = model()
    turn = await Engine(model=scripted, tools=[look], history_processor=function).run(AGENT, "go")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert [len(request.messages) for request in scripted.requests][:1] == [1]


@pytest.mark.parametrize("function", [sum_up, sum_up_soon, SumUp(), lambda batch: f"{len(batch)} calls"])
async def test_a_synthesis_may_be_plain_or_async(function: Any) -> None:  # noqa: ANN401 (either kind)
    turn = await Engine(model=model(), tools=[look], synthesize=function).run(AGENT, "go")
    assert (turn.outcome, turn.text) == (Outcome.SYNTHESIS_DONE, "1 calls")


@pytest.mark.parametrize("option", ["history_processor", "synthesize"])
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_raising_function_is_named_in_the_error(option: str, kind: str) -> None:
    def breaks(_: object) -> Any:  # noqa: ANN401 (it never returns)
        raise KeyError("sku")

    async def breaks_soon(_: object) -> Any:  # noqa: ANN401 (it never returns)
        raise KeyError("sku")

    function = breaks if kind == "plain" else breaks_soon
    code: Any = {option: function}
    turn = await Engine(model=model(), tools=[look], **code).run(AGENT, "go")
    assert turn.reason is EndReason.ENGINE_ERROR
    assert turn.error == f"{option} {function.__name__!r} raised KeyError: 'sku'"


@pytest.mark.parametrize(("option", "wrong"), [("history_processor", "text"), ("synthesize", 3)])
async def test_a_result_of_another_type_is_named_in_the_error(option: str, wrong: object) -> None:
    code: Any = {option: lambda _: wrong}
    turn = await Engine(model=model(), tools=[look], **code).run(AGENT, "go")
    assert turn.reason is EndReason.ENGINE_ERROR
    assert turn.error.startswith(f"{option} returned {wrong!r}: return ")


closed: list[str] = []


def make(turn: TurnInfo) -> str:
    return f"deps of {turn.agent}"


async def make_soon(turn: TurnInfo) -> str:
    return f"deps of {turn.agent}"


def yields(turn: TurnInfo) -> Iterator[str]:
    yield f"deps of {turn.agent}"
    closed.append("plain")


async def yields_soon(turn: TurnInfo) -> AsyncIterator[str]:
    yield f"deps of {turn.agent}"
    closed.append("async")


class Makes:
    """An object that is called."""

    def __call__(self, turn: TurnInfo) -> str:
        return f"deps of {turn.agent}"


@tool(name="look")
async def look_with(ctx: ToolContext[str], n: int) -> str:
    """Look."""
    return f"{ctx.deps} {n}"


def results(turn: TurnResult) -> list[str]:
    return [part.text for message in turn.messages for part in message.parts if part.type == "tool_result"]


@pytest.mark.parametrize(
    ("factory", "ends"),
    [
        (make, []),
        (make_soon, []),
        (Makes(), []),
        (yields, ["plain"]),
        (yields_soon, ["async"]),
        (lambda _: "deps of Clerk", []),
    ],
)
async def test_dependencies_are_made_by_plain_and_async_functions(factory: Any, ends: list[str]) -> None:  # noqa: ANN401
    closed.clear()
    turn = await Engine(model=model(), tools=[look_with], deps=factory).run(AGENT, "go")
    assert (results(turn), closed) == (["deps of Clerk 1"], ends)


async def test_a_plain_generator_without_a_yield_is_named() -> None:
    def empty(turn: TurnInfo) -> Iterator[str]:
        yield from turn.agent[:0]

    with pytest.raises(CannotRunError, match="empty ended without a `yield`"):
        await Engine(model=model(), tools=[look_with], deps=empty).run(AGENT, "go")


async def test_raising_plain_factory_is_named() -> None:
    def breaks(turn: TurnInfo) -> str:
        raise KeyError(turn.agent)

    factory: Any = breaks
    with pytest.raises(CannotRunError, match=r"deps: .*breaks raised KeyError: 'Clerk'"):
        await Engine(model=model(), tools=[look_with], deps=factory).run(AGENT, "go")


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_loop_key_may_be_plain_or_async(kind: str) -> None:
    """Calls with other arguments and one key are one round again and again."""

    def same(_: object) -> str:
        return "same"

    async def same_soon(_: object) -> str:
        return "same"

    keyed = tool(name="look", loop_key=same if kind == "plain" else same_soon)(lambda_of())
    lines = [asks_for(("look", {"n": n})) for n in range(5)]
    turn = await Engine(model=ScriptedModel(*lines, "Done."), tools=[keyed]).run(Agent(name="Clerk"), "go")
    assert (turn.outcome, turn.steps) == (Outcome.DOOM_LOOP, 3)


def lambda_of() -> Callable[..., object]:
    async def look(n: int) -> str:
        del n
        return "seen"

    return look


async def test_raising_async_loop_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(_: object) -> str:
        raise KeyError("sku")

    keyed = tool(name="look", loop_key=breaks)(lambda_of())
    turn = await Engine(model=model(), tools=[keyed]).run(AGENT, "go")
    assert turn.outcome is Outcome.FINISHED
    assert "loop_key of tool look raised; its arguments are compared instead" in caplog.text


async def soon(*_: object) -> Any:  # noqa: ANN401 (any function)
    """Return nothing."""


@pytest.mark.parametrize("code", [{"on_event": [soon]}, {"models": soon}, {"now": soon}, {"clock": soon}])
def test_async_function_without_an_awaiter_is_refused(code: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a plain function"):
        Engine(model=model(), **code)
