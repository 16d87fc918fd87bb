"""The typed answer of a turn: a stage of its reviews, and how a model is asked for it (docs/rules.md#typed-answers)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from pydantic import JsonValue

from turnwright._base.words import name_of, show_value
from turnwright.agent import OUTPUT_TOOL, OutputMode
from turnwright.context import TurnContext
from turnwright.errors import HookFailedError, Retry
from turnwright.message import OutputToolSpec
from turnwright.model.protocol import Delta, Model, ModelError, OutputFormat, ResponseToolCall, TextDelta, ToolCallDelta
from turnwright.transcript.output_type import OutputType
from turnwright.transcript.request_builder import RequestedOutput
from turnwright_states import CallState, Finish

from .hooks.asking import ask
from .review import Reviewing

#: Checks an answer and returns it, or a changed one. It raises `Retry` to refuse the answer.
Validator = Callable[[TurnContext[Any], Any], Any | Awaitable[Any]]

#: The errors that a validator may raise.
_RETRIED: Final = (Retry, ModelError)
_CUT_OFF: Final = "the reply was cut off at the output limit; give a shorter answer"


def mode_for(mode: OutputMode, model: Model) -> OutputMode:
    """Return how to ask this model for a typed answer: `auto` is the provider's own way if it has one, else a tool."""
    if mode != "auto":
        return mode
    return "native" if getattr(getattr(model, "capabilities", None), "json_schema_output", False) else "tool"


class TypedOutput:
    """Judges the typed answer of each reply. `mode` is resolved; `context` returns the turn's context.

    `agent` is the agent's name, and `grace` the seconds that a canceled validator may go on.
    """

    def __init__(
        self,
        type_: OutputType,
        mode: OutputMode,
        validators: Sequence[Validator],
        context: Callable[[], TurnContext[object]],
        *,
        agent: str,
        grace: float,
    ) -> None:
        #: The text of the answer that has streamed in, the call that it belongs to, and the part that was shown.
        self._streamed = ""
        self._index = -1
        self._shown_part: JsonValue = None
        self.type = type_
        self.mode = mode
        self._validators = validators
        self._context = context
        self._agent = agent
        self._grace = grace

    @property
    def requested(self) -> RequestedOutput:
        """The part of a request that asks for it."""
        schema = self.type.asked
        match self.mode:
            case "native":
                return RequestedOutput(format=OutputFormat(OUTPUT_TOOL, schema))
            case "prompt":
                return RequestedOutput(prompt=self.type.prompt)
            case _:
                tool = OutputToolSpec(OUTPUT_TOOL, self.type.description, schema, self.type.field)
                return RequestedOutput(tool=tool)

    def is_answer(self, call: ResponseToolCall) -> bool:
        """Return whether a call of a reply is the typed answer."""
        return self.mode == "tool" and call.name == OUTPUT_TOOL

    def partial(self, delta: Delta) -> JsonValue:
        """Return the answer as far as it has streamed in, unvalidated; None if this piece adds nothing to it."""
        match delta:
            case ToolCallDelta(tool=tool, arguments_delta=text, call_index=index) if self.mode == "tool":
                if tool != OUTPUT_TOOL:
                    return None
                begins = index != self._index
                self._index = index
            case TextDelta(text=text) if self.mode != "tool":
                begins = False
            case _:
                return None
        self._streamed = text if begins else self._streamed + text
        part = self.type.partial(self._streamed)
        if part is None or part == self._shown_part:
            return None
        self._shown_part = part
        return part

    def restart(self) -> None:
        """Forget what has streamed in: another reply begins."""
        self._streamed, self._index, self._shown_part = "", -1, None

    async def review(self, reviewing: Reviewing) -> None:
        """Judge a reply. A reply that only asks for other calls has no answer yet. Raises `Retry` for a misfit."""
        answers = [call for call in reviewing.calls if call.made.output]
        if answers:
            mistakes: list[str] = []
            for call in answers:
                if call.state is CallState.SETTLED:  # its arguments are not a JSON object
                    mistakes.append(call.made.refused)
                    continue
                try:
                    data = self.type.unwrap(dict(call.arguments))
                    output = await self._validate(self.type.load(data), data)
                except Retry as mistake:
                    mistakes.append(mistake.feedback)
                else:
                    reviewing.answer, reviewing.output = call.id, output
                    return
            raise Retry(mistakes[0])
        if reviewing.calls:
            return
        reply = reviewing.reply
        try:
            data = self.type.find_in_text(reply.text)
            value = self.type.load(data)
        except Retry:
            if reply.finish is Finish.LENGTH:
                raise Retry(_CUT_OFF) from None
            if self.mode == "tool":
                raise Retry(f"give the answer by calling the tool {OUTPUT_TOOL}") from None
            raise
        reviewing.output = await self._validate(value, data)

    async def _validate(self, value: object, data: JsonValue) -> JsonValue:
        """Return an answer, made from `data`, as the journal keeps it, after its validators.

        Raises `Retry` if one of them does, and `HookFailedError` if they return what is not an answer of the type.
        """
        for validator in self._validators:
            name = name_of(validator)
            subject = f"agent {self._agent!r}: output validator {name!r}"
            value = await ask(subject, validator, self._context(), value, grace=self._grace, allowed_errors=_RETRIED)
            try:
                self.type.dump(value, data)
            except TypeError as misfit:
                raise HookFailedError(
                    f"{subject} returned {show_value(value)}, which is not an answer: {misfit}"
                ) from misfit
        return self.type.dump(value, data)

    def load(self, data: JsonValue) -> object:
        """Return the answer of a journal. The validators do not run again."""
        return self.type.load(data)
