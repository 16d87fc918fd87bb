"""A recorded run as one side of a comparison."""

from turnwright_audit.rounds import text_of
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_inspector.http.render import amount, dollars, seconds

from .comparison import Side
from .recorded_steps import inner_runs, lasts, recorded_steps, text_before
from .run_library import RunEntry
from .turn_side import words_of


def run_side(entry: RunEntry, run: Trajectory) -> Side:
    """Return a run to compare."""
    steps = recorded_steps(run, inner_runs(run))
    first = steps[0].first if steps else len(run.steps) + 1
    before = run.steps[: first - 1]
    return Side(
        id=str(entry.number),
        figures=_figures(entry, lasts(steps)),
        limits={name: words_of(value) for name, value in (run.run_notes.limits or {}).items()},
        settings={},
        prompt="\n\n".join(text_of(step.message) for step in before if step.source == "user"),
        instructions="\n\n".join(text_of(step.message) for step in before if step.source == "system"),
        answer=next((step.text for step in reversed(steps) if step.text), ""),
        steps=steps,
        request_of=lambda step: text_before(run, step.first),
    )


def _figures(entry: RunEntry, active: float) -> dict[str, str]:
    run = entry.measures
    return {
        "Ending": run.ending,
        "Success": "not recorded" if run.success is None else "yes" if run.success else "no",
        "File": entry.place,
        "Format": run.format,
        "Agent": run.agent,
        "Model": run.model,
        "Turns": amount(run.turns),
        "Steps": amount(run.steps),
        "Tool calls": amount(run.calls),
        "Calls without a result": amount(run.unpaired),
        "Failed calls": amount(run.errors),
        "Loops": amount(entry.loops),
        "Tokens": amount(run.tokens) if run.tokens else "not recorded",
        "Cost": dollars(run.cost) if run.cost else "not recorded",
        "Active time": seconds(active) if active else "not recorded",
    }
