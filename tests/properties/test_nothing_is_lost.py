"""With messages, answers, aborts, crashes and takeovers in any order, the turn ends or pauses, and nothing is lost."""

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples

from turnwright import (
    Agent,
    Engine,
    InvalidAnswerError,
    LeaseLostError,
    SessionBusyError,
    StoreError,
    TurnAlreadyEndedError,
    TurnBusyError,
    tool,
)
from turnwright.journal.inbox import has_request, steers
from turnwright.message import TextPart
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.model.scripted import asks_for
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright.tools import Tool, ToolContext
from turnwright.transcript.pairing import UnpairedError, check_pairing
from turnwright_states import Cause, Limits, Outcome, State
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing.clock import run
from turnwright_testing.faults import StoreCall, StoreWrapper

R = TypeVar("R")

AGENT = Agent(name="Anybody")
#: What may be raised in the face of who acts at the wrong moment, or who was killed.
REFUSALS = (StoreError, LeaseLostError, TurnBusyError, TurnAlreadyEndedError, InvalidAnswerError, SessionBusyError)


@dataclass(frozen=True)
class Move:
    """An action on the turn, `wait` rounds of the loop after the move before."""

    kind: str
    wait: int


@dataclass(frozen=True)
class Play:
    """The tools of each batch, the replies that fail first, and the moves."""

    batches: Sequence[Sequence[str]]
    failing: frozenset[int]
    moves: Sequence[Move]
    limits: Limits
    #: The rounds of the loop that a release takes, while others may post.
    releasing: int = 1


plays = st.builds(
    Play,
    batches=st.lists(
        st.lists(st.sampled_from(["erase", "note", "slow"]), min_size=1, max_size=3), min_size=1, max_size=3
    ),
    failing=st.frozensets(st.integers(0, 3), max_size=2),
    moves=st.lists(
        st.builds(
            Move,
            kind=st.sampled_from(
                ["steer", "steer", "steer", "grant", "grant", "deny", "abort", "message", "crash", "takeover", "sweep"]
            ),
            wait=st.sampled_from([0, 1, 3, 8, 20, 28, 50]),
        ),
        min_size=1,
        max_size=9,
    ),
    limits=st.builds(
        Limits,
        steps=st.sampled_from([None, None, 0, 1, 2]),
        tool_calls=st.sampled_from([50, 50, 2]),
        max_retries=st.sampled_from([3, 3, 1, 20]),
    ),
    releasing=st.sampled_from([1, 1, 4, 12]),
)


