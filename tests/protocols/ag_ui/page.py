"""The example of docs/ag-ui.md, as the page has it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from ag_ui.core import BaseEvent, Event, RunAgentInput
from pydantic import TypeAdapter

from turnwright import Agent, Engine

PAGE: Final = (Path(__file__).parents[3] / "docs" / "ag-ui.md").read_text("utf-8")
_EVENT: Final[TypeAdapter[BaseEvent]] = TypeAdapter(Event)

_names: dict[str, Any] = {}
exec(PAGE.split("```python\n")[1].split("```")[0], _names)  # noqa: S102 (it is ours)


def frames(engine: Engine, agent: Agent, run: RunAgentInput) -> AsyncIterator[str]:
    """Return the server-sent events of a run."""
    answered: AsyncIterator[str] = _names["answer"](engine, agent, run)
    return answered


async def answer(engine: Engine, agent: Agent, run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """Yield the events of a run, as a client reads them."""
    async for frame in frames(engine, agent, run):
        yield _EVENT.validate_json(frame.removeprefix("data: "))
