"""Prints the results of checks: one line for each claim, the path to each fault, and the exit code."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright._base.words import cut_line
from turnwright_states.row_counts import RowCounts
from turnwright_states.verdict import Check, Verdict, worst

from . import codes

_CODES: Final = {Verdict.HOLDS: 0, Verdict.VIOLATED: codes.FAILED, Verdict.INCONCLUSIVE: codes.INCONCLUSIVE}
_WIDTH: Final = max(map(len, Verdict))
#: The longest detail, and the longest step of a witness, in characters.
_LONGEST: Final = 400
#: Any other turn that ends so breaks a promise.
_NOTES: Final = {"failed/engine_error": "  (the model that a guardrail asks failed: no bug)"}


def exit_code(checks: Iterable[Check]) -> int:
    """Return 0 if all hold, 1 if one is violated, else 6."""
    return _CODES[worst(checks)]


def lines_of(checks: Sequence[Check]) -> Iterator[str]:
    """Return each check as text: the verdict and the claim, the detail, and the path to the fault."""
    for check in checks:
        detail = f" ({check.detail})" if check.detail and check.verdict is Verdict.HOLDS else ""
        yield f"{check.verdict:<{_WIDTH}}  {check.claim}{detail}"
        if check.verdict is not Verdict.HOLDS:
            # A witness quotes the checked data, which may contain anything.
            yield f"{'':<{_WIDTH}}  {cut_line(check.detail, _LONGEST)}"
            for step in check.witness:
                yield f"{'':<{_WIDTH}}    {cut_line(step, _LONGEST)}"


def lines_of_turns(ends: Counter[str], rows: RowCounts) -> Iterator[str]:
    """Return the endings of turns that broke no promise, and how many rows of the chart they took."""
    yield "ended:"
    for end, count in ends.most_common():
        yield f"  {end:<28} {count:>6,}{_NOTES.get(end, '')}"
    yield f"rows of the chart taken: {rows.covered} of {len(rows.taken)} (--coverage FILE writes them)"


def json_of(checks: Sequence[Check]) -> dict[str, JsonValue]:
    return {
        "verdict": worst(checks),
        "checks": [
            {"claim": check.claim, "verdict": check.verdict, "detail": check.detail, "witness": list(check.witness)}
            for check in checks
        ],
    }
