"""The results of walks as checks: each claim with its verdict."""

from typing import Final

from turnwright_states.chart import ROWS
from turnwright_states.reasons import REASONS_OF
from turnwright_states.verdict import Check, Verdict

from .claims import Property, ViolationError
from .walk import Walk

#: Every possible end of a turn, as "outcome/reason".
ENDS: Final = tuple(f"{outcome}/{reason}" for outcome, reasons in REASONS_OF.items() for reason in sorted(reasons))
#: The claims that something exists, which a part of the walks can prove. The others are about every path.
_THERE_IS: Final = frozenset({Property.ROWS, Property.ENDS})


def findings(total: Walk, violation: ViolationError | None = None) -> tuple[Check, ...]:
    """Return one check a claim, in the order of `Property`, for walks that were added up.

    `violation` is the fault that ended them: its claim is violated, and the claims about every path are inconclusive.
    They are also inconclusive when a walk was cut, or when there was none.
    """
    checks = [_check(claim, total, violation) for claim in Property if claim not in _THERE_IS]
    missing_rows = tuple(row.name for row in total.untaken())
    missing_ends = tuple(end for end in ENDS if end not in total.ends)
    whole = violation is None and not total.cut and total.walks > 0
    checks.append(_there_is(Property.ROWS, missing_rows, len(ROWS), whole=whole))
    checks.append(_there_is(Property.ENDS, missing_ends, len(ENDS), whole=whole))
    return tuple(checks)


def _check(claim: Property, total: Walk, violation: ViolationError | None) -> Check:
    if violation is not None and violation.claim is claim:
        limits = ", ".join(f"{name}={value}" for name, value in violation.case.changed.items())
        return Check(claim, Verdict.VIOLATED, f"{violation.what}; {limits}", tuple(map(str, violation.path)))
    if violation is not None:
        return Check(claim, Verdict.INCONCLUSIVE, "the walk ended at a fault")
    if total.cut:
        return Check(claim, Verdict.INCONCLUSIVE, f"{total.cut} of {total.walks} walks were cut at their limit")
    if not total.walks:
        return Check(claim, Verdict.INCONCLUSIVE, "nothing was walked")
    detail = f"at most {total.model_calls} of any turn" if claim is Property.MODEL_CALLS else f"{total.edges:,} events"
    return Check(claim, Verdict.HOLDS, detail)


def _there_is(claim: Property, missing: tuple[str, ...], all_of_them: int, *, whole: bool) -> Check:
    if not missing:
        return Check(claim, Verdict.HOLDS, f"all {all_of_them}")
    verdict = Verdict.VIOLATED if whole else Verdict.INCONCLUSIVE
    return Check(claim, verdict, f"{len(missing)} of {all_of_them} missing", missing)
