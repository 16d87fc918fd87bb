"""A desk that asks an archivist for the documents of the reader who writes."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Unpack

from pydantic import Field

from turnwright import Agent, Engine, ToolContext, ToolError, TurnInfo, tool
from turnwright.model import Model
from turnwright_testing import EngineParts

READERS: Final = {"d1": "ann", "d2": "bob"}
#: The reader and the document of each reading.
READINGS: Final[list[tuple[str, str]]] = []
METADATA: Final = ({"reader": "ann"}, {"reader": "bob"})


@dataclass(frozen=True)
class Deps:
    """The reader, who is the archive itself for its own work, and the model of the desk."""

    reader: str
    model: Model


async def open_archive(model: Model, turn: TurnInfo) -> Deps:
    """Make the dependencies of a turn."""
    return Deps(str(turn.metadata.get("reader", "archive")), model)


def make_engine(**parts: Unpack[EngineParts]) -> Engine[Deps]:
    """Make the engine of the desk."""
    return Engine(deps=partial(open_archive, parts["model"]), **parts)


def reset() -> None:
    """Start with no reading."""
    READINGS.clear()


@tool(read_only=True)
async def read_document(ctx: ToolContext[Deps], document: Annotated[str, Field(examples=[*READERS])]) -> str:
    """Read a document that the reader may read. The archive may read all."""
    if ctx.deps.reader not in ("archive", READERS.get(document)):
        raise ToolError(f"{document} is not yours")
    READINGS.append((ctx.deps.reader, document))
    return f"the text of {document}"


ARCHIVIST = Agent(name="Archivist", instructions="Answer from the documents.", tools=("read_document",))


@tool(read_only=True)
async def ask_archivist(ctx: ToolContext[Deps], question: str) -> str:
    """Ask the archivist."""
    model = ctx.deps.model
    async with Engine(model=model, tools=[read_document], deps=partial(open_archive, model)) as engine:
        turn = await engine.run(ARCHIVIST, question, metadata=ctx.metadata)
    return turn.text


DESK = Agent(name="Front desk", instructions="Pass questions on.", tools=("ask_archivist",))


def invariant_documents_are_read_by_their_readers() -> None:
    """Only its reader reads a document."""
    for reader, document in READINGS:
        assert READERS.get(document) == reader, f"{reader} read {document}"
