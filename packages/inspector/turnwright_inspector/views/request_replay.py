"""The requests of a turn, built again from its journal as the driver built them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnwright.agent import Agent
from turnwright.driver.dependencies import Dependencies
from turnwright.errors import TurnwrightError
from turnwright.journal.turn_journal import first_fact
from turnwright.message import Message, ToolSpec
from turnwright.model.protocol import ModelRequest
from turnwright.transcript.history import History
from turnwright.transcript.pairing import repair_pairs
from turnwright.transcript.request_builder import Conversation, settings_in
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states import CallModel, Conclude, State, TurnMachine
from turnwright_states import facts as f

from .steps import Step
from .turn_record import Journal, TurnRecord


@dataclass(frozen=True, slots=True)
class Sending:
    """A request as an attempt sent it, after the fact `after`. `answered`: the journal has its outcome.

    `tool_names` are those of its tools, where the journal says them; it never has their definitions.
    """

    request: ModelRequest
    after: int
    answered: bool
    tool_names: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Builds the requests of a turn again. `tools` are the definitions that each request carried.

    `history` is what was said before the turn, `show_budget_to_model` the engine's setting of that name.
    """

    turn_id: str
    journal: Journal
    agent: Agent
    tools: tuple[ToolSpec, ...]
    history: Sequence[Message]
    show_budget_to_model: bool | str

    @classmethod
    def of(cls, turn: TurnRecord, setup: Dependencies, history: Sequence[Message]) -> "Rebuilt":
        """Return the requests of a turn as far as it is shown.

        Raises pydantic's `ValidationError` if the journal's agent cannot be read.
        """
        agent = Agent.from_json(turn.started.agent)
        try:
            tools = setup.specs_for(agent)
        except TurnwrightError:
            tools = ()
        return cls(turn.row.id, turn.facts, agent, tools, history, setup.show_budget_to_model)

    @property
    def before(self) -> tuple[Message, ...]:
        """The beginning of every request: the instructions, and the messages before the turn."""
        text = self.agent.fixed_instructions
        instructions = (Message.system(text),) if text else ()
        return (*instructions, *self._history.sent_messages)

    @property
    def _history(self) -> History:
        return History.of(repair_pairs(self.history)[0])

    def sendings(self, step: Step) -> tuple[Sending, ...]:
        """Return the request of each of the step's attempts in the journal.

        The last one has no answer if the turn is in that attempt, or was stopped during it: then it may not have been
        sent at all. Raises `UnreadableTurnError` if the facts do not follow from each other.
        """
        sendings: list[Sending] = []
        for after, is_answered in _attempts(self.journal, step):
            request = self._request(after)
            if request is not None:
                sendings.append(Sending(request[0], after, is_answered, request[1]))
        return tuple(sendings)

    def last(self, step: Step) -> ModelRequest | None:
        """Return the request of the step's last attempt, answered or not."""
        places = list(_attempts(self.journal, step))
        request = self._request(places[-1][0]) if places else None
        return request and request[0]

    def _request(self, after: int) -> tuple[ModelRequest, tuple[str, ...] | None] | None:
        facts = self.journal[:after]
        with reading(self.turn_id):
            machine = TurnMachine.resume(fact for _, fact in facts)
            action, transcript = machine.action, Transcript.of(facts)
        if not isinstance(action, CallModel | Conclude) or (isinstance(action, Conclude) and not action.asks_model):
            return None
        conversation = Conversation(
            self.agent,
            history=self._history,
            transcript=transcript,
            all_tools=self.tools,
            show_budget_to_model=self.show_budget_to_model,
            settings=settings_in(first_fact(self.turn_id, self.journal)),
            turn_id=self.turn_id,
        )
        names = self.agent.tools_needed if self.agent.tools == self.agent.tools_needed else None
        if transcript.prepared is not None and transcript.prepared.tools is not None:
            names = transcript.prepared.tools
        return conversation.request(action, machine.turn), names


def _is_compacted_next(facts: Journal, place: int) -> bool:
    return place + 1 < len(facts) and isinstance(facts[place + 1][1], f.CompactionStarted)


def _attempts(journal: Journal, step: Step) -> Iterator[tuple[int, bool]]:
    """Return the fact before each attempt, and whether the journal has the attempt's outcome."""
    facts, compacting = journal[step.first - 1 : step.last], False
    for place, (seq, fact) in enumerate(facts):
        if isinstance(fact, f.CompactionStarted):
            compacting = True
        elif compacting and isinstance(fact, f.Compacted | f.AttemptFailed):
            compacting = fact.state is State.COMPACT
            continue
        match fact:
            case f.AttemptFailed(state=State.TOOL_EXEC | State.REVIEW):
                pass  # one at a synthesis or a review
            case f.AttemptFailed() if _is_compacted_next(facts, place):
                yield seq - 1, True
            case f.AttemptFailed(retry=True) | f.Concluded(retry=True):
                yield seq - 1, True
            case f.ModelReplied() | f.Concluded() | f.AttemptFailed():
                yield seq - 1, True
                return
            case f.StepFinished() | f.TurnEnded():
                yield seq - 1, False
                return
            case _:
                pass
    yield step.last, False
