"""The shared yardstick: the work that every subject does, and what a subject has to offer to be measured at it.

Standard library only, for it runs in the environment of every peer. A file of subjects looks like this, and is run from
the root of the checkout as a module (`python -m bench.peers.langgraph`; as a file it would shadow what it imports):

    from bench.measure import main
    from bench.yardstick import FINAL, PROMPT, Script, Subject, current, installed, look

    class Graph(Subject):
        name = "langgraph StateGraph"
        modules = ("langgraph.graph",)
        packages = ("langgraph",)

        @asynccontextmanager
        async def opened(self) -> AsyncIterator[None]:
            self.app = ...                                  # once in a process, and not measured
            yield

        async def turn(self, script: Script) -> str:
            return (await self.app.ainvoke(...))["..."]     # one turn, from PROMPT to the final text

    if __name__ == "__main__":
        main(Graph(), GraphWithSqlite())

The work: a turn of N steps. In each step the framework calls a fake model of its own kind. The fake asks `script` for
its move (`move = await script.reply()`), streams `move.text` as one delta and then each of `move.calls` at once, in the
kind of chunks that the framework's own streams have, and ends with a usage of 100 tokens in and 10 out. There are two
calls of the tool `look` in every step but the last, to be run in parallel; the last move has no calls, and its text is
`FINAL`, which the turn returns. A fake that outlives one turn finds the script of the turn it is called in with
`current()`; tasks, and threads of `asyncio.to_thread`, inherit it.

`bench.measure` describes what `main` measures. `--list` names the subjects with their parts, `--only NAME --part PART`
measures one part, `--quick` measures little, to see that all goes well. Standard output is JSON.
"""

import asyncio
import importlib.metadata
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

PROMPT: Final = "Look everywhere, two places at a time."
TEXT: Final = "Looking at the next two places."
FINAL: Final = "Nothing anywhere."
HOLD_AT: Final = 6  # the step at which turns in flight wait for one another


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the fake model asks for: its id, unique in the turn, and its arguments, as JSON and parsed."""

    id: str
    place: int

    @property
    def name(self) -> str:
        """The tool's name."""
        return "look"

    @property
    def arguments(self) -> str:
        """The arguments, as a provider sends them."""
        return f'{{"place": {self.place}}}'


@dataclass(frozen=True, slots=True)
class Move:
    """Return the fake model's reply of one step: a text, and no calls in the last step."""

    text: str
    calls: tuple[Call, ...]


class Gate:
    """Holds turns at one step until all have come there, so that they are in flight at once.

    `held` is called at that moment, before any continues. Turns also take turns at every step, as they do when a model
    takes its time.
    """

    def __init__(self, turns: int, on_all_held: Callable[[], None], step: int = HOLD_AT) -> None:
        self._missing = turns
        self._on_all_held = on_all_held
        self._step = step
        self._open = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def arrive(self, step: int) -> None:
        """Wait, if this is the step to wait at."""
        if step != self._step:
            await asyncio.sleep(0)
            return
        self._missing -= 1
        if not self._missing:
            self._on_all_held()
            self._open.set()
        await self._open.wait()

    def arrive_now(self, step: int) -> None:
        """The same, for a fake that is called in a thread."""
        asyncio.run_coroutine_threadsafe(self.arrive(step), self._loop).result()


class Script:
    """The fake model's work in one turn of so many steps.

    `marks` are the CPU seconds of the process at the start of each model call; `asked` is how often the model was
    called. `at_step` is called with the number of each model call, before it is answered.
    """

    __slots__ = ("_at_step", "_gate", "marks", "model_calls", "steps")

    def __init__(self, steps: int, gate: Gate | None = None, at_step: Callable[[int], None] | None = None) -> None:
        self.steps = steps
        self.model_calls = 0
        self.marks: list[float] = []
        self._gate = gate
        self._at_step = at_step

    async def reply(self) -> Move:
        """The model's next move; to be asked once in each model call, before anything is streamed."""
        self._begin()
        if self._gate is not None:
            await self._gate.arrive(self.model_calls)
        return self._move()

    def reply_now(self) -> Move:
        """The same, for a fake that is not async."""
        self._begin()
        if self._gate is not None:
            self._gate.arrive_now(self.model_calls)
        return self._move()

    def _begin(self) -> None:
        self.model_calls += 1
        if self._gate is None:
            self.marks.append(time.process_time())
        if self._at_step is not None:
            self._at_step(self.model_calls)

    def _move(self) -> Move:
        at = self.model_calls
        if at >= self.steps:
            return Move(FINAL, ())
        return Move(TEXT, (Call(f"call_a{at}", at), Call(f"call_b{at}", -at)))


_current: ContextVar[Script] = ContextVar("script")


