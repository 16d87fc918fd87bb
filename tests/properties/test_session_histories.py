"""A turn is sent the history that its session's journals give, whatever happened to the session before."""

import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Compact, Engine, tool
from turnwright.errors import SessionNotFoundError, TurnNotFoundError
from turnwright.journal.message_history import messages_before
from turnwright.journal.turn_journal import first_fact
from turnwright.message import Message
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright.transcript.pairing import rename_calls, repair_pairs
from turnwright_states import Cause, Usage

#: What is asked, and of which agent.
TURNS = st.tuples(
    st.sampled_from(["answer", "call", "think", "fail", "limit"]),
    st.sampled_from(["one", "other", "summary", "clear"]),
    # The engine, the session, and the number of the turn that is continued.
    st.integers(0, 1),
    st.sampled_from(["s", "s", "s", "s", "t", None]),
    st.none() | st.none() | st.integers(0, 8),
)
DELETED = st.integers(0, 3)
DEEDS = st.lists(TURNS | TURNS | TURNS | DELETED | st.sampled_from(["s", "fork"]), min_size=2, max_size=14)
Asked: TypeAlias = tuple[str, str, int, str | None, int | None]
Deed: TypeAlias = Asked | int | str


class Scripted:
    """A model that does what the prompt says, and keeps its requests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        """Reply once."""
        self.requests.append(request)
        last = request.messages[-1]
        usage = Usage(input_tokens=100, output_tokens=1)
        if last.text == "fail":
            raise ModelError("it fails", cause=Cause.BAD_REQUEST)
        if last.text in {"call", "limit"} or (last.role == "tool" and request.messages[-3].text == "limit"):
            calls = tuple(ResponseToolCall(id="c", name="look", arguments={"place": n}) for n in range(2))
            yield ModelResponse(text="Looking.", calls=calls, usage=usage)
        else:
            details = ({"type": "reasoning.text", "signature": self.name},) if last.text == "think" else ()
            yield ModelResponse(text="An answer.", reasoning_details=details, usage=usage)


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"nothing at {place}"


ONE, OTHER = Scripted("one"), Scripted("other")
AGENTS = {
    "one": Agent(name="One", model="one", steps=2),
    "other": Agent(name="Other", model="other", steps=2),
    "summary": Agent(name="Summary", model="one", steps=2, compaction=Compact(at_tokens=60, keep_steps=1)),
    "clear": Agent(
        name="Clear", model="one", steps=2, compaction=Compact(at_tokens=60, keep_steps=1, mode="clear_tool_results")
    ),
}


def engine(store: Store) -> Engine:
    return Engine(model=ONE, models={"one": ONE, "other": OTHER}.__getitem__, tools=[look], store=store)


async def rebuilt(store: Store, turn: str, model: str) -> list[Message]:
    """Return the history of a turn as its journals give it."""
    first = first_fact(turn, await store.facts(turn))
    return rename_calls(repair_pairs(await messages_before(store, turn, first, model))[0])


async def check(stores: Callable[[], Store], deeds: list[Deed]) -> None:
    """Do everything, and compare what each turn sent first with what its journals give."""
    first = stores()
    engines = [engine(first), engine(first if isinstance(first, MemoryStore) else stores())]
    names: list[str] = []
    for deed in deeds:
        store = engines[0].store
        if isinstance(deed, int):
            if deed < len(names):
                await engines[0].delete(names.pop(deed))
            continue
        if isinstance(deed, str):
            try:
                if deed == "fork":
                    if names:
                        names.append(await engines[0].fork(names[-1], at=2))
                        await engines[0].resume(names[-1])
                else:
                    await engines[0].delete_session(deed)
                    names = [name for name in names if store.has(name)]
            except (SessionNotFoundError, TurnNotFoundError):
                pass
            continue
        prompt, agent, engine_index, session, continued = deed
        before = names[continued] if continued is not None and continued < len(names) else None
        del ONE.requests[:], OTHER.requests[:]
        turn = await engines[engine_index].run(AGENTS[agent], prompt, session=session, continue_from=before)
        names.append(turn.id)
        model = OTHER if agent == "other" else ONE
        expected = await rebuilt(store, turn.id, model.name)
        history = [message for message in expected if message.says_something]
        if model.requests and agent in {"one", "other"}:
            assert list(model.requests[0].messages[: len(history)]) == history
            assert model.requests[0].messages[len(history)].text == prompt
    for open_engine in engines:
        await open_engine.aclose()


@given(DEEDS)
def test_history_sent_equals_the_journals_in_memory(deeds: list[Deed]) -> None:
    anyio.run(check, MemoryStore, deeds)


@given(DEEDS)
def test_history_sent_equals_the_journals_of_two_sqlite_processes(deeds: list[Deed]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(check, lambda: SqliteStore(Path(folder) / "turns.db", durability="normal"), deeds)
