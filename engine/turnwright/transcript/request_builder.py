"""Builds the model requests of one turn: instructions, history, the turn so far, and texts for one call."""

import logging
import weakref
from collections.abc import Sequence
from operator import is_
from typing import Final, NamedTuple

import msgspec

from turnwright.agent import Agent
from turnwright.message import Message, ToolSpec
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import ModelRequest, OutputFormat
from turnwright_states import CallModel, Conclude, EndReason, Turn
from turnwright_states.facts import TurnStarted

from .compaction import Compactions, Size, compact_history, size_of
from .history import History, drop_signatures
from .pairing import Paired, Unpaired, UnpairedError, check_pairing, repair_pairs
from .transcript import Transcript
from .wording import budget_text, conclude_instruction, hint_text, prompt

_LOG = logging.getLogger(__name__)
#: The instructions in use. Turns of one text share one message, which encoders find in their caches.
_INSTRUCTIONS: Final[weakref.WeakValueDictionary[str, Message]] = weakref.WeakValueDictionary()


def settings_in(start: TurnStarted) -> ModelSettings | None:
    """Return the settings of the turn's model calls, as its journal has them. None if there are none."""
    return ModelSettings.from_json(start.model_settings) if start.model_settings else None


def _take_smaller(first: int | None, second: int | None) -> int | None:
    """Return the smaller limit of a reply: what is left of a budget, or a conclusion's own; and the setting's."""
    return min(first, second) if first is not None and second is not None else second if first is None else first


class RequestedOutput(NamedTuple):
    """The part of a request that asks for a typed answer: a tool, a format, or a sentence of the instructions."""

    tool: ToolSpec | None = None
    format: OutputFormat | None = None
    prompt: str = ""


_NO_OUTPUT: Final = RequestedOutput()


