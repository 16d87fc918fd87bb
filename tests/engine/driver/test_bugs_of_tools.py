# ruff: noqa: ARG001 (the functions need their signatures alone)
"""A bug in a tool is logged once, and a context that nothing can fill is refused when the engine is made."""

import logging
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from turnwright import (
    Agent,
    Engine,
    Retry,
    ToolContext,
    ToolError,
    TurnContext,
    agent_tool,
    before_model,
    input_guardrail,
    tool,
)
from turnwright.errors import ConfigError
from turnwright.model import ScriptedModel, asks_for

pytestmark = [pytest.mark.anyio]


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [
        record
        for record in caplog.records
        if record.levelno == logging.WARNING and record.name.startswith("turnwright")
    ]


async def run(function: Callable[..., object]) -> None:
    model = ScriptedModel(asks_for(("look", {"n": 1})), "Done.")
    await Engine(model=model, tools=[tool(name="look")(function)]).run(Agent(name="Clerk"), "go")


@pytest.mark.parametrize(
    "error", [NameError("tabel"), KeyError("sku"), SystemExit(3), ExceptionGroup("two", [OSError()])]
)
@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_an_exception_of_a_tool_is_logged_once(
    error: BaseException, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def at_once(n: int) -> None:
        raise error

    async def soon(n: int) -> None:
        raise error

    await run(at_once if kind == "thread" else soon)
    (record,) = warnings(caplog)
    assert record.getMessage().startswith("tool look: call call00001 of turn ")
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert "test_bugs_of_tools.py" in caplog.text  # the traceback
    assert (record.tool, record.call) == ("look", "call00001")  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [ToolError("no such item"), Retry("another page")])
async def test_deliberate_tool_error_is_not_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def refuses(n: int) -> None:
        raise error from KeyError("sku")

    await run(refuses)
    assert warnings(caplog) == []


async def test_non_json_result_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def returns(n: int) -> object:
        return object()

    await run(returns)
    (record,) = warnings(caplog)
    assert "which is not JSON" in record.getMessage()


async def test_a_bug_in_a_validator_of_an_argument_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def check(value: int) -> int:
        raise KeyError(value)

    async def looks(n: Annotated[int, AfterValidator(check)]) -> None:
        """Look."""

    await run(looks)
    (record,) = warnings(caplog)
    assert "KeyError" in record.getMessage()


class Deps:
    """The dependencies of an app."""


async def asks(ctx: ToolContext[Deps], n: int = 0) -> str:
    """Look."""
    return f"{ctx.deps}{n}"


async def judges(ctx: TurnContext[Deps], _: object) -> None:
    """Judge."""


async def instructs(ctx: TurnContext[Deps]) -> str:
    """Instruct."""
    return ""


def approves(ctx: ToolContext[Deps], arguments: Any) -> bool:  # noqa: ANN401 (JSON)
    """Approve."""
    return False


async def plain(n: int = 0) -> str:
    """Look."""
    return str(n)


CODE: list[dict[str, Any]] = [
    {"tools": [tool(asks)]},
    {"tools": [tool(needs_approval=approves)(plain)]},
    {"hooks": [before_model(judges)]},
    {"guardrails": [input_guardrail(judges)]},
    {"agents": [Agent(name="Clerk", instructions=instructs)]},
    {"agents": [Agent(name="Clerk", hooks=[before_model(judges)])]},
    {"tools": [agent_tool(Agent(name="Clerk", description="Files.", instructions=instructs))]},
]


@pytest.mark.parametrize("code", CODE)
def test_code_needing_dependencies_is_refused_without_matching_deps(code: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"needs dependencies of type Deps, and this engine has none"):
        Engine(model=ScriptedModel("Done."), **code)
    engine_type: Any = Engine
    engine_type(model=ScriptedModel("Done."), deps_type=Deps, **code)


async def any_deps(ctx: ToolContext, n: int = 0) -> str:
    return "any"


async def maybe_deps(ctx: ToolContext[Deps | None], n: int = 0) -> str:
    return "perhaps"


async def no_deps(ctx: ToolContext[None], n: int = 0) -> str:
    return "none"


@pytest.mark.parametrize("function", [any_deps, maybe_deps, no_deps, plain])
def test_code_fitting_any_engine_is_accepted(function: Callable[..., object]) -> None:
    Engine(model=ScriptedModel("Done."), tools=[tool(function)])
