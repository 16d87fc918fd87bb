"""The metrics, made once for a meter."""

from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry import metrics

from turnwright.store.outbox import NoticeCounts
from turnwright.telemetry import JudgedCall, TurnWork
from turnwright_states import Usage

from . import names

Attributes = Mapping[str, str | int]

# The buckets are those of the conventions.
_TOKENS: Final = tuple(4**power for power in range(14))
_SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
_AGENT_SECONDS: Final = tuple(0.1 * 2**power for power in range(13))
#: The cap is 200 at most.
_STEPS: Final = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200)


#: The kinds of tokens, by the ends of their metrics' names.
_KINDS: Final = {
    "input_tokens": "input tokens, cached ones too",
    "output_tokens": "output tokens, those of reasoning too",
    "cache_read.input_tokens": "input tokens from the provider's cache",
    "cache_write.input_tokens": "input tokens written to the provider's cache",
    "reasoning.output_tokens": "output tokens of reasoning",
}


class Instruments:
    """The instruments. Durations are in seconds; a turn's duration is its active time, over all its segments."""

    def __init__(self, meter: metrics.Meter) -> None:
        def histogram(
            name: str, description: str, unit: str = "s", buckets: Sequence[float] = _SECONDS
        ) -> metrics.Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)

        self._usage = {
            kind: meter.create_counter(f"gen_ai.client.inference.usage.{kind}", "{token}", f"Number of {unit_name}.")
            for kind, unit_name in _KINDS.items()
        }
        self._of_operation = {
            kind: histogram(
                f"gen_ai.client.inference.operation.{kind}",
                f"Number of {_KINDS[kind]} of one attempt.",
                "{token}",
                _TOKENS,
            )
            for kind in ("input_tokens", "output_tokens")
        }
        self.chat = histogram("gen_ai.client.inference.duration", "Duration of one attempt at a model's reply.")
        self.first_chunk = histogram(
            "gen_ai.client.inference.time_to_first_chunk",
            "Time from the start of an attempt to the first chunk of its streamed reply.",
        )
        self.agent = histogram(
            "gen_ai.invoke_agent.duration", "Duration of one segment of a turn.", buckets=_AGENT_SECONDS
        )
        self.tool = histogram("gen_ai.execute_tool.duration", "Duration of one execution of a tool.")
        self._turns = meter.create_counter("turnwright.turns", "{turn}", "Turns that ended, by outcome and reason.")
        self._broken = meter.create_counter(
            "turnwright.rules.broken", "{call}", "Calls and answers that broke a rule, by rule."
        )
        self._pending = meter.create_gauge(
            "turnwright.outbox.pending", "{notice}", "Notices that wait for their delivery."
        )
        self._failed = meter.create_gauge(
            "turnwright.outbox.failed", "{notice}", "Notices whose delivery was given up."
        )
        self._turn = histogram("turnwright.turn.duration", "Active time of a turn that ended.", buckets=_AGENT_SECONDS)
        self._steps = histogram("turnwright.turn.steps", "Steps of a turn that ended.", "{step}", _STEPS)

    def used(self, usage: Usage, cache_write: int | None, attributes: Attributes) -> None:
        """Count the usage of one attempt. Parts of the tokens are counted only where there are any."""
        for kind, histogram in self._of_operation.items():
            histogram.record(getattr(usage, kind), attributes)
        parts = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read.input_tokens": usage.cached_tokens,
            "cache_write.input_tokens": cache_write,
            "reasoning.output_tokens": usage.reasoning_tokens,
        }
        by = {**attributes, names.MODALITY: "unknown"}  # no provider says which tokens were those of texts
        for kind, tokens in parts.items():
            if tokens or kind in self._of_operation:
                self._usage[kind].add(tokens or 0, by)

    def broken(self, agent: str, judged_call: JudgedCall) -> None:
        """Count the rules that a call or an answer breaks."""
        for decision in judged_call.decisions:
            attributes = {names.AGENT: agent, names.RULE: decision.rule, names.RULE_EFFECT: str(decision.effect)}
            self._broken.add(1, attributes | ({names.TOOL: judged_call.tool} if judged_call.tool else {}))

    def outbox(self, counts: NoticeCounts) -> None:
        """Record the numbers of notices in the outbox."""
        self._pending.set(counts.pending)
        self._failed.set(counts.failed)

    def ended(self, work: TurnWork) -> None:
        """Count a turn that has ended."""
        turn = work.turn
        attributes = {names.AGENT: work.agent, names.OUTCOME: str(work.outcome), names.REASON: str(turn.reason)}
        self._turns.add(1, attributes)
        self._turn.record(turn.elapsed, attributes)
        self._steps.record(turn.steps_taken, attributes)
