"""Reads the `trajectory.json` of trae-agent.

A reply is in `llm_interactions`, and, with the results of its calls, in `agent_steps`. A file that is cut may have
only the first of them. A step without a reply is a request that failed.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final

from msgspec import Struct

from turnwright_audit.trajectories.atif import ResultStatus, StepMetrics, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, join_texts
from turnwright_audit.trajectories.source import Recording
from turnwright_audit.trajectories.values import Values

from .chat_messages import Content, text_of

NAME: Final = "trae-agent"
#: The tool that ends a run. Its call has no result.
_DONE: Final = "task_done"
_NO_STEPS_LEFT: Final = "exceeded maximum steps"


class Call(Struct):
    """A tool call."""

    call_id: str | None = None
    name: str = ""
    arguments: Any = None


class Result(Struct):
    """The result of a call: its output, and what it has written as errors."""

    call_id: str | None = None
    success: bool | None = None
    result: str | None = None
    error: str | None = None


class Usage(Struct):
    """The tokens of a response."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class Response(Struct):
    """A reply of the model."""

    content: Content = None
    model: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    tool_calls: list[Call] | None = None


class InputMessage(Struct):
    """A new message of a request, or a result in it."""

    role: str = ""
    content: Content = None
    tool_result: Result | None = None


class Interaction(Struct):
    """A request that had a reply."""

    timestamp: str | None = None
    provider: str | None = None
    input_messages: list[InputMessage] | None = None
    response: Response | None = None


class AgentStep(Struct):
    """A step of the agent: a reply and its results, or an error."""

    timestamp: str | None = None
    llm_response: Response | None = None
    tool_results: list[Result] | None = None
    error: str | None = None


class Document(Struct):
    """A whole file."""

    task: str | None = None
    provider: str | None = None
    model: str | None = None
    llm_interactions: list[Interaction] | None = None
    agent_steps: list[AgentStep] | None = None
    success: bool | None = None
    final_result: str | None = None


_SHAPE: Final = Shape(Document)


def recognizes(recording: Recording) -> bool:
    """Whether the document has the two lists of trae-agent, or the first of them in a file that is cut."""
    first = recording.document
    if not isinstance(first, Mapping) or "task" not in first:
        return False
    return isinstance(first.get("llm_interactions"), list) or isinstance(first.get("agent_steps"), list)


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of each document."""
    values = Values(recording, _SHAPE, {"llm_interactions", "agent_steps"})
    runs = (_run(document, cut=values.cut) for document in values)
    return values.noted(runs, "no run in it could be read")


def _run(document: Document, *, cut: bool) -> Trajectory:
    run = RunBuilder(NAME, agent=NAME, model=document.model)
    run.notes.terminal_tools = [_DONE]
    interactions = document.llm_interactions or []
    steps = document.agent_steps or []
    replies = [step for step in steps if step.llm_response is not None]
    if not interactions and document.task:
        run.user(document.task)
    for number, (interaction, step) in enumerate(zip_longest(interactions, replies)):
        if interaction is not None:
            _add_messages(run, interaction.input_messages or (), first=number == 0)
        response = (interaction and interaction.response) or (step and step.llm_response) or Response()
        provider = (interaction and interaction.provider) or document.provider or ""
        _add_reply(run, response, (interaction or step).timestamp, provider)
        following = interactions[number + 1].input_messages if number + 1 < len(interactions) else None
        results = (step and step.tool_results) or [
            following_step.tool_result for following_step in following or () if following_step.tool_result
        ]
        _add_results(run, results)
    for step in steps:
        if step.llm_response is None and step.error:
            run.system(step.error, at=step.timestamp, error=True)
    return run.finish(ending=_ending(document, run), success=None if cut else document.success)


def _add_messages(run: RunBuilder, messages: Iterable[InputMessage], *, first: bool) -> None:
    for message in messages:
        if message.tool_result is not None:
            continue
        text = text_of(message.content)
        if first and message.role == "user":
            run.user(text)
        elif text:  # later messages are reminders that the agent writes itself
            run.system(text)


def _add_reply(run: RunBuilder, response: Response, at: str | None, provider: str) -> None:
    step = run.reply(
        text_of(response.content),
        at=at,
        model=response.model,
        metrics=_metrics(response.usage, apart=provider in {"anthropic", "bedrock"}),
        stop_reason=response.finish_reason,
    )
    for call in response.tool_calls or ():
        if call.name:
            run.call(call.call_id, call.name, call.arguments, step=step)


def _add_results(run: RunBuilder, results: Iterable[Result]) -> None:
    for result in results:
        content = join_texts(result.result, result.error)
        status: ResultStatus | None = None if result.success is None else "ok" if result.success else "error"
        run.result(result.call_id, content, status=status)


def _metrics(usage: Usage | None, *, apart: bool) -> StepMetrics | None:
    """Return the tokens. Some providers count those of the cache apart."""
    if usage is None:
        return None
    prompt = usage.input_tokens
    if apart and prompt is not None:
        prompt += (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return StepMetrics(
        prompt_tokens=prompt, completion_tokens=usage.output_tokens, cached_tokens=usage.cache_read_input_tokens
    )


def _ending(document: Document, run: RunBuilder) -> str | None:
    last = document.agent_steps[-1] if document.agent_steps else None
    if last is not None and last.error:
        return "error"
    if document.final_result and _NO_STEPS_LEFT in document.final_result:
        return "max_steps"
    calls = run.steps[-1].tool_calls if run.steps else None
    is_done = bool(calls) and any(call.function_name == _DONE for call in calls or ())
    return _DONE if is_done else None
