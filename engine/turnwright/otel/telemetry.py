"""Send an engine's work to OpenTelemetry: a span for each segment of a turn, and metrics."""

import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Self

from opentelemetry import context, metrics, trace

from turnwright._base.version import VERSION
from turnwright.store.outbox import NoticeCounts
from turnwright.telemetry import AttemptWork, CallWork, JudgedCall, Move, TurnWork, error_type
from turnwright_states import Outcome, Usage

from . import names
from .blocks import AttemptBlock, CallBlock, SpanBlock, Value, describe_rules, tell_usage
from .instruments import Instruments
from .provider import provider_of, requested_from, server_of, streams

#: The variable that other instrumentations of generative AI use for the same setting.
CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES: Final = ("true", "1", "span_only", "span_and_event")
#: The number of turns whose last segment is remembered, to link the next one to it.
_REMEMBERED: Final = 1024
#: The status of a call that a rule keeps from running, by the effect of the rule.
_STATUSES: Final = {"refuse": "refused", "ask": "waiting", "end": "aborted"}
#: The key of the current segment in the context.
_SEGMENT: Final = context.create_key("turnwright-segment")


class OpenTelemetry:
    """Traces and metrics of an engine: `Engine(telemetry=OpenTelemetry())`.

    The default providers are OpenTelemetry's global ones; without an SDK nothing is recorded. `capture_content` is
    whether spans contain the texts of people, models and tools; by default the environment decides
    (`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true`), else they do not. One object may serve any number of
    engines and threads.

    Source: the GenAI conventions of OpenTelemetry.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        capture_content: bool | None = None,
    ) -> None:
        version = VERSION
        self._tracer = trace.get_tracer("turnwright", version, tracer_provider)
        self._measured = Instruments(metrics.get_meter("turnwright", version, meter_provider))
        captures = os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURES
        self._full = captures if capture_content is None else capture_content
        self._last: OrderedDict[str, trace.SpanContext] = OrderedDict()

    def turn(self, work: TurnWork) -> "TurnBlock":
        """See `Telemetry.turn`."""
        return TurnBlock(self._tracer, work, self._measured, self._last, full=self._full)

    def outbox(self, counts: NoticeCounts) -> None:
        """See `Telemetry.outbox`."""
        self._measured.outbox(counts)


class TurnBlock(SpanBlock):
    """One segment of a turn, as a span `invoke_agent`."""

    def __init__(
        self,
        tracer: trace.Tracer,
        work: TurnWork,
        instruments: Instruments,
        last: "OrderedDict[str, trace.SpanContext]",
        *,
        full: bool,
    ) -> None:
        start = work.started
        self._about: dict[str, Value] = {names.AGENT: work.agent, names.TURN: work.id}
        if start.session is not None:
            self._about[names.CONVERSATION] = start.session
        attributes: dict[str, Value] = {
            names.OPERATION: "invoke_agent",
            **self._about,
            names.EPOCH: work.epoch,
            names.MODEL: start.model,
        }
        optional_attributes = {
            names.AGENT_DESCRIPTION: work.description,
            names.PARENT: start.parent_turn,
            names.CONTINUES: start.continue_from,
            names.FORKED_FROM: start.forked_from,
        }
        attributes |= {name: value for name, value in optional_attributes.items() if value}
        before = [last.get(turn) for turn in (work.id, start.continue_from, start.forked_from) if turn is not None]
        links = [trace.Link(span_context) for span_context in before if span_context is not None]
        name = f"invoke_agent {work.agent}".strip()
        content_of = self._prompt if full and work.first_facts else None
        super().__init__(tracer, name, trace.SpanKind.INTERNAL, attributes, links=links, content_of=content_of)
        self._work = work
        self._measured = instruments
        self._last = last
        self._full = full
        self._over = work.outcome is not None
        self._usage: Usage | None = None
        self._above: TurnBlock | None = None
        self._attempt_attributes: Mapping[str, Value] | None = None

    def moved(self, move: Move) -> None:
        """See `TurnTelemetry.moved`."""
        attributes = {names.FROM: str(move.source), names.TO: str(move.target), names.FACT: move.fact}
        if move.reason is not None:
            attributes[names.REASON] = str(move.reason)
        self.span.add_event(names.MOVED, attributes)

    def judged(self, judged_call: JudgedCall) -> None:
        """See `TurnTelemetry.judged`. A call that does not run has a span without a duration."""
        self._measured.broken(self._work.agent, judged_call)
        rules = describe_rules(judged_call.decisions)
        if not judged_call.call:
            self.span.add_event(names.BROKEN, rules)
        elif not judged_call.runs:
            attributes: dict[str, Value] = {
                names.OPERATION: "execute_tool",
                names.TOOL: judged_call.tool,
                names.TOOL_TYPE: "function",
                names.CALL: judged_call.call,
                **self._about,
                names.STATUS: _STATUSES[judged_call.decisions[0].effect],
                **rules,
            }
            parent = trace.set_span_in_context(self.span)
            self._tracer.start_span(f"execute_tool {judged_call.tool}".strip(), parent, attributes=attributes).end()

    def attempt(self, work: AttemptWork) -> AttemptBlock:
        """See `TurnTelemetry.attempt`."""
        if self._attempt_attributes is None:
            stream_attributes: dict[str, Value] = {names.STREAM: True} if self._streams() else {}
            self._attempt_attributes = {**self._about, **self._model(), **stream_attributes}
        return AttemptBlock(
            self._tracer, work, self._attempt_attributes, self._measured, add_usage=self.used, full=self._full
        )

    def call(self, work: CallWork) -> CallBlock:
        """See `TurnTelemetry.call`."""
        return CallBlock(self._tracer, work, self._about, self._measured, full=self._full)

    def used(self, usage: Usage) -> None:
        """Add the usage of an attempt below this segment. A sub-agent's attempts count for its parent too."""
        self._usage = usage if self._usage is None else self._usage + usage
        if self._above is not None:
            self._above.used(usage)

    def __enter__(self) -> Self:
        above = context.get_value(_SEGMENT)
        if isinstance(above, TurnBlock) and above.turn_id == self._work.started.parent_turn:
            self._above = above
        if self._work.model is not None:
            self._attributes = {**self._attributes, **self._model()}
        super().__enter__()
        return self

    @property
    def turn_id(self) -> str:
        """The id of the turn."""
        return self._work.id

    def _context(self) -> context.Context:
        return context.set_value(_SEGMENT, self, super()._context())

    def _prompt(self) -> Mapping[str, object]:
        prompt = {"type": "text", "content": self._work.started.prompt}
        return {names.INPUT: [{"role": "user", "parts": [prompt]}]}

    def _model(self) -> dict[str, Value]:
        model = self._work.model
        if model is None:
            return {names.MODEL: self._work.started.model}
        attributes: dict[str, Value] = {names.MODEL: requested_from(model), names.PROVIDER: provider_of(model)}
        server = server_of(model)
        return attributes if server is None else {**attributes, names.SERVER: server[0], names.PORT: server[1]}

    def _streams(self) -> bool:
        return self._work.model is not None and streams(self._work.model)

    def _finish(self, error: BaseException | None, seconds: float) -> None:
        work, span, turn = self._work, self.span, self._work.turn
        span.set_attribute(names.STATE, str(work.state))
        span.set_attribute(names.STEPS, turn.steps_taken)
        span.set_attribute(names.TOOL_CALLS, turn.counters.calls)
        if self._usage is not None:
            tell_usage(span, self._usage)
        measures: dict[str, str | int] = {names.AGENT: work.agent}
        failure = ""
        if work.released:
            span.set_attribute(names.RELEASED, work.released)
            failure = error_type(error) if work.released == "error" and error is not None else ""
        if work.outcome is not None:
            span.set_attribute(names.OUTCOME, str(work.outcome))
            span.set_attribute(names.REASON, str(turn.reason))
            span.set_attribute(names.ALSO_REACHED, [str(reason) for reason in turn.also_reached])
            if work.outcome is Outcome.FAILED:
                failure = str(turn.reason)
            if not self._over:
                self._measured.ended(work)
        if failure:
            self._record_failure(failure)
            measures[names.ERROR] = failure
        self._measured.agent.record(seconds, measures)
        self._remember()

    def _remember(self) -> None:
        span_context = self.span.get_span_context()
        if span_context.is_valid:
            self._last.pop(self._work.id, None)
            self._last[self._work.id] = span_context
            while len(self._last) > _REMEMBERED:
                self._last.popitem(last=False)
