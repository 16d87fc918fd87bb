"""Tools: their declaration, their questions, and the execution of one call."""

import asyncio
import inspect
import logging
import re
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, assert_type

import anyio
import pytest
from pydantic import JsonValue

from turnwright.context import TurnContext
from turnwright.errors import ConfigError, TurnwrightError
from turnwright.message import ToolSpec
from turnwright.tools import (
    Ask,
    GivenAnswer,
    Tool,
    ToolContext,
    ToolFailedError,
    ToolInputError,
    ToolTimeoutError,
    tool,
)
from turnwright_states import Decision, InterruptKind

CONTEXT = ToolContext(turn_id="t1", call_id="c1")
GRANTED = ToolContext(turn_id="t1", call_id="c1", answers=(GivenAnswer(Decision.APPROVE),))


def run(tool: Tool, arguments: Mapping[str, JsonValue] | None = None, context: ToolContext = CONTEXT) -> str:
    return anyio.run(tool.run, arguments or {}, context).text


@tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first
    """
    return a + b


@tool(name="shout-2", description="Say it louder.", timeout=5, ignore_in_loop_detection=True)
def shout(text: str) -> str:
    """Not this."""
    return text.upper()


def test_a_bare_decorator_takes_name_and_description_from_the_function() -> None:
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.spec == ToolSpec(name="add", description="Add two numbers.", parameters=add.parameters)
    assert (add.timeout, add.idempotent, add.on_crash, add.ignore_in_loop_detection) == (300, False, "unknown", False)
    assert repr(add) == "<FunctionTool add>"


def test_keywords_win_over_the_function() -> None:
    assert (shout.name, shout.description) == ("shout-2", "Say it louder.")
    assert (shout.timeout, shout.ignore_in_loop_detection) == (5.0, True)


def test_a_decorated_function_is_called_and_typed_as_before() -> None:
    shouted = shout("ab")
    assert_type(shouted, str)
    assert shouted == "AB"
    total = anyio.run(add, 1, 2)
    assert_type(total, int)
    assert total == 3
    assert shout.__doc__ == "Not this."
    assert inspect.signature(add).return_annotation is int


def test_tools_of_any_function_are_tools() -> None:
    tools: list[Tool] = [add, shout]
    assert [tool.name for tool in tools] == ["add", "shout-2"]


def test_attributes_of_a_function_do_not_become_the_tools() -> None:
    def act() -> None: ...

    act.timeout = "never"  # type: ignore[attr-defined]
    assert tool(act).timeout == 300


def test_a_run_checks_the_arguments_and_gives_text() -> None:
    assert run(add, {"a": "2"}) == "3"
    assert run(shout, {"text": "ab"}) == "AB"
    with pytest.raises(ToolInputError, match=r"- a: is missing\n"):
        run(add, {})


def test_tool_without_a_return_value_reports_no_output() -> None:
    @tool
    def act() -> None: ...

    assert run(act) == "(no output)"


def test_context_is_given_to_the_annotated_parameter() -> None:
    @tool
    async def act(here: ToolContext, n: int) -> str:
        return f"{here.idempotency_key} {here.attempt} {n}"

    context = ToolContext(turn_id="t9", call_id="c7", attempt=2)
    assert run(act, {"n": 1}, context) == "t9:c7 2 1"


def test_context_annotation_may_name_dependencies_or_the_turn_context() -> None:
    @tool
    def act(
        ctx: ToolContext[str], again: Annotated[ToolContext[str], "the same"], turn: TurnContext[str] | None, n: int
    ) -> str:
        assert again is ctx is turn
        return f"{ctx.deps} {n}"

    context = ToolContext(turn_id="t9", call_id="c7", deps="db")
    assert anyio.run(act.run, {"n": 1}, context).text == "db 1"
    assert act.parameters["required"] == ["n"]


def test_idempotency_key_is_the_same_at_every_attempt() -> None:
    assert {ToolContext(turn_id="t1", call_id="c1", attempt=number).idempotency_key for number in (1, 2, 3)} == {
        "t1:c1"
    }


def test_synchronous_function_runs_in_a_thread() -> None:
    @tool
    def where() -> str:
        return threading.current_thread().name

    assert run(where) != threading.current_thread().name


def test_returned_awaitable_is_awaited() -> None:
    @tool
    def act() -> Coroutine[Any, Any, int]:
        return add(1)

    assert run(act) == "2"


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError


class Outcome(BaseException):
    """As some libraries have them, so that nobody catches it by accident."""


def raises(error: BaseException) -> Tool:
    @tool
    async def act() -> None:
        raise error

    return act


def raises_in_a_thread(error: BaseException) -> Tool:
    @tool
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such color"), "ValueError: no such color"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError(), "RuntimeError"),
        (TimeoutError("the tool's own"), "TimeoutError: the tool's own"),
        (SystemExit(3), "SystemExit: 3"),
        (UnprintableError(), "UnprintableError: (the text of UnprintableError cannot be shown)"),
        (
            ExceptionGroup("group", [ValueError("a"), ExceptionGroup("g", [KeyError("b")])]),
            "ValueError: a; KeyError: 'b'",
        ),
        (ValueError("a\udcffb"), "ValueError: a?b"),
        (Outcome("skipped"), "Outcome: skipped"),
        (BaseExceptionGroup("of a task group", [SystemExit(3), ValueError("a")]), "SystemExit: 3; ValueError: a"),
    ],
)
@pytest.mark.parametrize("make_tool", [raises, raises_in_a_thread])
def test_exception_of_a_tool_becomes_text_with_the_error_as_cause(
    make_tool: Callable[[BaseException], Tool], error: BaseException, text: str
) -> None:
    with pytest.raises(ToolFailedError) as caught:
        run(make_tool(error))
    assert str(caught.value) == text
    assert caught.value.__cause__ is error


def test_a_long_error_is_shortened() -> None:
    with pytest.raises(ToolFailedError) as caught:
        run(raises(ValueError("x" * 100_000)))
    assert len(str(caught.value)) == 2000


def test_tool_may_choose_the_text_of_the_error() -> None:
    with pytest.raises(ToolFailedError, match=r"^the printer is out of paper$"):
        run(raises(ToolFailedError("the printer is out of paper")))
    with pytest.raises(ToolInputError, match=r"^page: there are only 3$"):
        run(raises(ToolInputError("page: there are only 3")))


@pytest.mark.parametrize("make_tool", [raises, raises_in_a_thread])
def test_stop_iteration_of_a_tool_becomes_text(make_tool: Callable[[BaseException], Tool]) -> None:
    with pytest.raises(ToolFailedError, match=r"^GeneratorExit$"):
        run(make_tool(GeneratorExit()))


@pytest.mark.parametrize("make_tool", [raises, raises_in_a_thread])
@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        BaseExceptionGroup("of a task group", [ValueError("a"), KeyboardInterrupt()]),
        asyncio.CancelledError(),
        BaseExceptionGroup("of a task group", [ValueError("a"), asyncio.CancelledError()]),
    ],
    ids=repr,
)
def test_ctrl_c_and_cancellation_pass_through(make_tool: Callable[[BaseException], Tool], error: BaseException) -> None:
    """Whether somebody asked for a cancellation is known to who runs the call: see `test_batch.py`."""

    async def scene() -> None:
        with pytest.raises(type(error)) as caught:
            await make_tool(error).run({}, CONTEXT)
        assert caught.value is error

    anyio.run(scene)


def test_the_errors_of_a_call_are_of_this_package() -> None:
    assert all(issubclass(error, TurnwrightError) for error in (ToolInputError, ToolTimeoutError, ToolFailedError))


def test_async_tool_is_stopped_at_the_timeout() -> None:
    stopped = []

    @tool(timeout=0.01)
    async def wait() -> None:
        try:
            await anyio.sleep(60)
        finally:
            stopped.append(True)

    with pytest.raises(ToolTimeoutError, match=r"wait did not finish within 0\.01 s"):
        run(wait)
    assert stopped == [True]


def test_thread_is_left_behind_at_the_timeout() -> None:
    end = threading.Event()

    @tool(timeout=0.05)
    def wait() -> None:
        end.wait(60)

    async def scene() -> float:
        begin = time.monotonic()
        with pytest.raises(ToolTimeoutError, match=r"wait did not finish within 0\.05 s"):
            await wait.run({}, CONTEXT)
        duration = time.monotonic() - begin
        end.set()
        return duration

    assert anyio.run(scene) < 10


def test_cancellation_passes_through_and_is_no_time_out() -> None:
    @tool(timeout=60)
    async def wait() -> None:
        await anyio.sleep(60)

    async def scene() -> bool:
        with anyio.move_on_after(0.01) as scope:
            await wait.run({}, CONTEXT)
        return scope.cancelled_caught

    assert anyio.run(scene)


def test_tool_asks_no_person_by_default() -> None:
    assert add.asks({"a": 1}, CONTEXT) is None


def test_approval_is_asked_until_granted() -> None:
    @tool(needs_approval=True, expires_in=60)
    def remove(path: str) -> None: ...

    assert remove.asks({"path": "a"}, CONTEXT) == Ask(kind=InterruptKind.APPROVAL, expires_in=60.0)
    assert remove.asks({"path": "a"}, GRANTED) is None


def test_approval_is_not_asked_for_unfit_arguments() -> None:
    @tool(needs_approval=True)
    def remove(path: str) -> None: ...

    with pytest.raises(ToolInputError, match="- path: is missing"):
        remove.asks({}, CONTEXT)


def test_a_loop_key_stands_for_the_arguments() -> None:
    @tool(loop_key=lambda arguments: f"{arguments['path']}@{arguments['line']}")
    def look(path: str, line: int = 1) -> None: ...

    assert look.loop_key({"path": "a"}) == "a@1"
    assert look.loop_key({"path": "a", "line": "2"}) == "a@2"
    assert look.loop_key({}) is None
    assert add.loop_key({"a": 1}) is None


def test_raising_loop_key_counts_as_none(caplog: pytest.LogCaptureFixture) -> None:
    @tool(loop_key=lambda arguments: str(arguments["typo"]))
    def look(path: str) -> None: ...

    with caplog.at_level(logging.WARNING):
        assert look.loop_key({"path": "a"}) is None
    assert caplog.messages == ["loop_key of tool look raised; its arguments are compared instead"]


def test_idempotent_tool_is_rerun_after_a_crash_by_default() -> None:
    def act() -> None: ...

    assert tool(idempotent=True)(act).on_crash == "rerun"
    assert tool(idempotent=True, on_crash="unknown")(act).on_crash == "unknown"
    assert tool(on_crash="ask")(act).on_crash == "ask"


def test_read_only_tool_is_rerun_after_a_crash_by_default() -> None:
    def act() -> None: ...

    assert tool(read_only=True)(act).on_crash == "rerun"
    assert tool(read_only=True, on_crash="rerun")(act).on_crash == "rerun"
    assert tool(read_only=True, on_crash="unknown")(act).on_crash == "unknown"
    assert tool(read_only=True, on_crash="ask")(act).on_crash == "ask"
    assert tool(read_only=False)(act).on_crash == "unknown"
    assert tool(read_only=False, idempotent=True)(act).on_crash == "rerun"


def do() -> None: ...
def many() -> Any:  # noqa: ANN401 (what it gives does not matter)
    yield 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tool(on_crash="rerun")(do), "tool do: on_crash='rerun' may run a call twice"),
        (lambda: tool(on_crash="again")(do), "tool do: on_crash must be 'rerun', 'unknown' or 'ask', not 'again'"),  # type: ignore[call-overload]
        (lambda: tool(name="read file")(do), "tool 'read file': a name must have 1 to 64 of"),
        (lambda: tool(name="")(do), "tool '': a name must have"),
        (lambda: tool(name="x" * 65)(do), "a name must have 1 to 64 of"),
        (lambda: tool(name="line\n")(do), "a name must have 1 to 64 of"),
        (lambda: tool(lambda: None), "tool '<lambda>': a name must have"),
        (lambda: tool(timeout=0)(do), "tool do: timeout must be a number of seconds above 0, or None, not 0"),
        (lambda: tool(timeout=True)(do), "tool do: timeout must be a number of seconds above 0, or None, not True"),
        (lambda: tool(expires_in=float("nan"))(do), "tool do: expires_in must be a number of seconds above 0"),
        (
            lambda: tool(needs_approval="yes")(do),  # type: ignore[call-overload]
            "tool do: needs_approval must be True, False or a function, not 'yes'",
        ),
        (lambda: tool(name=5)(do), "tool 5: a name must have"),  # type: ignore[call-overload]
        (lambda: tool(description=5)(do), "tool do: description must be text, not 5"),  # type: ignore[call-overload]
        (lambda: tool(read_only="no")(do), "tool do: read_only must be True, False or None, not 'no'"),  # type: ignore[call-overload]
        (lambda: tool(idempotent="no")(do), "tool do: idempotent must be True or False, not 'no'"),  # type: ignore[call-overload]
        (lambda: tool(sequential=1)(do), "tool do: sequential must be True or False, not 1"),  # type: ignore[call-overload]
        (lambda: tool(return_direct=None)(do), "tool do: return_direct must be True or False, not None"),  # type: ignore[call-overload]
        (lambda: tool(loop_key="path")(do), "tool do: loop_key must be a function, not 'path'"),  # type: ignore[call-overload]
        (lambda: tool(many), "tool many: a generator cannot be a tool"),
        (lambda: tool(Echo), "@tool takes a function or a bound method, not <class"),
    ],
)
def test_unusable_tool_is_refused_at_the_definition(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert message in str(caught.value)


def test_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="timout"):
        tool(timout=3)(do)  # type: ignore[call-overload]


class Echo(Tool):
    """A tool that is not a function."""

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        return {"values": dict(values), "call": context.call_id}


def test_a_tool_need_not_be_a_function() -> None:
    echo = Echo(name="echo", description="", parameters={"type": "object"}, needs_approval=True)
    assert run(echo, {"a": [1]}) == '{"values":{"a":[1]},"call":"c1"}'
    assert echo.asks({}, CONTEXT) == Ask(kind=InterruptKind.APPROVAL)


@pytest.mark.parametrize("ref", ["https://example.com/a.json", "#/$defs/a"])
def test_parameters_with_a_dangling_reference_are_refused(ref: str) -> None:
    parameters: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"$ref": ref}}}

    with pytest.raises(ConfigError, match=rf"^tool look: parameters: properties\.a\.\$ref: '{re.escape(ref)}' "):
        Echo(name="look", description="Look.", parameters=parameters)


def test_parameters_with_an_invalid_keyword_are_refused() -> None:
    parameters: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "str"}}}
    with pytest.raises(ConfigError, match=r"^tool look: parameters: properties\.a\.type: 'str' is not a type"):
        Echo(name="look", description="Look.", parameters=parameters)
