"""`turnwright audit`: what is printed, and the exit code."""

import json
from pathlib import Path

import msgspec
import pytest
import typer
from tests.audit.recorded import call, run_of
from tests.audit.test_invariants import SOUND
from tests.audit.trajectories.foreign import FOREIGN
from typer.testing import CliRunner, Result

from turnwright.errors import ConfigError
from turnwright_audit.cli.audit import audit
from turnwright_audit.traces import TraceClaim


def run(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(audit)
    return CliRunner().invoke(app, list(map(str, arguments)))


def lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    for name, rounds in {"one": [call("read", "a")] * 4, "two": [call("read"), call("list", "", None)]}.items():
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(run_of(*rounds, "Done.", name=name)))
    return folder


def test_each_run_is_a_line_and_the_last_line_is_the_summary(runs: Path) -> None:
    result = run(runs, "--json", "--jobs", "1")
    assert result.exit_code == 0
    first, second, summary = lines(result)
    assert first == first | {
        "kind": "run",
        "file": str(runs / "one.json"),
        "run": "one",
        "format": "atif",
        "turns": 1,
        "steps": 5,
        "calls": 4,
        "unpaired": 0,
        "ending": "answered",
        "tokens": 500,
        "loops": [{"tool": "read", "step": 1, "length": 4, "tokens_after": 200, "kind": "same result"}],
    }
    assert (second["unpaired"], second["loops"]) == (1, [])
    assert summary == summary | {"kind": "summary", "files": 2, "runs": 2, "steps": 8, "unpaired": 1, "looping": 1}
    assert summary["steps_distribution"] == {"p50": 3, "p95": 5, "p99": 5, "max": 5}


def test_counts_are_singular_for_a_single_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(msgspec.json.encode(run_of(call("read", result=None))))
    output = run(path).stdout
    assert output.startswith("1 run in 1 file (atif)\n  1 turn, 1 step, 1 call, 100 tokens, no cost recorded\n")
    assert "  1 of 1 call, in 1 run\n" in output


def test_secrets_are_hidden(tmp_path: Path) -> None:
    secret = "sk-" + "a1b2c3d4" * 4
    file = tmp_path / "run.json"
    file.write_bytes(msgspec.json.encode(run_of("Done.", ending=f"failed with {secret}", name=secret)))
    result = run(file, "--json")
    assert secret not in result.stdout
    assert lines(result)[0]["ending"] == "failed with ***"


def test_paths_without_a_readable_run_are_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no run")
    with pytest.raises(ConfigError, match=r"no run could be read; 1 file had no known format: \S+$"):
        audit([str(tmp_path)])


def test_folder_without_files_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run could be read; there is no file to read"):
        audit([str(tmp_path)], jobs=2)


def test_files_of_unknown_formats_are_counted(runs: Path) -> None:
    (runs / "notes.txt").write_text("no run")
    assert f"1 file had no known format: {runs / 'notes.txt'}\n" in run(runs).stderr
    assert f"1 file had another format: {runs / 'notes.txt'}\n" in run(runs, "--format", "atif").stderr
    (runs / "later.txt").write_text("no run")
    assert f"2 files had no known format, such as {runs / 'later.txt'}\n" in run(runs).stderr
    as_json = run(runs, "--json")
    assert (as_json.stderr, lines(as_json)[-1]["files_skipped"]) == ("", 2)


def test_report_has_every_part(runs: Path) -> None:
    result = run(runs)
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "2 runs in 2 files (atif)\n  2 turns, 8 steps, 6 calls, 800 tokens, no cost recorded\n"
    )
    titles = [line for line in result.stdout.splitlines() if line and not line.startswith(" ")]
    assert titles[1:] == [
        "Endings",
        "Size of a run",
        "By agent and model",
        "Calls without a result",
        "The runs with most calls without a result",
        "Loops, in 1 of 2 runs (50%)",
        "The loops with most tokens after them",
        "Limits: the runs that each would change, and what it would save",
        "Suggested limits: p99 of 2 runs that gave an answer, rounded up",
    ]
    assert "  1 of 6 calls, in 1 run" in result.stdout
    assert "  run  tools  calls\n  two  list       1\n" in result.stdout
    assert "    Limits(steps=5, tool_calls=5, tokens=500)\n" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_table_headings_are_explained_below_the_table(runs: Path) -> None:
    output = run(runs).stdout
    assert "calls xN: N rounds with the same calls; results xN: with the same results too\n" in output
    assert "+nudge: the model gets a hint, and is stopped the next time\n" in output
    assert "all three: results x3, same error x4 and nothing new x6\n" in output
    without = run(runs / "two.json").stdout
    assert "Limits: each that was tried changes no run, or more than 50% of them\n" in without
    assert "xN" not in without