class Mortal(StoreWrapper):
    """The handle of one process. It waits a round of the loop before each call, and dies on request."""

    def __init__(self, inner: Store, releasing: int) -> None:
        super().__init__(inner)
        self.dead = False
        self._releasing = releasing

    async def _round(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.dead:
            raise StoreError("its process is dead")

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        """Make a call. The process may die before it, and after an append."""
        for _ in range(self._releasing if call.name == "release" else 1):
            await self._round()
        result = await super().around(call, make)
        if call.name == "append":
            await self._round()
        return result


@dataclass
class Processes:
    """Some processes of one store, and what came of them."""

    play: Play
    open: Callable[[], Store]
    bury: Callable[[], Awaitable[None]]
    said_texts: list[str] = field(default_factory=list)
    #: Said to a turn that ended meanwhile: handed back, or never put down.
    perhaps: list[str] = field(default_factory=list)
    aborted: bool = False
    #: Executions, by call: `turn:call`.
    ran: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    processes: list[Mortal] = field(default_factory=list)
    turn: str = ""

    name = "planned"

    def process(self) -> Engine:
        """An engine of its own."""
        store = Mortal(self.open(), self.play.releasing)
        self.processes.append(store)
        return Engine(model=self, tools=self.tools(), store=store, limits=self.play.limits, cancel_grace=0.05)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """See `Model.stream`. What is said depends on what was said, not on how often the model was called."""
        try:
            check_pairing(request.messages)
        except UnpairedError as error:
            self.faults.append(f"a request is not paired: {error}")
        heard = Counter(part.text for m in request.messages for part in m.parts if isinstance(part, TextPart))
        self.faults += [f"{text} is sent {n} times" for text, n in heard.items() if text.startswith("say") and n > 1]
        step = sum(bool(message.calls) for message in request.messages)
        yield TextDelta("Well")
        for _ in range(12):
            await anyio.lowlevel.checkpoint()
        if step in self.play.failing and step not in self.failed:
            self.failed.add(step)
            raise ModelError("overloaded", cause=Cause.OVERLOADED)
        if request.tool_choice == "none" or step >= len(self.play.batches):
            yield ModelResponse(text="Well, that is all.")
        else:
            calls = [(name, {"n": 10 * step + n}) for n, name in enumerate(self.play.batches[step])]
            yield asks_for(*calls, text="Well")

    def tools(self) -> list[Tool]:
        """Return three tools: a quick one, one that needs approval, and a slow one."""

        @tool
        async def note(n: int, context: ToolContext) -> str:
            self.ran[context.idempotency_key] += 1
            return f"noted {n}"

        @tool(needs_approval=True)
        async def erase(n: int, context: ToolContext) -> str:
            self.ran[context.idempotency_key] += 1
            await anyio.lowlevel.checkpoint()
            return f"erased {n}"

        @tool
        async def slow(n: int, context: ToolContext) -> str:
            self.ran[context.idempotency_key] += 1
            for _ in range(25):
                await anyio.lowlevel.checkpoint()
            return f"done {n}"

        return [note, erase, slow]

    async def run(self) -> None:
        """Play it all, and see that it can be brought to an end, or to a rest."""
        with anyio.fail_after(3600):
            async with anyio.create_task_group() as group:

                async def begin() -> None:
                    with suppress(*REFUSALS):
                        await self.process().run(AGENT, "hi", session="s1")

                group.start_soon(begin)
                look = self.open()
                while not (rows := await look.turns()):
                    await anyio.lowlevel.checkpoint()
                self.turn = rows[-1].id
                for number, move in enumerate(self.play.moves):
                    for _ in range(move.wait):
                        await anyio.lowlevel.checkpoint()
                    await self._move(move.kind, f"say {number}", group)
            if not any(move.kind in ("crash", "takeover") for move in self.play.moves):
                await self._nothing_is_stranded()
            await self._kill()
            await self.process().recover()
        await self._check()

    async def _move(self, kind: str, text: str, group: anyio.abc.TaskGroup) -> None:
        match kind:
            case "steer":
                try:
                    await self.process().steer(self.turn, text)
                    self.said_texts.append(text)
                except TurnAlreadyEndedError:
                    self.perhaps.append(text)
            case "abort":
                await self.process().abort(self.turn)
                self.aborted = True
            case "grant" | "deny":
                group.start_soon(self._answer, kind == "grant")
            case "message":
                group.start_soon(self._write)
            case "crash":
                await self._kill()
            case "takeover":  # its driver lives, and does not know
                await self.bury()
                group.start_soon(self._sweep)
            case _:
                group.start_soon(self._sweep)

    async def _answer(self, yes: bool) -> None:
        engine = self.process()
        with suppress(*REFUSALS):
            for _ in range(40):  # a person looks again until something is asked
                if pending := (await engine.get(self.turn)).interrupts:
                    await engine.resume(self.turn, {interrupt.id: yes for interrupt in pending})
                    return
                await anyio.lowlevel.checkpoint()

    async def _write(self) -> None:
        with suppress(*REFUSALS):
            await self.process().run(AGENT, "something new", session="s1")

    async def _sweep(self) -> None:
        with suppress(StoreError):
            await self.process().recover()

    async def _kill(self) -> None:
        for process in self.processes:
            process.dead = True
        await self.bury()

    async def _nothing_is_stranded(self) -> None:
        """Check that the driver that released the turn handled the items posted meanwhile."""
        store = self.open()
        for row in await store.turns(live=True):
            assert row.status.state is State.PAUSED
            assert not has_request(await store.inbox(row.id))

    async def _check(self) -> None:
        store = self.open()
        engine = Engine(store=store)
        turn = await engine.get(self.turn)
        facts = await store.facts(self.turn)
        assert self.faults == []
        assert turn.outcome is not None or turn.state is State.PAUSED
        assert turn.outcome is not None or not self.aborted, "an abort was promised"
        for row in await store.turns():
            check = replay(await store.facts(row.id)).check
            assert check.verdict is Verdict.HOLDS, check
            assert not await store.is_driven(row.id)
        assert sum(isinstance(fact, f.TurnEnded) for _, fact in facts) == (turn.outcome is not None)
        heard = [p.text for m in turn.messages if m.role == "user" for p in m.parts if isinstance(p, TextPart)][1:]
        waiting = [] if turn.outcome else list(steers(await store.inbox(self.turn)).values())
        received = Counter([*heard, *turn.undelivered, *waiting])
        assert received - Counter(self.perhaps) == Counter(self.said_texts)
        assert all(received[text] <= 1 for text in self.perhaps)
        assert [text for text in heard if text in self.said_texts] == sorted(t for t in heard if t in self.said_texts)
        assert all(times == 1 for times in self.ran.values()), "no call runs twice"
        settled = Counter(fact.call for _, fact in facts if isinstance(fact, f.CallSettled))
        assert all(times == 1 for times in settled.values())
        if turn.outcome is Outcome.FAILED:
            deaths = 1 + sum(move.kind in ("crash", "takeover") for move in self.play.moves)
            assert deaths + len(self.failed) > self.play.limits.max_retries, turn.error
        if turn.outcome is not None:
            check_pairing(turn.messages)


def _unlock(folder: Path) -> None:
    """Make every present driver look dead."""
    for lock in folder.glob("*-owner-*"):
        lock.unlink()


#: Four attempts at one step: the first fails, its second and third die with their process, as does the last.
DIES_TOO_OFTEN = Play(
    batches=[["erase"]],
    failing=frozenset([0]),
    moves=[Move("takeover", 8), Move("takeover", 8), Move("crash", 20)],
    limits=Limits(),
)
#: The turn pauses, and the abort comes during its release.
ABORTED_DURING_RELEASE = Play([["erase"]], frozenset(), [Move("abort", 28)], Limits(), releasing=12)


@given(plays)
@example(DIES_TOO_OFTEN)
@example(ABORTED_DURING_RELEASE)
def test_nothing_is_lost_in_memory(play: Play) -> None:
    memory = MemoryStore()
    run(Processes(play, lambda: memory, memory.aclose).run)


@settings(max_examples=percent_of_examples(10), deadline=None)
@given(plays)
def test_nothing_is_lost_in_a_file(play: Play) -> None:
    """Every process has a handle and a lock of its own."""
    with tempfile.TemporaryDirectory() as folder:
        opened: list[SqliteStore] = []

        def one() -> Store:
            opened.append(SqliteStore(Path(folder) / "turns.db", durability="normal"))
            return opened[-1]

        async def bury() -> None:
            _unlock(Path(folder))

        async def play_all() -> None:
            try:
                await Processes(play, one, bury).run()
            finally:
                for store in opened:
                    await store.aclose()

        run(play_all)
