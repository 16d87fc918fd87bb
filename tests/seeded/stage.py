"""The stage on which seeded agents play scripted turns, and the faults that are seen from outside."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Final

import anyio

from turnwright import Agent, Engine, InvalidAnswerError, StoreError, Tool, TurnResult
from turnwright.context import JsonObject
from turnwright.journal.answers import Answers
from turnwright.journal.event_bus import Observer
from turnwright.message import ToolResultPart
from turnwright.model import ModelRequest, ScriptedModel
from turnwright.model.scripted import Line
from turnwright.store import MemoryStore, Store
from turnwright.transcript.events import FactEvent, TurnEvent
from turnwright_states import CallStatus, EndReason
from turnwright_states import facts as f
from turnwright_testing import clock
from turnwright_testing.faults import FaultyStore

#: Longer than any tool of a scene works, in seconds.
_FOREVER: Final = 3600.0
#: More steps than a turn of a scene needs.
_MANY_STEPS: Final = 50
#: The seconds between two looks at the event loop, and the looks that it has missed if a call blocked it.
_ROUND: Final = 0.01
_FEW_ROUNDS: Final = 3
#: The result of a tool that raised an error which is not meant for the model.
_RAISED: Final = re.compile(r"[A-Z]\w*Error: ")


@dataclass(frozen=True, slots=True)
class SceneTurn:
    """A message to the agent, the replies of its model, and the answers of people, a mapping for each pause.

    `dies_before`: the process dies before the first fact of this kind is written, and another one resumes the turn.
    """

    script: tuple[Line, ...]
    prompt: str = "hi"
    metadata: JsonObject = field(default_factory=dict)
    answers: tuple[Answers, ...] = ()
    dies_before: type[f.Fact] | None = None
    session: str = "main"


@dataclass(frozen=True, slots=True)
class Scene:
    """Turns that follow each other, and the beginning of the first fault that the buggy agent shows in them."""

    fault: str
    turns: tuple[SceneTurn, ...]
    #: Whether threads are to take their time; else no time passes while all wait.
    real_time: bool = False
    #: The name of a list of the outside world that has no item twice.
    without_duplicates: str = ""
    #: Whether the last call is one that succeeds.
    last_call_succeeds: bool = False


class Stage:
    """Plays turns with the agent of a module, and collects faults of any agent, and broken invariants of its own."""

    def __init__(self, module: ModuleType) -> None:
        self.faults: list[str] = []
        self._module = module
        self._store: Store = MemoryStore()
        #: The result of the last call.
        self._last = ToolResultPart(call="", name="", text="")
        #: How often the event loop came round, and how often it had when a call began.
        self._rounds = self._rounds_before = 0
        self._invariants = [value for name, value in vars(module).items() if name.startswith("invariant_")]

    def play(self, scene: Scene) -> None:
        """Play the turns one after the other, from the beginning of the outside world."""
        getattr(self._module, "reset", bool)()
        for turn in scene.turns:
            play_turn = self._watch_loop if scene.real_time else self._play_turn
            clock.run(partial(play_turn, turn), real_time=scene.real_time)
        items = getattr(self._module, scene.without_duplicates, ())
        if len({*items}) < len(items):
            self.faults.append(f"{scene.without_duplicates} has an item twice")
        if scene.last_call_succeeds and self._last.status is not CallStatus.OK:
            self.faults.append(f"{self._last.name} fails: {self._last.text}")

    async def _watch_loop(self, turn: SceneTurn) -> None:
        """Play a turn, and count how often the event loop comes round."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._count_rounds)
            await self._play_turn(turn, on_event=[self._observe])
            group.cancel_scope.cancel()

    async def _count_rounds(self) -> None:
        while True:
            self._rounds += 1
            await anyio.sleep(_ROUND)

    def _observe(self, event: TurnEvent) -> None:
        if isinstance(event, FactEvent) and event.type == "call_started":
            self._rounds_before = self._rounds
        few = self._rounds < self._rounds_before + _FEW_ROUNDS
        if isinstance(event, FactEvent) and event.type == "call_settled" and few:
            self.faults.append(f"{event.tool} blocks the event loop")

    async def _play_turn(self, turn: SceneTurn, on_event: Sequence[Observer] = ()) -> None:
        model = ScriptedModel(*turn.script, repeat=True)
        agent: Agent = self._module.DESK
        store = FaultyStore(self._store, at=turn.dies_before or 0)
        result: TurnResult | None = None
        with anyio.move_on_after(_FOREVER):
            try:
                result = await self._drive(self._engine(model, store, on_event), agent, turn)
            except StoreError:
                await store.aclose()
                (result,) = await self._engine(model, self._store, on_event).recover()
        self._judge(result, model.requests)

    def _engine(self, model: ScriptedModel, store: Store, on_event: Sequence[Observer]) -> Engine[None]:
        tools = [value for value in vars(self._module).values() if isinstance(value, Tool)]
        deps = getattr(self._module, "make_deps", None)
        make: Callable[..., Engine[None]] = getattr(self._module, "make_engine", None) or (
            Engine if deps is None else partial(Engine, deps=deps)
        )
        return make(
            model=model,
            tools=tools,
            store=store,
            agents=[self._module.DESK],
            on_event=on_event,
            clock=anyio.current_time,
        )

    async def _drive(self, engine: Engine[None], agent: Agent, turn: SceneTurn) -> TurnResult:
        result = await engine.run(agent, turn.prompt, session=turn.session, metadata=turn.metadata)
        for answers in turn.answers:
            with suppress(InvalidAnswerError):  # the app refuses it: the turn still waits
                result = await engine.resume(result.id, answers, agent=agent)
        return result

    def _judge(self, result: TurnResult | None, requests: Sequence[ModelRequest]) -> None:
        if result is None:
            self.faults.append("the turn never ends")
            return
        if result.reason is EndReason.ENGINE_ERROR:
            self.faults.append(f"the turn fails: {result.error}")
        if result.steps > _MANY_STEPS:
            self.faults.append(f"the turn has {result.steps} steps")
        parts = [part for message in result.messages for part in message.parts if isinstance(part, ToolResultPart)]
        self._last = parts[-1] if parts else self._last
        self.faults += [f"{part.name} raises {part.text}" for part in parts if _RAISED.match(part.text)]
        self.faults += self._broken_invariants({"turn": result, "requests": requests})

    def _broken_invariants(self, values: Mapping[str, object]) -> Iterator[str]:
        """Call each invariant of the module with the values that it takes, and yield those that are broken."""
        for invariant in self._invariants:
            try:
                invariant(**{name: values[name] for name in inspect.signature(invariant).parameters})
            except AssertionError as error:
                yield f"{invariant.__name__}: {error}"