class Conversation(msgspec.Struct, eq=False):
    """Builds the requests of one turn. A request costs the new messages and the copy of a tuple.

    `history` has the messages before the turn, `transcript` those of the turn. Every request carries `all_tools`, even
    while tools are disabled: providers reject a request without the tools of earlier calls, or with an assistant
    message last. So the texts for one call have the user's role (docs/rules.md#concluding). With
    `show_budget_to_model`, true or a template, each step's call includes what is left of the limits. That text is not
    stored.

    Unpaired messages are repaired, with one warning for each change, or raise `UnpairedError` if `mode` is `reject`.
    Message numbers count the sent messages, from 0.
    """

    agent: Agent
    history: History
    transcript: Transcript
    all_tools: tuple[ToolSpec, ...]
    output: RequestedOutput = _NO_OUTPUT
    mode: Unpaired = "repair"
    show_budget_to_model: bool | str = False
    settings: ModelSettings | None = None
    turn_id: str = ""
    #: The instructions of the last request, and the dynamic ones that they were made of.
    _text: str = ""
    _dynamic: str | None = None
    #: Messages without signatures, by the id of the message that they are made of.
    _plain: dict[int, tuple[Message, Message]] = {}
    #: What comes before the closed messages from `_replaced_count` on: the history, or what compactions made of it.
    _base: tuple[Message, ...] = ()
    _replaced_count: int = 0
    _compactions: Compactions = ()
    #: The instructions, the history and the first `_taken_count` closed messages, without blank ones.
    _paired: Paired = msgspec.field(default_factory=Paired)
    _taken_count: int = 0
    #: The part of the history that is not in `_paired` yet.
    _before: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        self._text = self.join_prompt(self.agent.fixed_instructions)
        self._begin()

    @property
    def _instructions(self) -> tuple[Message, ...]:
        if not self._text:
            return ()
        message = _INSTRUCTIONS.get(self._text)
        if message is None:
            message = _INSTRUCTIONS[self._text] = Message.system(self._text)
        return (message,)

    def join_prompt(self, instructions: str) -> str:
        """Return the instructions with the prompt that asks for the typed answer, if there is one."""
        return "\n\n".join(filter(None, (instructions, self.output.prompt)))

    def _begin(self) -> None:
        """Begin the sent messages anew. A history was checked before, the messages of a compaction were not."""
        transcript = self.transcript
        self._base, self._replaced_count = compact_history(
            self.history.messages, transcript.closed, transcript.compactions
        )
        self._taken_count, self._compactions = self._replaced_count, transcript.compactions
        self._paired = Paired((*self._instructions, *(() if self._compactions else self.history.sent_messages)))
        self._before = tuple([message for message in self._base if message.says_something]) if self._compactions else ()

    def _follow(self) -> None:
        """Begin the sent messages anew if the instructions have changed, or the conversation was compacted."""
        transcript = self.transcript
        if transcript.instructions is self._dynamic and transcript.compactions is self._compactions:
            return
        self._dynamic = transcript.instructions
        text = self.join_prompt(self.agent.fixed_instructions if self._dynamic is None else self._dynamic)
        if text != self._text or transcript.compactions is not self._compactions:
            self._text = text
            self._begin()

    @property
    def instructions(self) -> str:
        """The instructions of the next request."""
        self._follow()
        return self._text

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the next request."""
        preparation, tools = self.transcript.prepared, self.all_tools
        if preparation is not None and preparation.tools is not None:
            tools = tuple(tool for tool in tools if tool.name in preparation.tools)
        return tools if self.output.tool is None else (*tools, self.output.tool)

    @property
    def closed(self) -> tuple[Message, ...]:
        """The messages of the history and of the closed steps, as models are sent them."""
        self._follow()
        return (*self._base, *self.transcript.closed[self._replaced_count :])

    @property
    def size(self) -> Size:
        """The size of `messages`. That of a history is known."""
        self._follow()
        base_size = size_of(self._base) if self._compactions else self.history.size
        return base_size + size_of((*self.transcript.closed[self._replaced_count :], *self.transcript.open))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the history and the turn: the argument of a `history_processor`."""
        return (*self.closed, *self.transcript.open)

    def request(
        self, action: CallModel | Conclude, turn: Turn, messages: Sequence[Message] | None = None
    ) -> ModelRequest:
        """Return the request of one model call.

        `messages`, made by a `history_processor`, replace those of the conversation. Raises `UnpairedError` if they are
        rejected.
        """
        step = action if isinstance(action, CallModel) else None
        calls = step is not None and step.tools
        transcript, output = self.transcript, self.output
        if transcript.instructions is not self._dynamic or transcript.compactions is not self._compactions:
            self._follow()
        preparation, settings = transcript.prepared, self.settings
        if preparation is not None and preparation.settings:
            settings = ModelSettings.from_json(preparation.settings).over(settings)
        thinks = settings is not None and settings.thinking
        request_messages = self._pair_messages(messages, self._make_call_texts(action, turn))
        model = None if preparation is None else preparation.model
        if model is not None or transcript.step_models:
            request_messages = self._drop_signatures(model, request_messages)
        return ModelRequest(
            messages=request_messages,
            tools=self.all_tools if preparation is None and output.tool is None else self.tools,
            # Only a call gives a typed answer. While a model thinks, some providers refuse to hold it to one.
            tool_choice="none" if not calls else "auto" if output.tool is None or thinks else "required",
            output=output.format if calls else None,
            max_tokens=action.max_tokens if settings is None else _take_smaller(action.max_tokens, settings.max_tokens),
            settings=settings,
            first=step is not None and turn.counters.steps <= 1,
        )

    def _drop_signatures(self, model: str | None, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages without signatures of other models than `model`; None is the turn's."""
        closed_messages = self.transcript.closed
        models = {
            id(closed_messages[place]): name
            for place, name in self.transcript.step_models.items()
            if place < len(closed_messages)
        }
        return tuple(
            message if models.get(id(message)) == model else self._make_unsigned(message) for message in messages
        )

    def _make_unsigned(self, message: Message) -> Message:
        """Return `unsigned(message)`, the same object each time, which encoders find in their caches."""
        entry = self._plain.get(id(message))
        if entry is None or entry[0] is not message:
            entry = self._plain[id(message)] = message, drop_signatures(message)
        return entry[1]

    def _make_call_texts(self, action: CallModel | Conclude, turn: Turn) -> list[Message]:
        """Return the texts for this call alone."""
        if not isinstance(action, CallModel):
            instruction = conclude_instruction(turn, action.reason, self.agent.conclude_prompt, again=action.second_try)
            return [Message.user(instruction)]
        texts: list[Message] = []
        limits = turn.limits
        if not action.tools and limits.concluding == "within" and limits.cap and not limits.allowance:
            # The only step is also the last one: its call concludes.
            again = action.second_try
            text = conclude_instruction(turn, EndReason.STEP_CAP, self.agent.conclude_prompt, again=again)
            texts.append(Message.user(text))
        elif action.second_try:
            texts.append(Message.user(prompt("conclude_again").strip()))
        if self.show_budget_to_model and action.tools:
            template = self.show_budget_to_model if isinstance(self.show_budget_to_model, str) else None
            texts.append(Message.user(budget_text(turn, template)))
        if (preparation := self.transcript.prepared) is not None:
            texts += map(Message.user, preparation.append)
        if action.nudge or action.stall:
            texts.append(Message.user(hint_text(action.stall)))
        return texts

    def _pair_messages(self, messages: Sequence[Message] | None, call_texts: Sequence[Message]) -> tuple[Message, ...]:
        try:
            self._take_in()
            new = self.transcript.open if messages is None else self._new(messages)
            if new is not None:
                return self._paired.followed_by([*[message for message in new if message.says_something], *call_texts])
        except UnpairedError:
            pass  # check the whole list below
        candidates = self.messages if messages is None else messages
        request_messages = [
            *self._instructions,
            *(message for message in candidates if message.says_something),
            *call_texts,
        ]
        if self.mode == "reject":
            check_pairing(request_messages)
            return tuple(request_messages)
        request_messages, notes = repair_pairs(request_messages)
        for note in notes:
            _LOG.warning("turn %s: a request is repaired: %s", self.turn_id, note, extra={"turn": self.turn_id})
        return tuple(request_messages)

    def _take_in(self) -> None:
        """Add the new messages. Raises `UnpairedError`, and adds none, if one does not fit."""
        closed_messages = self.transcript.closed
        new = closed_messages[self._taken_count :]
        self._paired.add([*self._before, *[message for message in new if message.says_something]])
        self._taken_count, self._before = self._taken_count + len(new), ()

    def _new(self, messages: Sequence[Message]) -> Sequence[Message] | None:
        """Return what a hook appended to the closed conversation; None if it changed or removed messages."""
        closed_messages = self.closed
        if len(messages) < len(closed_messages) or not all(map(is_, messages, closed_messages)):
            return None
        return messages[len(closed_messages) :]
