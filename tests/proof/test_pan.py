"""The output of SPIN's verifier is read strictly: only a complete report, or a fault, is an answer."""

import pytest

from turnwright.proof.pan import NoAnswerError, read_report

REPORT = """
(Spin Version 6.5.2 -- 6 December 2019)
	+ Partial Order Reduction

Full statespace search for:
	never claim         	+ (ends)
	assertion violations	+ (if within scope of claim)
	acceptance   cycles 	+ (fairness enabled)
	invalid end states	- (disabled by never claim)

State-vector 76 byte, depth reached 468, errors: 0
   269750 states, stored (1.9994e+06 visited)
 11611638 states, matched
 13611038 transitions (= visited+matched)
 64133478 atomic steps

Stats on memory usage (in Megabytes):
   26.754	equivalent memory usage for states (stored*(State-vector + overhead))
  154.898	total actual memory usage


unreached in proctype driver
	turn.pml:34, state 304, "row = 10"
	turn.pml:499, state 748, "-end-"
	(2 of 748 states)
unreached in proctype person
	(0 of 20 states)
unreached in claim ends
	_spin_nvr.tmp:6, state 6, "-end-"
	(1 of 6 states)
"""


def test_a_report_on_everything_says_how_much_that_was() -> None:
    search = read_report(REPORT, "ends")
    assert search.fault == ""
    assert (search.states, search.transitions, search.depth, search.megabytes) == (269750, 13611038, 468, 154.898)
    assert search.unreached == {"driver": {34, 499}, "person": set(), "ends": set()}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("pan:1: assertion violated  !( !((steps<=allowance))) (at depth 61)", "assertion violated"),
        ("pan:1: acceptance cycle (at depth 41)", "acceptance cycle"),
        ("pan:1: invalid end state (at depth 91)", "invalid end state"),
    ],
)
def test_a_fault_is_an_answer_though_the_search_stopped_at_it(line: str, fault: str) -> None:
    said = f"{line}\npan: wrote turn.pml.trail\nWarning: Search not completed\n{REPORT}".replace(
        "errors: 0", "errors: 1"
    )
    assert read_report(said, "ends").fault == fault


@pytest.mark.parametrize(
    ("there", "instead", "why"),
    [
        ("\n(Spin", "error: max search depth too small\n(Spin", "longer than the search may go"),
        ("\n(Spin", "pan: reached -DMEMLIM bound\n(Spin", "more than 4,096 MB"),
        ("\n(Spin", "pan: out of memory\n(Spin", "no memory left"),
        ("\n(Spin", "Warning: Search not completed\n(Spin", "does not report a complete search"),
        ("Full statespace search", "Bit statespace search", "does not report a complete search"),
        ("errors: 0", "errors: 1", "counts an error without its name"),
        ("errors: 0", "", "printed no report"),
        (" states, stored", "", "printed no report"),
        (" transitions", "", "printed no report"),
        ("(ends)", "(other)", "printed no report"),
    ],
)
def test_anything_less_is_no_answer(there: str, instead: str, why: str) -> None:
    assert there in REPORT
    with pytest.raises(NoAnswerError, match=why):
        read_report(REPORT.replace(there, instead, 1), "ends")


def test_silence_is_no_answer() -> None:
    with pytest.raises(NoAnswerError, match="printed no report"):
        read_report("", "ends")
