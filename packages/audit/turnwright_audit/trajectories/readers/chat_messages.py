"""Adds messages in the form of OpenAI's chat completions to a run. Several formats have them."""

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from turnwright_audit.trajectories.atif import StepExtra, StepMetrics, StepNotes, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder


class Part(Struct):
    """A part of a message's content."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: Any = None
    input_audio: Any = None
    file: Any = None


Content = str | list[str | Part] | None


class Function(Struct):
    """The name and the arguments of a call."""

    name: str = ""
    arguments: Any = None


class CustomCall(Struct):
    """The name and the text of the call of a custom tool."""

    name: str = ""
    input: str = ""


class ToolCall(Struct):
    """A call. Some programs write the function's fields into the call itself."""

    id: str | None = None
    function: Function | None = None
    custom: CustomCall | None = None
    name: str = ""
    arguments: Any = None


class TokenDetails(Struct):
    """The tokens of the prompt that were cached."""

    cached_tokens: int | None = None


class Usage(Struct):
    """The tokens of a response, in the words of chat completions or of responses, and their cost if it is known."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    input_tokens_details: TokenDetails | None = None
    cost: float | None = None

    def metrics(self) -> StepMetrics | None:
        """Return the usage as a step has it; None if nothing is known."""
        prompt = self.input_tokens if self.prompt_tokens is None else self.prompt_tokens
        completion = self.output_tokens if self.completion_tokens is None else self.completion_tokens
        details = self.prompt_tokens_details or self.input_tokens_details
        if prompt is None and completion is None and self.cost is None:
            return None
        return StepMetrics(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=details.cached_tokens if details else None,
            cost_usd=self.cost,
        )


class Message(Struct):
    """A message of any role. Benchmarks note who asked for a call, whether it failed, and what a reply cost."""

    id: str | None = None
    role: str = ""
    content: Content = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    function_call: Function | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    usage: Usage | None = None
    requestor: str | None = None
    error: Any = None
    cost: float | None = None


class Chat:
    """A run that grows by messages."""

    def __init__(self, run: RunBuilder) -> None:
        self.run = run
        self._function: str | None = None

    def add(
        self, message: Message, *, model: str | None = None, usage: Usage | None = None, stop: str | None = None
    ) -> bool:
        """Add a message; False if it has no role. What is given beside it is known of a reply."""
        text = text_of(message.content)
        match message.role:
            case "":
                return False
            case "user" if text or not message.tool_calls:  # a simulated user may have tools of its own
                self.run.user(text)
            case "assistant":
                self._reply(message, text or message.refusal or "", model, usage or message.usage, stop)
            case "user":
                pass
            case "tool" if message.requestor != "user":
                self.run.result(
                    message.tool_call_id or message.id, text, status="error" if message.error is True else None
                )
            case "tool":
                pass
            case "function":
                self.run.result(self._function, text)
            case _:
                self.run.system(text)
        return True

    def _reply(self, message: Message, text: str, model: str | None, usage: Usage | None, stop: str | None) -> None:
        step = self.run.reply(
            text,
            model=model,
            reasoning=message.reasoning_content,
            metrics=usage.metrics() if usage else None,
            stop_reason=stop,
        )
        if message.cost is not None:
            step.metrics = step.metrics or StepMetrics()
            step.metrics.cost_usd = message.cost
        for call in message.tool_calls or ():
            add_call(self.run, step, call)
        if message.function_call is not None and message.function_call.name:
            made = self.run.call(None, message.function_call.name, message.function_call.arguments, step=step)
            self._function = made.tool_call_id


def add_call(run: RunBuilder, step: TrajectoryStep, call: ToolCall) -> None:
    """Add a call to a reply. One without a name is counted as unreadable."""
    if call.custom is not None and call.custom.name:
        run.call(call.id, call.custom.name, {"input": call.custom.input}, step=step)
        return
    function = call.function or Function(call.name, call.arguments)
    if function.name:
        run.call(call.id, function.name, function.arguments, step=step)
        return
    step.extra = step.extra or StepExtra()
    step.extra.turnwright = step.extra.turnwright or StepNotes()
    step.extra.turnwright.unreadable_calls += 1


def text_of(content: Content) -> str:
    """Return the text of a content. Pictures and recordings are named by the hashes of their data."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part if isinstance(part, str) else _text_of(part) for part in content)


def _text_of(part: Part) -> str:
    if part.text is not None:
        return part.text
    if part.refusal is not None:
        return part.refusal
    return named_by_hash(part.type or "part", part.image_url or part.input_audio or part.file)


def named_by_hash(kind: str, data: object) -> str:
    """Return a name for data that is not text: equal data have equal names."""
    digest = hashlib.sha256(msgspec.json.encode(data)).hexdigest()
    return f"[{kind} {digest[:12]}]"