def test_fail_on_condition_fails_the_audit_when_true(runs: Path) -> None:
    assert run(runs, "--fail-on", "loops>60%,unpaired>1").exit_code == 0
    result = run(runs, "--fail-on", "loops>1%,unpaired>0")
    assert result.exit_code == 1
    assert "--fail-on loops>1%: it is 50%" in result.stderr
    assert "--fail-on unpaired>0: it is 1" in result.stderr
    with pytest.raises(ConfigError, match="--fail-on: 'loop>1': NAME must be one of"):
        audit([str(runs)], fail_on="loop>1")


def test_fail_on_condition_without_data_does_not_pass(runs: Path) -> None:
    result = run(runs, "--fail-on", "cost.max>3,failed>1%,loops>60%")
    assert result.exit_code == 6
    assert "--fail-on cost.max>3: it cannot be checked: the runs have no cost\n" in result.stderr
    assert "--fail-on failed>1%: it cannot be checked: the runs have no label\n" in result.stderr
    assert run(runs, "--fail-on", "cost.max>3,loops>1%").exit_code == 1


def test_option_mistakes_are_named(runs: Path) -> None:
    with pytest.raises(ConfigError, match=r"--format must be one of .*atif"):
        audit([str(runs)], format_="nonsense")
    with pytest.raises(ConfigError, match="No such file"):
        audit([str(runs)], outcomes=runs / "missing.csv")
    with pytest.raises(ConfigError, match="not a regular file"):
        audit([str(runs)], outcomes=Path("/dev/zero"))
    with pytest.raises(ConfigError, match="no row has a run"):
        audit([str(runs)], outcomes=runs / "one.json")


def test_sub_agent_turns_are_checked_too(tmp_path: Path) -> None:
    outer, inner = run_of(call("ask"), "Done."), run_of("Found.")
    inner.trajectory_id = "inner"
    outer.subagent_trajectories = [inner]
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(outer))
    assert run(tmp_path / "run.json", "--strict").stdout.startswith("Turns: 2 (those of sub-agents too)\n")


def test_strict_prints_verdicts_with_numbers_of_turns(runs: Path) -> None:
    result = run(runs, "--strict")
    assert result.exit_code == 1
    head, names, first, *_ = result.stdout.splitlines()
    assert (head, names) == ("Turns: 2", "verdict       holds broken unknown  claim")
    assert first.startswith("violated          1      1       0  each call has its result before")
    assert "inconclusive      0      0       2  steps stay within their limit" in result.stdout
    assert "no model_called: the runtime does not record its model calls" in result.stdout
    assert "violated: each call has its result before the model is called again" in result.stdout
    assert "    step 3: model_replied" in result.stdout


def test_strict_distinguishes_holding_from_undecided_claims(tmp_path: Path) -> None:
    trace = tmp_path / "turns.jsonl"
    trace.write_text("\n".join(SOUND))
    assert run(trace, "--strict").exit_code == 0
    trace.write_text("\n".join(SOUND[:-1]))
    assert run(trace, "--strict").exit_code == 6
    [run_line, summary] = lines(run(trace, "--strict", "--json"))
    for invariants in (run_line["invariants"], summary["invariants"]):
        assert isinstance(invariants, dict)
        assert (invariants["verdict"], invariants["turns"], invariants["faults"]) == ("inconclusive", 1, [])
        assert [claim["claim"] for claim in invariants["claims"]] == list(TraceClaim)


