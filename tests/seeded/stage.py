"""The stage on which seeded agents play scripted turns, and the faults that are seen from outside."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Final

import anyio

from turnwright import Agent, Engine, StoreError, Tool, TurnResult
from turnwright.context import JsonObject
from turnwright.journal.answers import Answers
from turnwright.message import ToolResultPart
from turnwright.model import ModelRequest, ScriptedModel
from turnwright.model.scripted import Line
from turnwright.store import MemoryStore, Store
from turnwright_states import EndReason
from turnwright_states import facts as f
from turnwright_testing import clock
from turnwright_testing.faults import FaultyStore

#: Longer than any tool of a scene works, in seconds.
_FOREVER: Final = 3600.0
#: More steps than a turn of a scene needs.
_MANY_STEPS: Final = 50
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


class Stage:
    """Plays turns with the agent of a module, and collects the faults: those that any agent has, and its own checks."""

    def __init__(self, module: ModuleType) -> None:
        self.faults: list[str] = []
        self._module = module
        self._store: Store = MemoryStore()
        self._checks = [value for name, value in vars(module).items() if name.startswith("check_")]

    def play(self, turns: Sequence[SceneTurn]) -> None:
        """Play the turns one after the other, from the beginning of the outside world."""
        getattr(self._module, "reset", bool)()
        for turn in turns:
            clock.run(partial(self._play_turn, turn))

    async def _play_turn(self, turn: SceneTurn) -> None:
        model = ScriptedModel(*turn.script, repeat=True)
        agent: Agent = self._module.DESK
        store = FaultyStore(self._store, at=turn.dies_before or 0)
        result: TurnResult | None = None
        with anyio.move_on_after(_FOREVER):
            try:
                result = await self._drive(self._engine(model, store), agent, turn)
            except StoreError:
                await store.aclose()
                (result,) = await self._engine(model, self._store).recover()
        self._judge(result, model.requests)

    def _engine(self, model: ScriptedModel, store: Store) -> Engine[None]:
        tools = [value for value in vars(self._module).values() if isinstance(value, Tool)]
        deps = getattr(self._module, "make_deps", None)
        make: Callable[..., Engine[None]] = getattr(self._module, "make_engine", None) or (
            Engine if deps is None else partial(Engine, deps=deps)
        )
        return make(model=model, tools=tools, store=store, agents=[self._module.DESK], clock=anyio.current_time)

    async def _drive(self, engine: Engine[None], agent: Agent, turn: SceneTurn) -> TurnResult:
        result = await engine.run(agent, turn.prompt, session=turn.session, metadata=turn.metadata)
        for answers in turn.answers:
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
        self.faults += [
            f"{part.name} raises {part.text}"
            for message in result.messages
            for part in message.parts
            if isinstance(part, ToolResultPart) and _RAISED.match(part.text)
        ]
        self.faults += self._broken_checks({"turn": result, "requests": requests})

    def _broken_checks(self, values: Mapping[str, object]) -> Iterator[str]:
        """Call each check of the module with the values that it takes, and yield the messages of those that fail."""
        for check in self._checks:
            try:
                check(**{name: values[name] for name in inspect.signature(check).parameters})
            except AssertionError as error:
                yield f"{check.__name__}: {error}"
