"""Reads spans of OpenTelemetry's GenAI conventions and of OpenInference. Each trace is a run.

A span of a model call is a step, failed ones included. A tool span is the result of the call that the reply before it
recorded: the call with its id, or else the oldest open one of the same tool. Without such a call, the tool span itself
is the evidence of a call, which is added to that reply. So no result is without a call, and the only calls without a
result are those that a reply recorded and no span or later request answers.

An agent inside another one is a sub-agent, except when its first request continues the conversation of the outer
one (a handoff, or a node of a graph). So are the model calls of a tool.
"""

from collections.abc import Iterator

from pydantic import JsonValue

from turnwright_audit.trajectories.atif import (
    ResultStatus,
    SubagentRef,
    Trajectory,
    TrajectoryCall,
)
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import join_texts, json_text
from turnwright_audit.trajectories.source import Recording, UnreadableRecordingError, iso_time

from . import span_attributes
from .span_dump import Span, SpanDump, holds_spans
from .span_messages import Said, as_value, conversation, reply_messages, request_messages


def recognizes_openinference(recording: Recording) -> bool:
    """Whether the recording holds spans with the kinds of OpenInference."""
    head = recording.head
    return (b"openinference" in head or b'"span_kind"' in head) and holds_spans(recording)


def read(recording: Recording, format: str) -> Iterator[Trajectory]:  # noqa: A002 (the name of the format)
    """Yield a run for each trace."""
    dump = SpanDump(recording)
    traces: dict[str, dict[str, Span]] = {}
    for number, span in enumerate(dump):
        own_span = span if span.id else span._replace(id=f"#{number}")
        traces.setdefault(span.trace, {})[own_span.id] = own_span  # one that was exported twice is one
    latest: Trajectory | None = None
    while traces:
        trace = next(iter(traces))
        run = _Trace([*traces.pop(trace).values()]).read(format)
        if run is not None:
            if latest is not None:
                yield latest
            latest = run
    if latest is None:
        raise UnreadableRecordingError("it has no span of a model call or a tool call")
    notes = latest.run_notes
    notes.cut, notes.unreadable_lines = dump.cut, dump.unreadable
    yield latest


class _Trace:
    """The spans of one trace, as a tree."""

    def __init__(self, spans: list[Span]) -> None:
        known_ids = {span.id for span in spans}
        self.roots = [span for span in spans if not span.parent or span.parent not in known_ids]
        self.inner: dict[str, list[Span]] = {}
        for span in spans:
            if span.parent in known_ids and span.parent:
                self.inner.setdefault(span.parent, []).append(span)
        self.roots.sort(key=lambda span: span.start)
        for inner in self.inner.values():
            inner.sort(key=lambda span: span.start)
        self.by_id = {span.id: span for span in spans}
        self.kinds = {span.id: span_attributes.kind_of(span) for span in spans}
        self.spans = spans

    def read(self, format: str) -> Trajectory | None:  # noqa: A002 (the name of the format)
        """Return the run; None if the trace has no call of a model or a tool."""
        if not any(kind in {"model", "tool"} for kind in self.kinds.values()):
            return None
        root = self.roots[0] if self.roots else self.spans[0]
        agent = next((span for span in self.within(self.roots) if self.kinds[span.id] == "agent"), root)
        scope = _Scope(self, self.builder(agent, format), agent)
        scope.builder.notes.run = root.trace or None
        scope.builder.trajectory.session_id = self.session() or None
        scope.take(self.roots)
        root_span = next((span for span in self.roots if not span.parent), None)
        has_failed = root_span is not None and root_span.error is not None
        return scope.builder.finish(
            ending=None if root_span is None else "error" if has_failed else scope.finish or "ended",
            success=False if has_failed else None,
        )

    def builder(self, agent: Span, format: str) -> RunBuilder:  # noqa: A002 (the name of the format)
        """Return an empty run of an agent."""
        return RunBuilder(
            format,
            agent=span_attributes.agent_name(agent),
            version=agent.text("gen_ai.agent.version"),
            model=span_attributes.model(agent) or None,
            id=agent.id or None,
        )

    def session(self) -> str:
        """Return the id of the conversation that a span names."""
        keys = ("gen_ai.conversation.id", "session.id", "thread.id")
        return next((text for span in self.spans if (text := span.text(*keys))), "")

    def within(self, spans: list[Span]) -> Iterator[Span]:
        """Yield spans and everything inside them, each before its inner ones, in the order of time."""
        waiting = list(reversed(spans))
        while waiting:
            span = waiting.pop()
            yield span
            waiting.extend(reversed(self.inner.get(span.id, ())))