def test_trace_text_is_escaped_for_the_terminal(tmp_path: Path) -> None:
    trace = tmp_path / "turns.jsonl"
    trace.write_text("\n".join([SOUND[0], '{"event": "tool_result", "call": "a\\u001b[31m\\nb"}']))
    assert "a result for call a\\x1b[31m b, and no reply asked for it" in run(trace, "--strict").stdout


def test_page_is_written_to_a_file(runs: Path) -> None:
    page = runs.parent / "audit.html"
    assert run(runs, "--html", page).exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(ConfigError, match="nowhere is not a folder"):
        audit(["missing"], html=runs / "nowhere" / "audit.html")
    with pytest.raises(ConfigError, match="Is a directory"):
        audit([str(runs)], html=runs)


def test_line_break_in_a_file_name_is_printed_as_a_space(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "two\nlines.json").write_text("{}")
    result = run(runs, tmp_path / "two\nlines.json")
    assert result.exit_code == 0
    assert "two lines.json: its format is not known" in result.stderr


def test_unrecorded_tokens_are_not_shown_as_zero(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(msgspec.json.encode(run_of(*[call("read", "a")] * 4, "Done.", tokens=None)))
    rows = [line.split() for line in run(path).stdout.splitlines()]
    assert ["clerk", "/", "m1", "1", "?", "5", "5", "4", "?"] in rows
    assert ["same", "result", "1", "1", "?", "4", "?"] in rows


def test_missing_cost_is_shown_as_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(run_of("Done.")))
    assert "100 tokens, no cost recorded" in run(tmp_path).stdout


def test_outcomes_of_other_runs_are_named(tmp_path: Path, runs: Path) -> None:
    outcomes = tmp_path / "outcomes.csv"
    outcomes.write_text("run,success\nnobody,true\n")
    result = run(runs, "--outcomes", outcomes)
    assert result.exit_code == 0
    assert "it has no label for any of these runs" in result.stderr
    outcomes.write_text("run,success\nnobody,true\none,true\n")
    result = run(runs, "--outcomes", outcomes)
    assert result.stderr == ""
    assert "1 succeeded, 0 failed, 1 without a label" in result.stdout


@pytest.mark.parametrize("name", FOREIGN)
def test_gate_fails_for_a_recording_of_another_format(runs: Path, name: str) -> None:
    """The condition holds for no run, but the calls of one file are unknown."""
    (runs / "foreign.jsonl").write_bytes(FOREIGN[name])
    result = run(runs, "--fail-on", "loops>5", "--json", "--jobs", "1")
    assert result.exit_code == 1
    assert f"{runs / 'foreign.jsonl'}: it" in result.stderr
    assert "--fail-on loops>5: it could not be checked on 1 file\n" in result.stderr
    assert lines(result)[-1] == lines(result)[-1] | {"files": 2, "files_unreadable": 1, "runs": 2, "files_skipped": 0}


def test_foreign_recording_alone_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(FOREIGN["pi session"])
    with pytest.raises(ConfigError, match="no run could be read"):
        audit([str(tmp_path)], jobs=1)


def test_strict_audit_without_all_files_is_inconclusive(tmp_path: Path) -> None:
    (tmp_path / "sound.jsonl").write_text("\n".join(SOUND))
    assert run(tmp_path, "--strict", "--jobs", "1").exit_code == 0
    (tmp_path / "foreign.jsonl").write_bytes(FOREIGN["pi session"])
    assert run(tmp_path, "--strict", "--jobs", "1").exit_code == 6


def totals_only(steps: int) -> bytes:
    """Return a run whose tokens and cost are recorded for all of it alone."""
    trajectory = [{"action": "ls", "observation": "a", "response": "x", "thought": "x"}] * steps
    stats = {"instance_cost": 0.5, "tokens_sent": 40_000, "tokens_received": 1000, "api_calls": steps}
    return json.dumps({"info": {"exit_status": "submitted", "model_stats": stats}, "trajectory": trajectory}).encode()


