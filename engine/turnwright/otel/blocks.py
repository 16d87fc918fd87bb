"""Blocks of work as spans: a span is the current one while its block runs, so that inner spans are its children."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from functools import partial
from types import TracebackType
from typing import Final, Self, cast

from opentelemetry import context, trace

from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import ModelError, ResponseInfo
from turnwright.telemetry import AttemptWork, CallWork, error_type
from turnwright_states import Cause, Finish, State, Usage
from turnwright_states.inputs import is_blank
from turnwright_states.verdict import RuleDecision

from . import content, names
from .instruments import Instruments

Value = str | bool | int | float | list[str]

#: The attributes of an attempt's metrics, besides its error.
_MEASURED: Final = (
    names.OPERATION,
    names.PROVIDER,
    names.MODEL,
    names.RESPONSE_MODEL,
    names.SERVER,
    names.PORT,
)


class SpanBlock(ABC):
    """A block of work with a span."""

    def __init__(
        self,
        tracer: trace.Tracer,
        name: str,
        kind: trace.SpanKind,
        attributes: Mapping[str, Value],
        *,
        links: list[trace.Link] | None = None,
        content_of: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._kind = kind
        self._attributes = attributes
        self._links = links
        self._content_of = content_of
        self.span: trace.Span = trace.INVALID_SPAN
        self._before: Token[context.Context] | None = None
        self._start = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        self.span = self._tracer.start_span(
            self._name, kind=self._kind, attributes=self._attributes, links=self._links, record_exception=False
        )
        self._before = context.attach(self._context())
        if self._content_of is not None:
            try:
                self._record_content(self._content_of)
            except BaseException:
                # A block is entered before it is left.
                self._restore()
                self.span.end()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        try:
            self._finish(error, time.perf_counter() - self._start)
        finally:
            self._restore()
            self.span.end()

    def _context(self) -> context.Context:
        """Return the context of the block."""
        return trace.set_span_in_context(self.span)

    @abstractmethod
    def _finish(self, error: BaseException | None, seconds: float) -> None:
        """Record the result of the work. `error` is the exception of the block."""

    def _record_content(self, content_of: Callable[[], Mapping[str, object]]) -> None:
        """Record content as JSON. A span that is not recorded does not build it, because it may be long."""
        if self.span.is_recording():
            for name, value in content_of().items():
                if value:
                    self.span.set_attribute(name, value if isinstance(value, str) else content.as_json(value))

    def _record_failure(self, kind: str) -> None:
        """Record an error by its kind alone, because messages quote what people write."""
        self.span.set_attribute(names.ERROR, kind)
        self.span.set_status(trace.Status(trace.StatusCode.ERROR, kind))

    def _restore(self) -> None:
        """Restore the previous context."""
        if self._before is None:
            return
        # It fails when an abandoned coroutine is closed in another context. `detach` would log that as an error.
        with suppress(ValueError, RuntimeError):
            self._before.var.reset(self._before)


class AttemptBlock(SpanBlock):
    """One attempt at a model's reply, as a span `chat`. `used` receives its usage."""

    def __init__(
        self,
        tracer: trace.Tracer,
        work: AttemptWork,
        about: Mapping[str, Value],
        instruments: Instruments,
        *,
        add_usage: Callable[[Usage], None],
        full: bool,
    ) -> None:
        attributes: dict[str, Value] = {
            names.OPERATION: "chat",
            **about,
            names.STATE: str(work.state),
            names.STEP: work.step,
            names.ATTEMPT: work.attempt,
        }
        if work.request.max_tokens is not None:
            attributes[names.MAX_TOKENS] = work.request.max_tokens
        if work.request.settings is not None:
            attributes |= _list_settings(work.request.settings)
        name = f"chat {about[names.MODEL]}".strip()
        content_of = partial(_describe_request, work) if full else None
        super().__init__(tracer, name, trace.SpanKind.CLIENT, attributes, content_of=content_of)
        self._work = work
        self._measured = instruments
        self._add_usage = add_usage
        self._full = full

    def _finish(self, error: BaseException | None, seconds: float) -> None:
        work, span = self._work, self.span
        reply = work.reply
        response = _read_response(work, error)
        if reply is not None:
            span.set_attribute(names.FINISH, [reply.finish_reason or content.finish_of(reply)])
            if self._full:
                self._record_content(lambda: {names.OUTPUT: content.output_of(reply)})
        elif not work.error:
            span.set_attribute(names.INTERRUPTED, value=True)
        measures = self._record_response(response)
        if work.usage is not None:
            tell_usage(span, work.usage)
            self._measured.used(work.usage, response.cache_creation_input_tokens, measures)
            self._add_usage(work.usage)
        first = response.time_to_first_chunk
        if first is not None:
            self._measured.first_chunk.record(first, measures)
        failure = work.error or _empty(work)
        if failure:
            self._record_failure(failure)
            measures[names.ERROR] = failure
        self._measured.chat.record(seconds, measures)

    def _record_response(self, response: ResponseInfo) -> dict[str, str | int]:
        """Record the provider's details, and return the attributes of the attempt's metrics."""
        first = response.time_to_first_chunk
        details: dict[str, Value | None] = {
            names.RESPONSE_ID: response.id or None,
            names.RESPONSE_MODEL: response.model or None,
            names.CACHE_READ: response.cache_read_input_tokens,
            names.CACHE_WRITE: response.cache_creation_input_tokens,
            names.FIRST_CHUNK: first,
            names.STREAM: None if first is None else True,
        }
        self.span.set_attributes({name: value for name, value in details.items() if value is not None})
        attributes = {**self._attributes, names.RESPONSE_MODEL: response.model}
        return {name: value for name in _MEASURED if (value := attributes.get(name)) and isinstance(value, str | int)}


