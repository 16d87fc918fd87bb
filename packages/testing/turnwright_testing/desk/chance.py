"""A guest who decides by chance: visits, replies of the model and answers of people, with values of the domain."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from pydantic import JsonValue

from turnwright.agent import OUTPUT_TOOL
from turnwright.journal.answers import ANSWERABLE, Answer
from turnwright.message import ToolSpec
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import asks_for
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import InterruptKind

from .desk import Desk
from .domain import Arguments, Domain, Memory
from .visit import Reply, Visit

#: The visits of a case, and the calls of a reply, each as often as it stands here.
_VISITS: Final = (1, 1, 2, 2, 3, 4)
_CALLS: Final = (1, 1, 1, 2, 3)
#: How often a model answers instead of asking, repeats its last calls, calls one tool with one argument twice, loops.
_ANSWERS: Final = 0.25
_REPEATS: Final = 0.15
_TWICE: Final = 0.2
_LOOPS: Final = 0.08
#: How often a process dies, and visits begin together.
_DIES: Final = 0.2
_TOGETHER: Final = 0.1
#: The calls among which a process dies.
_MOST_CALLS: Final = 3
_TEXTS: Final = ("yes", "no", "")


class Chance:
    """Decides by the seed: the same desk and the same seed make the same case."""

    def __init__(self, desk: Desk, domain: Domain, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 (repeatable, not secret)
        self._memory = Memory()
        self._arguments = Arguments(domain, self._random, self._memory)
        self._desk = desk
        self._domain = domain
        self._last: dict[int, ModelResponse] = {}
        self.visits = tuple(self._visit(place) for place in range(self._random.choice(_VISITS)))

    def _visit(self, place: int) -> Visit:
        random, desk = self._random, self._desk
        person = random.randrange(len(desk.metadata))
        # A person has two sessions. Turns of one session follow each other.
        is_together = place > 0 and random.random() < _TOGETHER
        session = f"together-{place}" if is_together else f"person-{person + 1}-{random.choice('ab')}"
        dies = not is_together and random.random() < _DIES
        return Visit(
            prompt=random.choice(desk.prompts),
            metadata=desk.metadata[person],
            session=session,
            dies_at=random.randint(1, _MOST_CALLS) if dies else None,
            endless=random.random() < _LOOPS,
            together=is_together,
        )

    def reply(self, place: int, number: int, request: ModelRequest) -> Reply:
        """Return an answer, or calls of the offered tools."""
        random, visit = self._random, self.visits[place]
        if visit.endless and place in self._last:
            return self._last[place]
        offered = [spec for spec in request.tools if spec.name != OUTPUT_TOOL]
        if not offered or ((number > 0 or not visit.endless) and random.random() < _ANSWERS):
            return self._answer(request)
        if place in self._last and random.random() < _REPEATS:
            return self._last[place]
        calls = [self._call(random.choice(offered)) for _ in range(random.choice(_CALLS))]
        if len(calls) > 1 and random.random() < _TWICE:
            calls[1:] = [self._again(calls[0], offered) for _ in calls[1:]]
        self._last[place] = asks_for(*calls)
        return self._last[place]

    def _call(self, spec: ToolSpec) -> tuple[str, Mapping[str, JsonValue]]:
        arguments = self._arguments.draw(spec.parameters, spec.name)
        return spec.name, arguments if isinstance(arguments, Mapping) else {}

    def _again(
        self, call: tuple[str, Mapping[str, JsonValue]], offered: Sequence[ToolSpec]
    ) -> tuple[str, Mapping[str, JsonValue]]:
        """Return the call once more, or one of its tool with other arguments."""
        spec = next(spec for spec in offered if spec.name == call[0])
        return call if self._random.random() < 0.5 else self._call(spec)  # noqa: PLR2004 (even chances)

    def _answer(self, request: ModelRequest) -> Reply:
        """Return an answer, of the type that the request asks for."""
        random = self._random
        for spec in request.tools:
            if spec.name == OUTPUT_TOOL:
                return asks_for(self._call(spec))
        if request.output is not None:
            return json.dumps(self._arguments.draw(request.output.schema))
        texts = [*map(str, self._memory.values), *self._domain.texts]
        return random.choice(texts) if texts and random.random() < _ANSWERS else "Done."

    def answer(self, place: int, number: int, interrupts: Sequence[Interrupt]) -> Mapping[str, Answer]:  # noqa: ARG002 (by chance)
        """Return an answer to each interrupt."""
        return {interrupt.id: self._decision(interrupt) for interrupt in interrupts}

    def _decision(self, interrupt: Interrupt) -> Answer:
        decision = self._random.choice(ANSWERABLE[interrupt.kind])
        choices = interrupt.choices or _TEXTS
        is_asked = interrupt.kind is InterruptKind.QUESTION
        return Answer(decision, self._random.choice(choices) if is_asked else "")

    def hear(self, result: str) -> None:
        """Remember the values of a result."""
        self._memory.add(result)
