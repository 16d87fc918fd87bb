"""`turnwright audit`: reads recorded runs of any agent, and shows their endings, loops and limits."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from turnwright._base.regular_files import read_regular
from turnwright._base.words import count, cut_line
from turnwright.cli import codes, process
from turnwright.cli.process import echo_json
from turnwright.cli.screen import Screen
from turnwright.errors import ConfigError
from turnwright.privacy.redaction import redactor
from turnwright.rules import RuleSet
from turnwright_audit.conditions import Condition, InvalidConditionError, parse_conditions
from turnwright_audit.outcomes import InvalidOutcomesError, Outcomes
from turnwright_audit.page import page_of
from turnwright_audit.report import run_json, summary_json
from turnwright_audit.suggest import Suggestion, suggest
from turnwright_audit.totals import Totals
from turnwright_audit.trajectories.formats import FORMATS, format_named
from turnwright_audit.work import Audit, Settings, cpus
from turnwright_states.verdict import Verdict

from .audit_report import print_invariants, print_report, print_rules

#: The runs that `turnwright demo audit` reads. `.ci/record_demo_runs.py` records them.
DEMO_RUNS: Final = Path(__file__).parents[1] / "demo_runs.jsonl.gz"
_MESSAGE: Final = 1000
_MAX_OUTCOMES: Final = 1024**3
_CODES: Final = {Verdict.HOLDS: 0, Verdict.VIOLATED: codes.FAILED, Verdict.INCONCLUSIVE: codes.INCONCLUSIVE}


def audit(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Files, folders or archives of recorded runs; - is stdin.")
    ],
    *,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The format of all files. By default it is recognized."),
    ] = None,
    outcomes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV or JSON lines that say which runs succeeded: run or file, and success."),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rules over calls, in YAML: which runs break which, and how many failed."),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITIONS", help="Exit with 1 if one holds: loops>1%,unpaired>0, or a size as in steps.p99>50."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Check the invariants of a turn in each turn, instead of a report.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report with plots to this file, as one HTML page.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Processes that read files. By default as many as there are processors."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per run, and a last one for all.")
    ] = False,
) -> None:
    """Audit recorded runs of any agent: their endings, their loops, and the limits that would have helped.

    Nothing leaves this machine. docs/how-to/audit-your-runs.md explains the report.

    Exit codes: 0 audited, 1 a condition of --fail-on holds or could not be checked on each file, or --strict finds a
    violation, 2 usage, or no run could be read, 6 the runs, or files that could not be read, lack what a condition, or
    a claim of --strict, needs.
    """
    conditions = [] if fail_on is None else _conditions(fail_on)
    rule_set = None if rules is None else RuleSet.load(rules)
    _check_rules(conditions, rule_set)
    settings = Settings(_format(format_), None if outcomes is None else _outcomes(outcomes), strict, rule_set)
    _check(html)
    unreadable: set[str] = set()
    with Audit(paths, settings, jobs=jobs or cpus()) as audit, _progress(audit.size) as advance:
        for batch in audit.batches(advance):
            for problem in batch.problems:
                unreadable.add(problem.file)
                process.say(_hide(cut_line(f"{problem.file}: {problem.message}", _MESSAGE)))
            for run in batch.runs() if as_json else ():
                echo_json(redactor().hide_in(run_json(run)))
        suggestion = suggest(audit.totals, audit.runs())
    totals = audit.totals
    unknown = _describe_skipped(audit, format_) if audit.skipped else ""
    if unknown and totals.runs and not as_json:
        process.say(unknown)
    if settings.outcomes is not None and totals.runs and not audit.labels:
        process.say(f"--outcomes {outcomes}: it has no label for any of these runs")
    if html is not None and totals.runs:
        _write(html, page_of(totals, suggestion, files=audit.files, hide=_hide, rules=rule_set))
    if as_json:
        figures = {"files": audit.files, "files_skipped": audit.skipped, "files_unreadable": len(unreadable)}
        echo_json(redactor().hide_in(summary_json(totals, suggestion, figures, rule_set)))
    elif totals.runs:
        _print(audit, suggestion, settings)
    if not totals.runs:
        no_file = "" if audit.files or unreadable or audit.skipped else "there is no file to read"
        raise ConfigError("; ".join(filter(None, ("no run could be read", unknown, no_file))))
    raise typer.Exit(_exit_code(totals, conditions, unreadable=len(unreadable), strict=strict))


def _describe_skipped(audit: Audit, format_: str | None) -> str:
    sentence = f"{count(audit.skipped, 'file')} had {'another' if format_ else 'no known'} format"
    name = _hide(cut_line(audit.first_skipped, _MESSAGE))
    return f"{sentence}{': ' if audit.skipped == 1 else ', such as '}{name}"


def _print(audit: Audit, suggestion: Suggestion | None, settings: Settings) -> None:
    if settings.strict:
        print_invariants(audit.totals.invariants, subagents=audit.totals.subagents, hide=_hide)
    else:
        print_report(audit.totals, suggestion, files=audit.files, hide=_hide)
    if settings.rules is not None:
        print_rules(audit.totals, settings.rules, hide=_hide)


def _check_rules(conditions: Iterable[Condition], rules: RuleSet | None) -> None:
    """Raise `ConfigError` for a condition on rules without rules."""
    for condition in conditions:
        if condition.name == "rules" and rules is None:
            raise ConfigError(f"--fail-on {condition.text}: --rules FILE says which rules")


def _check(page: Path | None) -> None:
    """Raise `ConfigError` if the page has no place. To read the files may take a while."""
    if page is not None and not page.parent.is_dir():
        raise ConfigError(f"--html {page}: {page.parent} is not a folder")


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"--html {path}: {error.strerror}") from error


def _exit_code(totals: Totals, conditions: Iterable[Condition], *, unreadable: int, strict: bool) -> int:
    conditions = list(conditions)
    lacking = [(condition.text, lacks) for condition in conditions if (lacks := condition.lacks(totals))]
    for text, lacks in lacking:
        process.say(f"--fail-on {text}: it cannot be checked: the runs have {lacks}")
    failed_conditions = [condition for condition in conditions if condition.holds(totals)]
    for condition in failed_conditions:
        process.say(f"--fail-on {condition.text}: it is {condition.value(totals):g}{'%' * condition.percent}")
    if conditions and unreadable:
        texts = ",".join(condition.text for condition in conditions)
        process.say(f"--fail-on {texts}: it could not be checked on {count(unreadable, 'file')}")
    if failed_conditions or (conditions and unreadable):
        return codes.FAILED
    if lacking:
        return codes.INCONCLUSIVE
    code = _CODES[totals.invariants.verdict] if strict else 0
    return codes.INCONCLUSIVE if strict and unreadable and not code else code


def _hide(text: str) -> str:
    return redactor().hide(text)


def _format(name: str | None) -> str | None:
    if name is not None and format_named(name) is None:
        raise ConfigError(
            f"--format must be one of {', '.join(known_format.name for known_format in FORMATS)}, not {name!r}"
        )
    return name


def _conditions(text: str) -> list[Condition]:
    try:
        return parse_conditions(text)
    except InvalidConditionError as error:
        raise ConfigError(f"--fail-on: {error}") from None


def _outcomes(path: Path) -> Outcomes:
    try:
        outcomes = Outcomes.parse(read_regular(path, _MAX_OUTCOMES).decode("utf-8-sig").replace("\r\n", "\n"))
    except (OSError, UnicodeDecodeError, InvalidOutcomesError) as error:
        raise ConfigError(f"--outcomes {path}: {getattr(error, 'strerror', None) or error}") from error
    if outcomes.unusable:
        rows = count(len(outcomes.unusable), "row")
        process.say(_hide(cut_line(f"--outcomes {path}: {rows} left out: {outcomes.unusable[0]}", _MESSAGE)))
    return outcomes


@contextmanager
def _progress(size: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar where stderr is a terminal."""
    console = Screen(err=True)
    if not console.is_terminal or not size:
        yield lambda _: None
        return
    columns = (TextColumn("Reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=size)
        yield lambda byte_count: progress.advance(task, byte_count)
