"""A guest who decides by chance: visits, replies of the model and answers of people, with values of the domain."""

import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from pydantic import JsonValue

from turnwright.agent import OUTPUT_TOOL
from turnwright.context import JsonObject
from turnwright.journal.answers import ANSWERABLE, Answer, approve, settled
from turnwright.message import ToolSpec
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import asks_for
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import Decision, InterruptKind
from turnwright_testing.json_values import TEXTS

from .desk import Desk
from .domain import Arguments, Domain, Memory
from .rehearsal import Script
from .visit import Reply, Visit

#: The visits of a case, and the calls of a reply, each as often as it stands here. During a call of such a number, a
#: process dies or a person interjects.
_VISITS: Final = (1, 1, 2, 2, 3, 4)
_CALLS: Final = (1, 1, 1, 2, 3)
#: How often a model answers instead of asking, repeats its last calls, calls one tool with one argument twice, loops.
_ANSWERS: Final = 0.25
_REPEATS: Final = 0.15
_TWICE: Final = 0.2
_LOOPS: Final = 0.08
#: How often a model makes only calls that succeeded earlier, after its first ones.
_KNOWS: Final = 0.15
#: How often a process dies, and visits begin together.
_DIES: Final = 0.2
_TOGETHER: Final = 0.1
#: How often the person aborts a turn while a call runs, or says something.
_INTERJECTS: Final = 0.2
#: The keys of metadata that name a person, and the company of one.
_PERSON: Final = re.compile(
    "account|client|company|customer|employee|guest|mail|member|name|org|owner|person|reader|tenant|user"
)
_TEXTS: Final = ("yes", "no", "")
#: How often a person answers another text than the choices of a question.
_UNLISTED: Final = 0.15
#: A plain prompt, which is drawn more often than each of the others.
_PLAIN: Final = "hi"
#: How often a person approves equal calls too, and how often the model then repeats its calls.
_COVERS: Final = 0.25
_COVERED: Final = 0.3
#: How often a person changes the arguments of an approved call, and how often a call that waits gets its result, and
#: this is an error.
_CHANGES: Final = 0.35
_SETTLES: Final = 0.7
_FAILS: Final = 0.2


