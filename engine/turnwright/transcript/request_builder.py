"""What the model calls of one turn are sent: instructions, history, the turn so far, and what is said for one call."""

import logging
from collections.abc import Sequence
from operator import is_

from turnwright.agent import Agent
from turnwright.message import Message, ToolSpec
from turnwright.model.protocol import ModelRequest
from turnwright_states import CallModel, Conclude, EndReason, Turn

from .conclude import conclude_instruction, prompt
from .pairing import Paired, Unpaired, UnpairedError, check_pairing, repaired
from .transcript import Transcript
from .wording import budget_told

_LOG = logging.getLogger(__name__)


class Conversation:
    """Builds the requests of one turn. A request costs what is new since the one before, and the copy of a tuple.

    `history` is what was said before the turn, `transcript` what is said in it. `tools` are the definitions that every
    request carries, also while tools are disabled: providers answer 400 to emptied tools, as to a trailing assistant
    message, and so what is said for one call alone is said in the user's role (DESIGN 4.7). With
    `show_budget_to_model`, true or a template, a step's call is told what is left of the turn; it is sent, and kept
    nowhere.

    Messages that are not paired are repaired, with a warning for each change that names the turn; when `mode` is
    `reject`, they raise `UnpairedError`. Message numbers count what is sent, from 0.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        history: Sequence[Message],
        transcript: Transcript,
        tools: Sequence[ToolSpec],
        mode: Unpaired = "repair",
        show_budget_to_model: bool | str = False,
        turn_id: str = "",
    ) -> None:
        self._conclude_prompt = agent.conclude_prompt
        self._instructions = (Message.system(agent.instructions),) if agent.instructions else ()
        self._history = tuple(history)
        self._transcript = transcript
        self._tools = tuple(tools)
        self._mode: Unpaired = mode
        self._show_budget = show_budget_to_model
        self._turn_id = turn_id
        #: The instructions, the history and as many of the transcript's closed messages as `_taken` says, without those
        #: that say nothing.
        self._said = Paired()
        self._taken = 0
        #: What of the instructions and the history is not in `_said` yet, the first of it last.
        self._before = [*self._instructions, *(message for message in history if message.says_something)][::-1]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history's and the turn's: what a `history_processor` hook is given."""
        return (*self._history, *self._transcript.messages)

    def request(
        self, action: CallModel | Conclude, turn: Turn, messages: Sequence[Message] | None = None
    ) -> ModelRequest:
        """The request of one model call.

        `messages` are what a `history_processor` hook made of those of the conversation; they are sent instead. Raises
        `UnpairedError` where they are rejected.
        """
        step = action if isinstance(action, CallModel) else None
        return ModelRequest(
            messages=self._sent(messages, self._asked(action, turn)),
            tools=self._tools,
            tool_choice="auto" if step is not None and step.tools else "none",
            max_tokens=action.max_tokens,
            first=step is not None and turn.counters.steps <= 1,
        )

    def _asked(self, action: CallModel | Conclude, turn: Turn) -> list[Message]:
        """What is said for this call alone."""
        if not isinstance(action, CallModel):
            instruction = conclude_instruction(turn, action.reason, self._conclude_prompt, again=action.second_try)
            return [Message.user(instruction)]
        said: list[Message] = []
        limits = turn.limits
        if not action.tools and limits.concluding == "within" and limits.cap and not limits.allowance:
            # The one step is the last one: its call concludes.
            said.append(Message.user(conclude_instruction(turn, EndReason.STEP_CAP, self._conclude_prompt)))
        if self._show_budget and action.tools:
            template = self._show_budget if isinstance(self._show_budget, str) else None
            said.append(Message.user(budget_told(turn, template)))
        if action.nudge:
            said.append(Message.user(prompt("nudge").strip()))
        return said

    def _sent(self, messages: Sequence[Message] | None, asked: Sequence[Message]) -> tuple[Message, ...]:
        try:
            self._take_in()
            new = self._transcript.open if messages is None else self._new(messages)
            if new is not None:
                return self._said.followed_by([*[one for one in new if one.says_something], *asked])
        except UnpairedError:
            pass  # what does not follow is looked at as a whole
        given = self.messages if messages is None else messages
        said = [*self._instructions, *(message for message in given if message.says_something), *asked]
        if self._mode == "reject":
            check_pairing(said)
            return tuple(said)
        said, notes = repaired(said)
        for note in notes:
            _LOG.warning("turn %s: a request is repaired: %s", self._turn_id, note, extra={"turn": self._turn_id})
        return tuple(said)

    def _take_in(self) -> None:
        """Add what was said since the last time. Raises `UnpairedError` at the first message that does not follow."""
        while self._before:
            self._said.add(self._before[-1])
            self._before.pop()
        for message in self._transcript.closed[self._taken :]:
            if message.says_something:
                self._said.add(message)
            self._taken += 1

    def _new(self, messages: Sequence[Message]) -> Sequence[Message] | None:
        """What a hook added to the conversation as far as it is closed; None where it changed it, or left any out."""
        known = (*self._history, *self._transcript.closed)
        if len(messages) < len(known) or not all(map(is_, messages, known)):
            return None
        return messages[len(known) :]
