"""Recorded runs for the tests of the audit, each written in a line or two."""

from collections.abc import Iterable

from turnwright_audit.trajectories.atif import ResultStatus, StepMetrics, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder

#: A call (tool, arguments as text) and its result; no result for None.
Done = tuple[str, str, str | None]


def run_of(
    *rounds: Iterable[Done] | str,
    statuses: dict[str, ResultStatus] | None = None,
    tokens: int | None = 100,
    cost: float | None = None,
    ending: str | None = None,
    success: bool | None = None,
    model: str = "m1",
    name: str = "run",
) -> Trajectory:
    """A run of one message, with a reply for each round of calls; a text is a reply without calls."""
    run = RunBuilder("atif", agent="clerk", model=model, run=name)
    run.user("Go.")
    metrics = StepMetrics(cost_usd=cost)
    if tokens is not None:
        metrics.prompt_tokens, metrics.completion_tokens = tokens - 1, 1
    add(run, rounds, statuses or {}, metrics)
    return run.finish(ending=ending, success=success)


def add(
    run: RunBuilder, rounds: Iterable[Iterable[Done] | str], statuses: dict[str, ResultStatus], metrics: StepMetrics
) -> None:
    """Add replies to a run. `statuses` are those of results with this text."""
    for number, batch in enumerate(rounds):
        if isinstance(batch, str):
            run.reply(batch, metrics=metrics)
            continue
        run.reply(metrics=metrics)
        for place, (tool, arguments, result) in enumerate(batch):
            name = f"c{len(run.steps)}-{number}-{place}"
            run.call(name, tool, {"text": arguments})
            if result is not None:
                run.result(name, result, status=statuses.get(result, "ok"))


def call(tool: str, arguments: str = "", result: str | None = "fine") -> list[Done]:
    """A round of one call."""
    return [(tool, arguments, result)]