class Chance(Script):
    """Decides by the seed: the same desk and the same seed make the same case."""

    def __init__(self, desk: Desk, domain: Domain, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 (repeatable, not secret)
        self._memory = Memory()
        self._arguments = Arguments(domain, self._random, self._memory)
        self._desk = desk
        self._domain = domain
        self._last: dict[int, ModelResponse] = {}
        #: How often the model of a visit repeats its last calls.
        self._repeats: dict[int, float] = {}
        self._prompts = desk.prompts or (_PLAIN, _PLAIN, *TEXTS)
        super().__init__(tuple(self._visit(place) for place in range(self._random.choice(_VISITS))))
        #: The visits whose model, after its first calls, makes only calls that succeeded earlier.
        self._knowing = {place for place in range(len(self.visits)) if self._random.random() < _KNOWS}

    def _visit(self, place: int) -> Visit:
        random, desk = self._random, self._desk
        person = random.randrange(len(desk.metadata))
        # A person has two sessions. Turns of one session follow each other, also with another role.
        owner = next(entry for entry in range(person + 1) if entry == person or self._is_one_person(entry, person))
        is_together = place > 0 and random.random() < _TOGETHER
        session = f"together-{place}" if is_together else f"person-{owner + 1}-{random.choice('ab')}"
        dies = not is_together and random.random() < _DIES
        interjection = (random.choice(_CALLS), random.choice(("", None, random.choice(self._prompts).strip())))
        return Visit(
            prompt=random.choice(self._prompts),
            metadata=desk.metadata[person],
            session=session,
            dies_at=random.choice(_CALLS) if dies else None,
            interjection=interjection if not dies and random.random() < _INTERJECTS else None,
            endless=random.random() < _LOOPS,
            together=is_together,
        )

    def _is_one_person(self, *places: int) -> bool:
        """Whether these metadata name the same person."""
        names = [
            {key: value for key, value in self._desk.metadata[place].items() if _PERSON.search(key)} for place in places
        ]
        return names[0] == names[1] != {}

    def reply(self, place: int, number: int, request: ModelRequest) -> Reply:
        """Return an answer, or calls of the offered tools."""
        random, visit = self._random, self.visits[place]
        if visit.endless and place in self._last:
            return self._last[place]
        offered_tools = [spec for spec in request.tools if spec.name != OUTPUT_TOOL]
        if not offered_tools or ((number > 0 or not visit.endless) and random.random() < _ANSWERS):
            return self._answer(request)
        last_tool = self._last[place].calls[0].name if place in self._last else ""
        if place in self._knowing and (known_calls := self._domain.accepted_calls[last_tool]):
            return asks_for((last_tool, random.choice(known_calls)))
        if place in self._last and random.random() < self._repeats.get(place, _REPEATS):
            return self._last[place]
        calls = [self._call(random.choice(offered_tools)) for _ in range(random.choice(_CALLS))]
        if len(calls) > 1 and random.random() < _TWICE:
            calls[1:] = [self._again(calls[0], offered_tools) for _ in calls[1:]]
        self._last[place] = asks_for(*calls)
        return self._last[place]

    def _call(self, spec: ToolSpec) -> tuple[str, Mapping[str, JsonValue]]:
        arguments = self._arguments.draw(spec.parameters, spec.name)
        return spec.name, arguments if isinstance(arguments, Mapping) else {}

    def _again(
        self, call: tuple[str, Mapping[str, JsonValue]], offered_tools: Sequence[ToolSpec]
    ) -> tuple[str, Mapping[str, JsonValue]]:
        """Return the call once more, or one of its tool with other arguments."""
        spec = next(spec for spec in offered_tools if spec.name == call[0])
        return call if self._random.random() < 0.5 else self._call(spec)  # noqa: PLR2004 (even chances)

    def _answer(self, request: ModelRequest) -> Reply:
        """Return an answer: of the type that the request asks for, else a text, perhaps inside a sentence."""
        random = self._random
        for spec in request.tools:
            if spec.name == OUTPUT_TOOL:
                return asks_for(self._call(spec))
        if request.output is not None:
            return json.dumps(self._arguments.draw(request.output.schema))
        texts, chance = [*map(str, self._memory.values), *self._domain.texts], random.random()
        if not texts or chance >= _ANSWERS:
            return "Done."
        text = random.choice(texts)
        return text if chance < _ANSWERS / 2 else f"It is {text}."

    def answer(self, place: int, number: int, interrupts: Sequence[Interrupt]) -> Mapping[str, Answer]:  # noqa: ARG002 (by chance)
        """Return an answer to each interrupt."""
        answers = {interrupt.id: self._decision(interrupt) for interrupt in interrupts}
        if any(answer.always for answer in answers.values()):
            self._repeats[place] = _COVERED
        return answers

    def person(self, place: int, number: int) -> str:  # noqa: ARG002 (by chance)
        """Return anybody, somebody whom the metadata name, or somebody whom the desk's data name."""
        users = [value for metadata in self._desk.metadata for value in metadata.values() if isinstance(value, str)]
        sources = [f"person-{number + 1}"], users, [text for text in self._domain.texts if text.isidentifier()]
        return self._random.choice(self._random.choice([source for source in sources if source]))

    def _decision(self, interrupt: Interrupt) -> Answer:
        random = self._random
        if interrupt.kind is InterruptKind.RESULT and random.random() < _SETTLES:
            return self._result(interrupt)
        decision = random.choice(ANSWERABLE[interrupt.kind])
        if interrupt.kind is InterruptKind.QUESTION:
            texts = self._domain.texts if self._domain.texts and random.random() < _ANSWERS else _TEXTS
            is_listed = interrupt.choices and random.random() >= _UNLISTED
            return Answer(decision, random.choice(interrupt.choices if is_listed else texts))
        if interrupt.kind is InterruptKind.APPROVAL and decision is Decision.APPROVE:
            return self._approval(interrupt)
        return Answer(decision)

    def _approval(self, interrupt: Interrupt) -> Answer:
        """Return an approval of the call as it is, of equal calls too, or with other arguments."""
        if interrupt.may_cover_equal_calls and self._random.random() < _COVERS:
            return approve(always=True)
        tool = next((tool for tool in self._desk.tools if tool.name == interrupt.tool), None)
        if tool is None or interrupt.is_shared or self._random.random() >= _CHANGES:
            return approve()
        new_arguments = self._arguments.draw(tool.parameters, tool.name)
        return approve(arguments=new_arguments if isinstance(new_arguments, Mapping) else None)

    def _result(self, interrupt: Interrupt) -> Answer:
        """Return the result of a call that waits for it, as the user states it or its schema has it, or an error."""
        if self._random.random() < _FAILS:
            return settled(error="it failed")
        result = self._domain.result(interrupt.tool)
        if result is not None:
            return settled(self._random.choice(result))
        if interrupt.schema is not None:
            return settled(self._arguments.draw(interrupt.schema))
        return settled(self._random.choice(TEXTS))

    def hear(self, tool: str, result: str, accepted_arguments: JsonObject | None) -> None:
        """Remember the values of a result, and those of the arguments."""
        self._memory.add(result)
        if accepted_arguments is not None:
            self._domain.accept(tool, accepted_arguments)