class _Scope:
    """One agent's run in the making: its own spans, without those of its sub-agents."""

    def __init__(self, trace: _Trace, builder: RunBuilder, agent: Span) -> None:
        self.trace = trace
        self.builder = builder
        self.agent = agent
        self.finish: str | None = None
        self._open: dict[str, TrajectoryCall] = {}
        #: The calls among them that were recorded without an id.
        self._nameless: set[str] = set()
        self._prompt = ""
        self._fresh = True
        self._has_calls = False

    def take(self, spans: list[Span]) -> None:
        """Add the steps of these spans and of those inside them, in the order of time."""
        own_spans: list[Span] = []
        agents: list[Span] = []
        waiting = list(reversed(spans))
        while waiting:
            span = waiting.pop()
            kind = self.trace.kinds[span.id]
            inner = self.trace.inner.get(span.id, [])
            if kind == "agent":
                agents.append(span)
                if self._is_inner(span):
                    own_spans.append(span)
                    continue
            elif kind is not None:
                own_spans.append(span)
                inner = [] if kind == "tool" else self._beside(inner)
            waiting.extend(reversed(inner))
        own_spans.sort(key=lambda span: (span.start, span.end))
        for span in own_spans:
            kind = self.trace.kinds[span.id]
            if kind == "model":
                self._model_call(span)
            elif kind == "tool":
                self._tool(span)
            else:
                self._add_sub_agent(span, [span])
        for span in agents:
            for message in conversation(span):
                self._answers(message)

    def _beside(self, inner: list[Span]) -> list[Span]:
        """Return the spans inside a model call that are not the same request once more."""
        return [span for span in inner if self.trace.kinds[span.id] != "model"]

    def _is_inner(self, span: Span) -> bool:
        """Whether an agent's span is a sub-agent of this one."""
        above = span.parent
        while above in self.trace.by_id:
            if self.trace.kinds[above] == "agent":
                return span is not self.agent and not self._same_conversation(self.trace.by_id[above], span)
            above = self.trace.by_id[above].parent
        return False

    def _same_conversation(self, outer: Span, inner: Span) -> bool:
        first = next(
            (inner_span for inner_span in self.trace.within([inner]) if self.trace.kinds[inner_span.id] == "model"),
            None,
        )
        prompt = (
            next((message.text for message in request_messages(first) if message.role == "user"), "") if first else ""
        )
        if not prompt:
            return False
        texts = [outer.text("input.value"), *(message.text for message in request_messages(outer))]
        for span in self.trace.within([outer]):
            if span is inner:
                break
            if self.trace.kinds[span.id] == "model":
                texts.extend(message.text for message in request_messages(span) if message.role == "user")
                break
        quoted_prompt = json_text([prompt])[2:-2]
        return any(prompt in text or quoted_prompt in text for text in texts)

    def _model_call(self, span: Span) -> None:
        request = request_messages(span)
        for message in request:
            self._answers(message)
        self._opens(span, request)
        reply = reply_messages(span)
        finish = next(
            (message.finish for message in reversed(reply) if message.finish), ""
        ) or span_attributes.finish_reason(span)
        step = self.builder.reply(
            join_texts(*(message.text for message in reply)),
            at=iso_time(span.start),
            model=span_attributes.model(span) or None,
            reasoning=join_texts(*(message.reasoning for message in reply)),
            metrics=span_attributes.metrics(span),
            stop_reason=finish,
        )
        if span.error is not None:
            step.message = step.message or span.error
            step.note().error = True
        calls = [call for message in reply for call in message.calls]
        for call in calls:
            self._call(call.id, call.name, call.arguments)
        self._has_calls = bool(calls)
        self._fresh = self._fresh and span.error is not None
        self.finish = finish or self.finish

    def _opens(self, span: Span, messages: list[Said]) -> None:
        """Add the user message that begins a turn, if this request begins one."""
        has_steps = bool(self.builder.steps)
        latest = 0
        for number, message in enumerate(messages):
            if message.role in {"assistant", "model", "tool"} or message.results:
                latest = number + 1
        texts = [message.text for message in messages[latest:] if message.role in {"user", ""} and message.text]
        prompt = "\n".join(texts)
        if not has_steps:
            system = "\n".join(message.text for message in messages if message.role in {"system", "developer"})
            if system:
                self.builder.system(system, at=iso_time(span.start))
            prompt = prompt or self._input()
        elif not prompt or (prompt == self._prompt and (self._fresh or latest)) or (latest and self._has_calls):
            return
        self.builder.user(prompt, at=iso_time(span.start))
        self._prompt, self._fresh = prompt, True

    def _input(self) -> str:
        """Return the prompt that the agent's own span has."""
        texts = [message.text for message in request_messages(self.agent) if message.role in {"user", ""}]
        value = as_value(self.agent.attributes.get("input.value"))
        if isinstance(value, dict):
            prompt = next((value[key] for key in ("task", "input", "prompt", "question") if key in value), value)
            value = json_text(prompt)
        return "\n".join(texts) or self.agent.text("prompt", "user_prompt") or json_text(value)

    def _answers(self, message: Said) -> None:
        """Add the results in a later request that no tool span gave."""
        for call, text in message.results:
            if self._open.pop(call, None):
                self.builder.result(call, text)

    def _call(self, call_id: str | None, name: str, arguments: JsonValue) -> TrajectoryCall:
        call = self.builder.call(call_id, name, arguments)
        self._open[call.tool_call_id] = call
        if not call_id:
            self._nameless.add(call.tool_call_id)
        return call

    def _tool(self, span: Span) -> None:
        if not self.builder.steps:
            self.builder.user(self._input(), at=iso_time(span.start))
        name, arguments = span_attributes.tool_name(span), span_attributes.arguments(span)
        call_id = span_attributes.call_id(span)
        call = self._open.get(call_id) if call_id else None
        if call is None:
            waiting = (open_call for open_call in self._open.values() if open_call.function_name == name)
            call = next(
                (
                    waiting_call
                    for waiting_call in waiting
                    if not call_id or waiting_call.tool_call_id in self._nameless
                ),
                None,
            )
        if call is None:
            call = self._call(call_id or None, name, arguments)
        elif not call.arguments and call.extra is None:  # some frameworks record the arguments only here
            arguments_read = as_value(arguments)
            call.arguments = arguments_read if isinstance(arguments_read, dict) else {}
        del self._open[call.tool_call_id]
        self._has_calls = True
        inner = self.trace.inner.get(span.id, [])
        kinds = {self.trace.kinds[inner_span.id] for inner_span in self.trace.within(inner)}
        status: ResultStatus | None = None if span.error is None else "error"  # the result alone may be an error
        self.builder.result(
            call.tool_call_id,
            span_attributes.tool_result(span),
            status=status,
            started=iso_time(span.start),
            ended=iso_time(span.end),
            subagent=self._add_sub_agent(span, inner) if kinds & {"model", "agent"} else None,
        )

    def _add_sub_agent(self, span: Span, spans: list[Span]) -> SubagentRef:
        """Add the run of a sub-agent. Its steps are those of these spans."""
        agent = next(
            (inner_span for inner_span in self.trace.within(spans) if self.trace.kinds[inner_span.id] == "agent"), span
        )
        scope = _Scope(self.trace, self.trace.builder(agent, self.builder.notes.format or ""), agent)
        scope.builder.trajectory.trajectory_id = span.id
        scope.take(spans)
        ending = "error" if span.error is not None else scope.finish or "ended"
        self.builder.subagent(scope.builder.finish(ending=ending))
        return SubagentRef(trajectory_id=span.id)
