"""What checks found, on paper: one line a claim, the way to each fault, and the exit code."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright_states.verdict import Check, Verdict, worst

from . import codes
from .view import one_line

_CODES: Final = {Verdict.HOLDS: 0, Verdict.VIOLATED: codes.FAILED, Verdict.INCONCLUSIVE: codes.INCONCLUSIVE}
_WIDTH: Final = max(map(len, Verdict))
#: Characters of a detail, and of each step of a witness, that are printed.
_LONGEST: Final = 400


def exit_code(checks: Iterable[Check]) -> int:
    """0 if all hold, 1 if one is violated, else 6."""
    return _CODES[worst(checks)]


def lines_of(checks: Sequence[Check]) -> Iterator[str]:
    """The checks for people: the verdict and the claim, then what is known of it, then the way to the fault."""
    for check in checks:
        known = f" ({check.detail})" if check.detail and check.verdict is Verdict.HOLDS else ""
        yield f"{check.verdict:<{_WIDTH}}  {check.claim}{known}"
        if check.verdict is not Verdict.HOLDS:
            # A witness quotes what was checked, which may be anybody's.
            yield f"{'':<{_WIDTH}}  {one_line(check.detail, _LONGEST)}"
            for step in check.witness:
                yield f"{'':<{_WIDTH}}    {one_line(step, _LONGEST)}"


def json_of(checks: Sequence[Check]) -> dict[str, JsonValue]:
    return {
        "verdict": worst(checks),
        "checks": [
            {"claim": one.claim, "verdict": one.verdict, "detail": one.detail, "witness": list(one.witness)}
            for one in checks
        ],
    }
