"""The metrics, made once for a meter."""

from collections.abc import Mapping
from typing import Final

from turnwright.telemetry import TurnWork
from turnwright_states import Usage

from . import names
from .api import metrics

Attributes = Mapping[str, str | int]

# The buckets are those of the conventions.
_TOKENS: Final = tuple(4**power for power in range(14))
_SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
_AGENT_SECONDS: Final = tuple(0.1 * 2**power for power in range(13))
#: The cap is 200 at most.
_STEPS: Final = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200)


class Instruments:
    """The instruments. Durations are in seconds; a turn's duration is its active time, over all its segments."""

    def __init__(self, meter: metrics.Meter) -> None:
        histogram = meter.create_histogram
        self._tokens = histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.chat = histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of one attempt at a model's reply.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.first_chunk = histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="Time from the start of an attempt to the first chunk of its streamed reply.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.agent = histogram(
            "gen_ai.invoke_agent.duration",
            unit="s",
            description="Duration of one segment of a turn.",
            explicit_bucket_boundaries_advisory=_AGENT_SECONDS,
        )
        self.tool = histogram(
            "gen_ai.execute_tool.duration",
            unit="s",
            description="Duration of one execution of a tool.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._turns = meter.create_counter(
            "turnwright.turns", unit="{turn}", description="Turns that ended, by outcome and reason."
        )
        self._turn = histogram(
            "turnwright.turn.duration",
            unit="s",
            description="Active time of a turn that ended.",
            explicit_bucket_boundaries_advisory=_AGENT_SECONDS,
        )
        self._steps = histogram(
            "turnwright.turn.steps",
            unit="{step}",
            description="Steps of a turn that ended.",
            explicit_bucket_boundaries_advisory=_STEPS,
        )

    def used(self, usage: Usage, attributes: Attributes) -> None:
        """Count the usage of one attempt."""
        self._tokens.record(usage.input_tokens, {**attributes, names.TOKEN_TYPE: "input"})
        self._tokens.record(usage.output_tokens, {**attributes, names.TOKEN_TYPE: "output"})

    def ended(self, work: TurnWork) -> None:
        """Count a turn that has ended."""
        turn = work.turn
        attributes = {names.AGENT: work.agent, names.OUTCOME: str(work.outcome), names.REASON: str(turn.reason)}
        self._turns.add(1, attributes)
        self._turn.record(turn.elapsed, attributes)
        self._steps.record(turn.counters.steps, attributes)
