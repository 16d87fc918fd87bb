"""Processes that die at each place between a submission and its result lose nothing and use nothing twice.

Rules 8 to 10, scenario 3. The tool submits a job that knows the call's key, and returns `Later`.
"""

from pathlib import Path
from typing import Literal

import pytest

from turnwright import (
    Agent,
    AlreadySettledError,
    CallView,
    Engine,
    InvalidAnswerError,
    Later,
    ToolContext,
    ToolResult,
    TurnAlreadyEndedError,
    TurnNotFoundError,
    after_tool,
    tool,
)
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.store import SqliteStore, Store, open_store
from turnwright_states.facts import Answered, CallSettled
from turnwright_states.replay import replay
from turnwright_testing.faults import DriverProcess, KillAt, KillingStore, kill_this_process

pytestmark = pytest.mark.anyio

KEY = "t:call00001"
FACTS = ["call_started", "call_waiting", "paused", "answered", "call_settled"]
#: Each place where a process may die: at an append with a fact, in the tool, in a hook, or at the post of the result.
PLACES: list[KillAt | str] = [
    *(KillAt(fact=fact, after=after) for fact in FACTS for after in (False, True)),
    *(KillAt("post", after=after) for after in (False, True)),
    "tool",
    "hook",
]
#: Who gives the result: a process after the crash, one before recovery, or the tool itself before it returns.
OnCrash = Literal["rerun", "ask"]
Settler = Literal["late", "before recovery", "early"]


def reply(request: ModelRequest) -> ModelResponse | str:
    """Reply by the conversation, not by the number of calls."""
    return "Done." if any(message.calls for message in request.messages) else asks_for(("render", {}))


def make_engine(folder: Path, place: KillAt | str | None, settler: Settler, on_crash: OnCrash) -> Engine:
    @tool(idempotent=on_crash == "rerun", on_crash=on_crash)
    async def render(context: ToolContext) -> Later:
        """Render elsewhere; the service knows the key."""
        with (folder / "jobs").open("a") as jobs:
            jobs.write(f"{context.idempotency_key}\n")
        if settler == "early" and context.attempt == 1:
            async with make_engine(folder, None, settler, on_crash) as service:
                await service.settle(KEY, "film", by="farm")
        if place == "tool":
            kill_this_process()
        return Later(kept="job")

    @after_tool
    def hook(_: ToolContext, __: CallView, ___: ToolResult) -> None:
        if place == "hook":
            kill_this_process()

    store: Store = open_store(f"sqlite:///{folder}/turns.db")
    if isinstance(place, KillAt):
        store = KillingStore(store, place)
    return Engine(model=ScriptedModel(reply, repeat=True), tools=[render], hooks=[hook], store=store)


async def live(folder: Path, act: str, place: KillAt | str | None, settler: Settler, on_crash: OnCrash) -> None:
    """Do one process's work: run the turn, settle its call, or recover."""
    async with make_engine(folder, place, settler, on_crash) as engine:
        if act == "run":
            await engine.run(Agent(name="A"), "Go.", id="t")
        elif act == "settle":
            await engine.settle(KEY, "film", by="farm")
        else:
            await engine.recover()


@pytest.mark.slow
@pytest.mark.parametrize(("settler", "on_crash"), [("late", "ask"), ("before recovery", "rerun"), ("early", "ask")])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place if isinstance(place, str) else repr(place)[7:-1])
async def test_killed_process_loses_no_result(
    tmp_path: Path, place: KillAt | str, settler: Settler, on_crash: OnCrash
) -> None:
    """The result is used once, whenever it came, and all submissions have one key."""
    codes: list[int] = []

    def live_once(act: str, kill: KillAt | str | None) -> None:
        with DriverProcess(live, tmp_path, act, kill, settler, on_crash) as process:
            codes.append(process.wait(600))

    async def settle(result: str = "film") -> bool | None:
        async with make_engine(tmp_path, None, settler, on_crash) as engine:
            try:
                return await engine.settle(KEY, result, by="farm")
            except (InvalidAnswerError, TurnNotFoundError, TurnAlreadyEndedError):
                return None

    for act in ("run", "recover", "settle", "recover"):
        live_once(act, place if -9 not in codes else None)
        if settler == "before recovery":
            await settle()
    if not SqliteStore(tmp_path / "turns.db").has("t"):
        live_once("run", None)
    await settle()  # again, as a service does whose process died
    live_once("recover", None)
    assert set(codes) <= {0, -9}
    store = SqliteStore(tmp_path / "turns.db")
    facts = await store.facts("t")
    async with make_engine(tmp_path, None, settler, on_crash) as engine:
        assert (await engine.get("t")).text == "Done."
    assert [fact.result for _, fact in facts if isinstance(fact, CallSettled)] == ["film"]
    assert [fact.by for _, fact in facts if isinstance(fact, Answered) if fact.given] == ["farm"]
    assert replay(facts).fault is None
    assert not await store.inbox("t")
    jobs = tmp_path / "jobs"
    assert not jobs.exists() or set(jobs.read_text().split()) == {KEY}, "it may be settled before it was submitted"
    assert await settle() is False
    with pytest.raises(AlreadySettledError):
        await settle("other")
    await store.aclose()