@pytest.mark.parametrize("steps", [1, 25])
def test_saving_is_unknown_where_only_totals_are_recorded(tmp_path: Path, steps: int) -> None:
    (tmp_path / "run.traj").write_bytes(totals_only(steps))
    output = run(tmp_path, "--html", tmp_path / "page.html", "--jobs", "1").stdout
    assert "% of tokens" not in output
    assert output.count(" of steps, ? of tokens.") == 2
    summary = lines(run(tmp_path, "--json", "--jobs", "1"))[-1]
    limits = summary["limits"]
    assert isinstance(limits, list)
    assert {(limit["saved_tokens"], limit["saved_cost"]) for limit in limits} == {(None, None)}
    assert "?</td>" in (tmp_path / "page.html").read_text()


def test_saving_is_a_share_of_the_tokens_recorded_by_step(tmp_path: Path) -> None:
    (tmp_path / "a.traj").write_bytes(totals_only(1))
    looping = run_of(*[call("read", "a")] * 9, "Done.", cost=0.01)
    (tmp_path / "b.json").write_bytes(msgspec.json.encode(looping))
    output = run(tmp_path, "--jobs", "1").stdout
    assert "The defaults would change 1 of 2 runs, saving 64% of steps, 70% of tokens." in output


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules:\n  - {name: once, at_most: 1, of: read}\n  - {name: password, never: list, effect: report}\n"
    )
    return path


def test_rules_are_a_table_with_the_runs_that_failed(runs: Path, rules: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("run,success\none,false\ntwo,true\n")
    page = tmp_path / "page.html"
    result = run(runs, "--rules", rules, "--outcomes", labels, "--html", page, "--jobs", "1")
    assert result.exit_code == 0
    table = [line.split() for line in result.stdout.partition("\nRules\n")[2].splitlines()]
    assert table[1:3] == [["once", "refuse", "1", "1", "3"], ["password", "report", "1", "0", "1"]]
    assert "1 run of 2 breaks a rule; 1 of them failed, 100% of all failures" in result.stdout
    assert "<h2>Rules</h2><p>1 run of 2 breaks a rule; 1 of them failed" in page.read_text()


def test_rules_name_no_share_of_the_failures_without_a_failure(runs: Path, rules: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("run,success\none,true\ntwo,true\n")
    page = tmp_path / "page.html"
    result = run(runs, "--rules", rules, "--outcomes", labels, "--html", page, "--jobs", "1")
    assert "  1 run of 2 breaks a rule\n" in result.stdout
    assert "<h2>Rules</h2><p>1 run of 2 breaks a rule.</p>" in page.read_text()


def test_rules_are_in_the_json_of_runs_and_of_the_summary(runs: Path, rules: Path) -> None:
    """A rule that is named as a secret is shown."""
    first, second, summary = lines(run(runs, "--rules", rules, "--json"))
    assert first["rules"] == [
        {"rule": "once", "effect": "refuse", "calls": 3, "step": 2, "tool": "read", "words": "at most 1 read"}
    ]
    assert [rule["rule"] for rule in second["rules"]] == ["password"]  # type: ignore[attr-defined]
    assert summary["rules"]["broken"] == {"runs": 1, "succeeded": 0, "failed": 0, "calls": 3}  # type: ignore[index]
    assert [(rule["rule"], rule["runs"]) for rule in summary["rules"]["by_rule"]] == [  # type: ignore[index]
        ("once", 1),
        ("password", 1),
    ]


@pytest.mark.parametrize(("condition", "code"), [("rules>0", 1), ("rules>1", 0), ("rules>40%", 1), ("rules>50%", 0)])
def test_audit_fails_on_broken_rules(runs: Path, rules: Path, condition: str, code: int) -> None:
    """Rules whose effect is a report do not count."""
    assert run(runs, "--rules", rules, "--fail-on", condition).exit_code == code


def test_condition_on_rules_needs_rules(runs: Path) -> None:
    assert "--rules FILE says which rules" in str(run(runs, "--fail-on", "rules>0").exception)


def test_file_of_rules_with_an_error_names_its_line(runs: Path, rules: Path) -> None:
    rules.write_text("rules:\n  - {name: once, at_most: 1, off: read}\n")
    error = run(runs, "--rules", rules).exception
    assert isinstance(error, ConfigError)
    assert f"{rules}:2: once: off is unknown: did you mean `of`?" in str(error)
