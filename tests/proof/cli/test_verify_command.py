"""`turnwright verify`: what it prints, its exit codes, the questions it takes. The checks have tests of their own."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from turnwright.errors import ConfigError
from turnwright_proof.cli.reachability import EVENTS, draw_search, narrow_cases, read_goal
from turnwright_proof.cli.verify import VerifyReport, answer
from turnwright_proof.smt.obligations import GROUPS
from turnwright_proof.verify import ENDS, Case, Edge, Goal, Property, ViolationError, Walk, grid, reach, walk
from turnwright_proof.verify.case import ABILITIES
from turnwright_states import Limits, State
from turnwright_states.chart import CHART, ROWS
from turnwright_states.verdict import Check, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.engine.cli.fixtures import Cli

SMALL: Final = Case(Limits(steps=1, tool_calls=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1)
TWO: Final = Case(Limits(steps=2, tool_calls=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1)
REST: Final = Walk(
    walks=2, configurations=1_000, edges=2_000, ends=dict.fromkeys(ENDS, 7), rows=set(CHART.rows), model_calls=9
)


def test_counts_are_added_up_and_every_claim_holds(capsys: pytest.CaptureFixture[str]) -> None:
    report, small = VerifyReport(), walk(SMALL)
    report.add_walks("the machine", [small, REST])
    assert report.close() == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert (
        f"walked {small.configurations + 1_000:,} configurations over {small.edges + 2_000:,} events in 3 walks" in out
    )
    assert f"holds         {Property.ROWS} (all {len(ROWS)})" in out
    assert f"holds         {Property.MODEL_CALLS} (at most 9 of any turn)" in out
    (aborted,) = (line.split() for line in out.splitlines() if "aborted/aborted" in line)
    assert int(aborted[1]) == small.ends["aborted/aborted"] + 7
    assert out.splitlines()[-1] == f"{len(Property)} checks: {len(Property)} hold"


def test_row_untaken_by_every_walk_is_a_violation(capsys: pytest.CaptureFixture[str]) -> None:
    report = VerifyReport()
    report.add_walks("the machine", [walk(SMALL)])
    assert report.close() == 1
    out, _ = capsys.readouterr()
    assert f"violated      {Property.ROWS}" in out
    assert ROWS[0].name in out
    assert out.splitlines()[-1] == f"{len(Property)} checks: {len(Property) - 2} hold, 2 violated"


def test_fault_is_reported_with_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    """And of what nobody walked on to see, nothing is claimed."""
    path = (
        Edge("the turn begins", "Started", State.CHECK, (ROWS[10],), State.STREAM),
        Edge("the engine fails", "Fail", State.STREAM, (ROWS[19],), State.FAILED),
    )

    def walks() -> "Iterator[Walk]":
        yield REST
        raise ViolationError(Property.RANK, "the rank did not fall", SMALL, path)

    report = VerifyReport()
    report.add_walks("the machine", walks())
    assert report.close() == 1
    lines = capsys.readouterr().out.splitlines()
    limits = ", ".join(f"{name}={value}" for name, value in SMALL.changed.items())
    assert lines[1:5] == [
        f"  violated      {Property.RANK}",
        f"                the rank did not fall; {limits}",
        f"                  the turn begins; {ROWS[10].name}",
        f"                  the engine fails; {ROWS[19].name}",
    ]
    assert lines[-1] == f"{len(Property)} checks: 2 hold, 1 violated, {len(Property) - 3} inconclusive"


def test_unknown_result_is_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """A solver without an answer beside everything that holds: 6."""
    report = VerifyReport()
    report.add_walks("the machine", [REST])
    report.add("SMT", [Check("the bounds hold", Verdict.INCONCLUSIVE, "no answer in time")])
    assert report.close() == 6
    assert (
        capsys.readouterr().out.splitlines()[-1] == f"{len(Property) + 1} checks: {len(Property)} hold, 1 inconclusive"
    )


def test_json_report_is_a_single_object(capsys: pytest.CaptureFixture[str]) -> None:
    report = VerifyReport(as_json=True)
    report.add("the chart", [Check("it is complete", Verdict.HOLDS, "all of it")])
    report.add_walks("the machine", [REST])
    assert report.close() == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], len(data["checks"])) == ("holds", 1 + len(Property))
    assert data["checks"][0] == {"claim": "it is complete", "verdict": "holds", "detail": "all of it", "witness": []}
    assert (data["walks"], data["configurations"], data["events"]) == (2, 1_000, 2_000)
    assert data["ends"] == REST.ends


# A way to an end.


def test_path_is_drawn_with_limits_states_and_row_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert answer("cap_hit/budget", reach([TWO], read_goal("cap_hit/budget", ())[0]), "one case") == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "cap_hit/budget: reached in 4 events; no shorter path exists",
        "",
        "  limits  steps=2, tool_calls=1, doom_threshold=none, max_retries=0, max_pauses=0",
        "  with    batches of up to 1 call",
        "",
        "  CHECK",
        "    │  the turn begins",
        "    ├─ 11  proceed",
        "    ▼",
        "  STREAM",
        "    │  the model asks for a",
        "    ├─ 14  replied [tool calls]",
        "    ▼",
        "  TOOL_EXEC",
        "    │  a starts",
        "    │  a ends: ok",
        "    ├─ 47  settled",
        "    ▼",
        "  CONTINUE",
        "    ├─ 53  proceed",
        "    ▼",
        "  CHECK",
        "    ├─ 5  proceed [tool calls spent] / budget",
        "    ▼",
        "  CONCLUDE",
        "    │  the model concludes",
        "    ├─ 64  concluded / carried",
        "    ▼",
        "  CAP_HIT",
        "    budget: The turn reached its tool-call limit.",
    ]


@pytest.mark.parametrize("end", ENDS)
def test_every_end_is_drawn_within_the_terminal_width(end: str) -> None:
    """Each row has its number in the chart."""
    witness = reach(DRAWN, Goal(frozenset({end}))).witness
    assert witness is not None
    lines = list(draw_search(witness))
    assert max(map(len, lines)) <= 100
    assert all(name in " ".join(lines[:4]) for name in ("hooks and", "from outside") if witness.case.hooked)
    numbers = [int(line.split("─ ")[1].split()[0]) for line in lines if "├─" in line]
    assert numbers == [ROWS.index(row) + 1 for edge in witness.path for row in edge.rows]


DRAWN: Final = (
    SMALL._replace(limits=Limits(steps=0)),
    Case(Limits(steps=2, tool_calls=1, max_pauses=1, max_retries=0, doom_threshold=None), synthesis=True),
    Case(Limits(steps=2, tokens=1, max_retries=0, doom_threshold=None)),
    Case(Limits(steps=2, cost=1.0, seconds=1.0, max_retries=0, doom_threshold=None)),
    Case(Limits(steps=3, doom_threshold=2, doom_response="ask", max_retries=0), widest=1),
    Case(Limits(steps=1, output_retries=0, max_retries=0, doom_threshold=None), hooked=True, waits=True),
    Case(Limits(steps=2, idle_steps=1, max_retries=0, doom_threshold=None), widest=1),
)


def test_json_path_names_each_event_and_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer("aborted", reach([TWO], read_goal("aborted", ["CONCLUDE"])[0]), "one case", as_json=True) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["reached"], report["end"], report["also_reached"]) == (True, "aborted/aborted", ["step_cap"])
    assert (report["limits"]["steps"], report["widest"], report["synthesis"], report["delegates"]) == (
        2,
        1,
        False,
        False,
    )
    *_, last = report["path"]
    abort = next(place for place, row in enumerate(ROWS, start=1) if (row.source, row.trigger) == ("CONCLUDE", "abort"))
    assert last == {
        "happened": "somebody aborts the turn",
        "event": "Abort",
        "from": "CONCLUDE",
        "to": "ABORTED",
        "rows": [{"number": abort, "row": ROWS[abort - 1].name}],
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_path_beyond_the_bound_is_inconclusive(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """The bound was hit: nothing is claimed beyond it."""
    result = reach([SMALL], read_goal("cap_hit/cost", ())[0])
    assert answer("cap_hit/cost", result, "the 1 cases of bound 0", as_json=as_json) == 6
    out = capsys.readouterr().out
    assert f"not in {result.configurations} configurations of the 1 cases of bound 0" in out
    assert "inconclusive" in out
    assert "holds" not in out


def test_truncated_search_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer("cap_hit/cost", reach([SMALL], read_goal("cost", ())[0], most=2), "one case") == 6
    assert "the search was cut" in capsys.readouterr().out


# What is asked.


@pytest.mark.parametrize(
    ("goal", "ends"),
    [
        ("doom_loop", {"doom_loop/doom_loop"}),
        ("aborted", {"aborted/aborted", "aborted/superseded"}),  # the outcome, not the reason of that name
        ("aborted/superseded", {"aborted/superseded"}),
        ("deadline", {"cap_hit/deadline"}),
        ("CAP_HIT/BUDGET", {"cap_hit/budget"}),  # as the chart writes it
        ("finished", {"finished/answered", "finished/text_only", "finished/truncated"}),
    ],
)
def test_end_is_an_outcome_a_reason_or_both(goal: str, ends: set[str]) -> None:
    assert read_goal(goal, ())[0] == Goal(frozenset(ends))


def test_goal_conditions_are_states_events_and_values() -> None:
    goal, values = read_goal(
        "finished",
        ["PAUSED", "abort", "call_waiting", "steps=3", "tokens=none", "synthesis = true", "concluding=within"],
    )
    assert goal.states == {State.PAUSED}
    assert goal.events == {"abort", "call_waiting"}
    assert values == {"steps": 3, "tokens": None, "synthesis": True, "concluding": "within"}
    assert {"model_replied", "replied", "steered", "expire"} <= EVENTS


@pytest.mark.parametrize(
    ("goal", "condition", "says"),
    [
        ("paused", "", r"--can-reach paused: is a state, not an ending: use --can-reach END --with PAUSED"),
        ("cap", "", r"--can-reach cap: no such end.*cap_hit: budget, cost, deadline, no_call_ran, step_cap, tokens"),
        ("failed/budget", "", r"--can-reach failed/budget: no such end"),
        ("failed", "paused", r"--with paused: no such state or event \(states: CHECK.*events: abort"),
        ("failed", "caps=3", r"--with caps=3: there is no limit 'caps' \(there are steps, ceiling"),
    ],
)
def test_unknown_goal_lists_the_known_goals(goal: str, condition: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_goal(goal, [condition] if condition else [])


def test_cases_are_narrowed_to_a_value_or_built() -> None:
    """Cases of the grid come first, and each occurs once."""
    cases = narrow_cases(grid(1), {"steps": 1, "max_retries": 7, "synthesis": True})
    assert {(case.limits.steps, case.limits.max_retries, case.synthesis) for case in cases} == {(1, 7, True)}
    assert len(set(map(repr, cases))) == len(cases)
    of_the_grid = [case for case in grid(1) if case.limits.steps == 1]
    assert narrow_cases(grid(1), {"steps": 1})[: len(of_the_grid)] == of_the_grid
    assert {case.widest for case in narrow_cases(grid(1), {"widest": 3})} == {3}
    for ability in ABILITIES:
        (case,) = narrow_cases([SMALL], {ability: True})
        assert [name for name in ABILITIES if getattr(case, name)] == [ability]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("steps", -1, r"--with steps=-1: must be a whole number of at least 0, not -1"),
        ("steps", True, r"--with steps=True: must be a whole number"),
        ("doom_response", "beg", r"--with doom_response=beg: "),
        ("widest", 0, r"--with widest=0: must be a whole number from 1 to 32"),
        ("synthesis", 1, r"--with synthesis=1: must be true or false"),
    ],
)
def test_invalid_value_of_a_field_is_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        narrow_cases([SMALL], {name: value})


# The command.


@pytest.mark.slow
def test_command_prints_a_path_or_a_line_on_stderr(cli: "Cli") -> None:
    found_path, wrong, alone, both_options, cut = cli.each(
        ["verify", "--bound", "0", "--can-reach", "deadline", "--with", "seconds=9", "--json", "--processes", "1"],
        ["verify", "--can-reach", "heaven"],
        ["verify", "--with", "PAUSED"],
        ["verify", "--can-reach", "failed", "--no-walk"],
        ["verify", "--bound", "0", "--max-configurations", "1", "--processes", "1"],
    )
    assert (found_path.code, found_path.events[0]["end"], found_path.events[0]["limits"]["seconds"]) == (
        0,
        "cap_hit/deadline",
        9,
    )
    for done, says in ((wrong, "heaven"), (alone, "--can-reach"), (both_options, "--no-walk and --can-reach")):
        assert (done.code, done.out) == (2, "")
        assert says in done.err
        assert len(done.err.splitlines()) == 1
    assert (cut.code, cut.err) == (6, "")
    assert "walks were cut at their limit" in cut.out
    *_, last = cut.out.splitlines()
    assert last.endswith("inconclusive")


@pytest.mark.slow
def test_proof_queries_are_written_and_the_walk_can_be_skipped(cli: "Cli") -> None:
    queries, lint_alone, both_options = cli.each(
        ["verify", "--smt-export", "smt"],
        ["verify", "--no-walk", "--json"],
        ["verify", "--can-reach", "failed", "--smt"],
    )
    files = sorted((cli.folder / "smt").iterdir())
    assert (queries.code, len(queries.out.splitlines())) == (0, len(files))
    assert {file.suffix for file in files} == {".smt2"}
    assert (lint_alone.code, len(lint_alone.events[0]["checks"]), lint_alone.events[0]["walks"]) == (0, 9, 0)
    assert (
        both_options.code,
        both_options.err.splitlines()[0].endswith("--smt and --can-reach exclude each other: give one of them"),
    ) == (
        2,
        True,
    )


@pytest.mark.slow
def test_shipped_chart_is_proven_for_all_limits_by_both_solvers(cli: "Cli") -> None:
    (done,) = cli.each(["verify", "--smt", "--no-walk"])
    assert (done.code, done.err) == (0, "")
    proven = [line for line in done.out.splitlines() if "cvc5" in line]
    assert [line.split(":")[0].split() for line in proven] == [["holds", group.name] for group in GROUPS]
    assert all(line.endswith("; both agree)") for line in proven)
    assert "21 checks: 21 hold" in done.out


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep shows when the walks have begun")
def test_ctrl_c_ends_all_processes(cli: "Cli") -> None:
    """A terminal sends it to each of them; none shows a traceback, and nothing is said of the walk."""
    with subprocess.Popen(
        [sys.executable, "-m", "turnwright", "verify", "--processes", "2"],
        cwd=cli.folder,
        env=cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background ignores it, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no thread is here)
    ) as process:
        cli.await_children(process.pid, 2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=200)
    assert (process.returncode, err.strip()) == (130, "")
    assert "walked" not in out