class CallBlock(SpanBlock):
    """One execution of a tool, as a span `execute_tool`."""

    def __init__(
        self, tracer: trace.Tracer, work: CallWork, about: Mapping[str, Value], instruments: Instruments, *, full: bool
    ) -> None:
        attributes: dict[str, Value] = {
            names.OPERATION: "execute_tool",
            names.TOOL: work.tool,
            names.TOOL_TYPE: "function",
            names.CALL: work.id,
            **about,
            names.ATTEMPT: work.attempt,
        }
        if work.description:
            attributes[names.TOOL_DESCRIPTION] = work.description
        if work.child:
            attributes[names.CHILD] = work.child
        if work.via:
            attributes[names.ANSWER_VIA] = work.via
        if work.wait is not None:
            attributes[names.WAIT] = work.wait
        attributes |= describe_rules(work.broken)
        name = f"execute_tool {work.tool}"
        content_of = (lambda: {names.ARGUMENTS: content.as_json(dict(work.arguments))}) if full else None
        super().__init__(tracer, name, trace.SpanKind.INTERNAL, attributes, content_of=content_of)
        self._work = work
        self._measured = instruments
        self._full = full

    def _finish(self, error: BaseException | None, seconds: float) -> None:
        work, span = self._work, self.span
        measures: dict[str, str | int] = {names.TOOL: work.tool, names.AGENT: str(self._attributes[names.AGENT])}
        if work.status:
            span.set_attribute(names.STATUS, work.status)
        else:
            span.set_attribute(names.INTERRUPTED, value=True)
        if self._full and work.status and work.status != "waiting":
            self._record_content(lambda: {names.RESULT: work.result})
        failure = work.error or ("" if not isinstance(error, Exception) or work.status else error_type(error))
        if failure:
            self._record_failure(failure)
            measures[names.ERROR] = failure
        self._measured.tool.record(seconds, measures)


def describe_rules(decisions: Sequence[RuleDecision]) -> dict[str, Value]:
    """Return the attributes of broken rules: those of the severest one, which is the first."""
    if not decisions:
        return {}
    return {names.RULE: decisions[0].rule, names.RULE_EFFECT: str(decisions[0].effect)}


def tell_usage(span: trace.Span, usage: Usage) -> None:
    """Record the usage. The cost, in the currency of the prices, is recorded only if there are prices."""
    span.set_attribute(names.INPUT_TOKENS, usage.input_tokens)
    span.set_attribute(names.OUTPUT_TOKENS, usage.output_tokens)
    if usage.cached_tokens:
        span.set_attribute(names.CACHE_READ, usage.cached_tokens)
    if usage.reasoning_tokens:
        span.set_attribute(names.REASONING_TOKENS, usage.reasoning_tokens)
    if usage.cost:
        span.set_attribute(names.COST, usage.cost)


def _list_settings(settings: ModelSettings) -> dict[str, Value]:
    values = settings.to_json()
    attributes: dict[str, Value] = {}
    for name in names.SETTINGS.keys() & values:
        value = values[name]
        attributes[names.SETTINGS[name]] = list(map(str, value)) if isinstance(value, list) else cast("float", value)
    return attributes


def _read_response(work: AttemptWork, error: BaseException | None) -> ResponseInfo:
    """Return the provider's details, of a partial reply too."""
    reply = error.partial if work.reply is None and isinstance(error, ModelError) else work.reply
    return ResponseInfo() if reply is None or reply.response is None else reply.response


def _empty(work: AttemptWork) -> str:
    """Return the cause of an empty reply, which the machine treats as a failure."""
    reply = work.reply
    if reply is None or work.state is State.CONCLUDE or reply.calls or not is_blank(reply.text):
        return ""
    return str(Cause.CONTENT_FILTER if reply.finish is Finish.CONTENT_FILTER else Cause.EMPTY_REPLY)


def _describe_request(work: AttemptWork) -> Mapping[str, object]:
    return {
        names.INSTRUCTIONS: content.instructions_of(work.request),
        names.INPUT: content.input_of(work.request),
        names.DEFINITIONS: content.definitions_of(work.request),
    }
