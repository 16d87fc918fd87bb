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
        sent=lambda step: text_before(run, step.first),
    )


def _figures(entry: RunEntry, active: float) -> dict[str, str]:
    found = entry.found
    return {
        "Ending": found.ending,
        "Success": "not recorded" if found.success is None else "yes" if found.success else "no",
        "File": entry.place,
        "Format": found.format,
        "Agent": found.agent,
        "Model": found.model,
        "Turns": amount(found.turns),
        "Steps": amount(found.steps),
        "Tool calls": amount(found.calls),
        "Calls without a result": amount(found.unpaired),
        "Failed calls": amount(found.errors),
        "Loops": amount(entry.loops),
        "Tokens": amount(found.tokens) if found.tokens else "not recorded",
        "Cost": dollars(found.cost) if found.cost else "not recorded",
        "Active time": seconds(active) if active else "not recorded",
    }