def current() -> Script:
    """The script of the turn that is running here."""
    return _current.get()


class Looks:
    """The number of executions of the tool in this process, so that a lost or doubled call shows, and its results.

    `padding` begins each result: see `padded`.
    """

    count: ClassVar[int] = 0
    padding: ClassVar[str] = ""


async def look(place: int) -> str:
    """Look at a place."""
    Looks.count += 1
    return f"{Looks.padding}nothing at {place}"


def look_now(place: int) -> str:
    """Look at a place. For frameworks whose tools cannot be async."""
    Looks.count += 1
    return f"{Looks.padding}nothing at {place}"


@contextmanager
def padded(kib: int) -> Iterator[None]:
    """Let each result of the tool have so many KiB of a program's source, and about 15 bytes with 0."""
    source = Path(__file__).with_name("bare.py").read_text()
    Looks.padding = (source * (kib * 1024 // len(source) + 1))[: kib * 1024]
    yield
    Looks.padding = ""


class Subject(ABC):
    """One way to run a turn.

    `name` is shown in the tables; `modules` are what a user of it imports, and `packages` the distributions whose
    versions are shown. `most_in_flight` is how many turns it can hold at once; `notes` are shown below the tables.
    `durable`: its steps are stored before the next begins. `store_kind` names the store, for tables. `streamed`: the
    caller receives the events of a turn as they come, and not only its result. `has_sessions`: its turns can continue a
    session, which it keeps itself. `session` is the session of all turns, if they share one. `is_slow`: nothing but a
    step with results is measured.
    """

    name: ClassVar[str]
    modules: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    most_in_flight: ClassVar[int] = 10_000
    notes: ClassVar[tuple[str, ...]] = ()
    durable: ClassVar[bool] = False
    store_kind: ClassVar[str] = ""
    streamed: ClassVar[bool] = False
    is_slow: ClassVar[bool] = False
    has_sessions: ClassVar[bool] = False
    session: str | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Make what an application makes once: the agent, the graph, the engine and its store. Not measured."""
        yield

    @abstractmethod
    async def turn(self, script: Script) -> str:
        """Run one turn as a user would, and return its final text. Many run at once, each in a task of its own."""

    def stored(self) -> int | None:
        """Return the bytes that the store holds (see `sqlite_bytes`); None if nothing is stored."""
        return None

    def server_cpu(self) -> float | None:
        """Return the CPU seconds of the server that the subject uses; None if it uses none."""
        return None


async def run(subject: Subject, script: Script) -> None:
    """Run one turn, and see that it did its work: every step, and the final text.

    Raises RuntimeError when it did not.
    """
    _current.set(script)
    text = await subject.turn(script)
    if text != FINAL or script.model_calls != script.steps:
        raise RuntimeError(
            f"{subject.name}: asked {script.model_calls} times of {script.steps}, and ended with {text!r}"
        )


def installed(*packages: str) -> dict[str, str]:
    """The versions of distributions that are installed here."""
    return {name: importlib.metadata.version(name) for name in packages}


def sqlite_bytes(path: Path) -> int:
    """The bytes of all that the tables of a SQLite database hold: texts and blobs as they are, numbers as digits.

    Pages that are half empty, indices and the write-ahead log are not counted: it is what was written, not where.
    """
    connection = sqlite3.connect(path)
    try:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        return sum(_table_bytes(connection, table) for table in tables)
    finally:
        connection.close()


def _table_bytes(connection: sqlite3.Connection, table: str) -> int:
    columns = [row[1] for row in connection.execute(f'pragma table_info("{table}")')]
    lengths = " + ".join(f'ifnull(length(cast("{column}" as blob)), 0)' for column in columns)
    (total,) = connection.execute(f'select ifnull(sum({lengths}), 0) from "{table}"').fetchone()  # noqa: S608
    return int(total)


class QueueSubject(ABC):
    """One way to queue turns of two steps in a database, and to work them off in other processes.

    The first step of a turn has two calls of the tool, and the second the final text. `submit` and `count_ended` are
    used inside `opened`, `work` in each worker, until it is killed. `address` is that of the database.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    notes: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    async def prepare(self, address: str) -> None:
        """Make the tables that the turns need."""

    @asynccontextmanager
    async def opened(self, address: str) -> AsyncIterator[None]:
        """Connect the process that submits."""
        del address
        yield

    @abstractmethod
    async def submit(self, number: int) -> None:
        """Queue one turn."""

    @abstractmethod
    async def count_ended(self) -> int:
        """Return the number of turns that have ended with the final text."""

    @abstractmethod
    async def work(self, address: str) -> None:
        """Work turns off, many at once. Print `ready` when the first may be taken."""
