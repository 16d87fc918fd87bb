"""The report of an audit on a terminal: endings, sizes, loops, limits, and a suggestion."""

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Final

from turnwright._base.words import count, cut_line, money
from turnwright.cli.screen import print_columns, print_lines
from turnwright.status import LIMITS
from turnwright_audit.distribution import Distribution
from turnwright_audit.numbers import abbreviate, percent
from turnwright_audit.suggest import Suggestion
from turnwright_audit.totals import MICRO, Group, SeenLoop, Tally, Totals
from turnwright_audit.trials import TRIALS
from turnwright_audit.verdicts import Invariants
from turnwright_states.rules import RuleList

Rows = list[Sequence[str]]
#: Rows of a table that are shown.
_MOST: Final = 10
_LOOPS: Final = 5
#: A limit that changes a larger share of the runs is not shown.
_USEFUL: Final = 0.5
#: Fewer good runs than this are too few for a p99.
_FEW: Final = 100
_NAME: Final = 34
_LIMITS: Final = {
    **{name: limit.counted for name, limit in LIMITS.items()},
    "max_calls_per_step": "calls per step",
    "doom_threshold": "equal rounds",
    "detector": "detector",
}
#: The detectors in words.
_WORDS: Final = {
    "errors:4": "same error x4",
    "nothing:6": "nothing new x6",
    "results:3 + errors:4 + nothing:6": "all three",
}
#: The meaning of each word in the table of limits.
_NOTES: Final = {
    "calls x": "  calls xN: N rounds with the same calls; results xN: with the same results too",
    "nudge": "  +nudge: the model gets a hint, and is stopped the next time",
    "all three": "  all three: results x3, same error x4 and nothing new x6",
}


def print_report(totals: Totals, suggestion: Suggestion | None, *, files: int, hide: Callable[[str], str]) -> None:
    """Print the report. `hide` hides secrets in texts of a recording."""
    report = _Report(totals, hide)
    print_lines(report.head(files))
    report.endings()
    report.sizes()
    report.groups()
    print_lines(report.pairing())
    report.without_results()
    report.loops()
    report.limits()
    print_lines(_list_suggestions(totals, suggestion))


def print_invariants(invariants: Invariants, *, subagents: int = 0, hide: Callable[[str], str]) -> None:
    """Print the verdict on each claim with the numbers of turns, and the first faults."""
    beside = " (those of sub-agents too)" if subagents else ""
    print_lines([f"Turns: {invariants.turns:,}{beside}", f"{'verdict':<13} holds broken unknown  claim"])
    for claim, claim_count in invariants.claims.items():
        numbers = f"{claim_count.holds:>6,} {claim_count.violated:>6,} {claim_count.unknown:>7,}"
        lines = wrap(claim, 43)
        print_lines([f"{claim_count.verdict:<12} {numbers}  {lines[0]}", *(f"{'':<36}{line}" for line in lines[1:])])
    reasons = dict.fromkeys(claim_count.why for claim_count in invariants.claims.values() if claim_count.why)
    print_lines(["", "Unknown because, for example:"] if reasons else [])
    print_lines(f"  {cut_line(hide(why), 400)}" for why in reasons)
    for fault in invariants.faults:
        turn = f", turn {fault.turn}" if fault.turn else ""
        where = f"{fault.file}, run {fault.run}{turn}" if fault.run != fault.turn else f"{fault.file}{turn}"
        print_lines(["", f"violated: {fault.claim}", f"  {cut_line(hide(where), 400)}"])
        print_lines([f"  {cut_line(hide(fault.why), 400)}"])
        print_lines(f"    {cut_line(hide(line), 400)}" for line in fault.witness)


def print_rules(totals: Totals, rules: RuleList, *, hide: Callable[[str], str]) -> None:
    """Print how many runs break each rule, the most first, and how many of those failed."""
    rows: Rows = [(cut_line(hide(name), _NAME), *cells) for name, *cells in totals.rule_rows(rules)]
    _table("Rules", ("rule", "effect", ">runs", ">failed", ">calls"), rows)
    print_lines([f"  {totals.describe_breaking()}"])


class _Report:
    def __init__(self, totals: Totals, hide: Callable[[str], str]) -> None:
        self._totals = totals
        self._hide = hide

    def _text(self, text: str, width: int = _NAME) -> str:
        return cut_line(self._hide(text), width)

    def head(self, files: int) -> Iterator[str]:
        totals = self._totals
        heading = f"{count(totals.runs, 'run')} in {count(files, 'file')} ({', '.join(sorted(totals.formats))})"
        yield from wrap(heading, 80, subsequent_indent="  ")
        cost = f"cost {money(totals.cost)}" if totals.cost else "no cost recorded"
        usage = f"{abbreviate(totals.tokens)} tokens, {cost}" if totals.tokens else "no tokens recorded"
        turns, steps, calls = count(totals.turns, "turn"), count(totals.steps, "step"), count(totals.calls, "call")
        yield f"  {turns}, {steps}, {calls}, {usage}"
        if totals.labeled:
            unlabeled_count = totals.runs - totals.labeled
            without = f", {unlabeled_count:,} without a label" if unlabeled_count else ""
            yield f"  {totals.succeeded:,} succeeded, {totals.failed:,} failed{without}"
        else:
            yield "  no labels: --outcomes FILE says which runs succeeded"

    def endings(self) -> None:
        rows: Rows = []
        endings = sorted(self._totals.endings.items(), key=lambda entry: -entry[1])
        for name, number in endings[:_MOST]:
            rows.append((self._text(name, 50), f"{number:,}", percent(number, self._totals.runs)))
        self._add_more_row(rows, endings)
        _table("Endings", ("ending", ">runs", ">share"), rows)

    def sizes(self) -> None:
        every = self._totals.all
        rows: Rows = [
            (name, *map(words, _shares(distribution, scale)))
            for name, distribution, scale, words in (
                ("steps", every.steps, 1, abbreviate),
                ("calls", every.calls, 1, abbreviate),
                ("tokens", every.tokens, 1, abbreviate),
                ("cost", every.cost, MICRO, money),
            )
            if distribution.max
        ]
        _table("Size of a run", ("", ">p50", ">p95", ">p99", ">max"), rows)

    def groups(self) -> None:
        rows: Rows = []
        groups = sorted(self._totals.groups.items(), key=lambda entry: -entry[1].runs)
        for name, group in groups[:_MOST]:
            rows.append((self._text(name), *_group(group)))
        self._add_more_row(rows, groups)
        head = ("agent / model", ">runs", ">ok", ">steps p50", ">p99", ">calls p99", ">tokens p99")
        _table("By agent and model", head, rows)

    def pairing(self) -> Iterator[str]:
        totals = self._totals
        yield ""
        yield "Calls without a result"
        yield f"  {totals.unpaired:,} of {count(totals.calls, 'call')}, in {count(totals.unpaired_runs, 'run')}"
        apart = {
            "of terminal tools": totals.terminal,
            "that wait for a person": totals.waiting,
            "whose record could not be read": totals.unreadable + totals.lost_calls,
        }
        sentences = [f"{number:,} {words}" for words, number in apart.items() if number]
        if sentences:
            yield f"  not counted: {', '.join(sentences)}"
        counts = (
            (totals.orphans, "result", " without a call"),
            (totals.errors, "error", ""),
            (totals.denied, "denied call", ""),
            (totals.failed_requests, "failed request", " to the model"),
            (totals.unreadable_lines, "line", " that could not be read"),
        )
        sentences = [count(number, noun) + ending for number, noun, ending in counts if number]
        if sentences:
            yield f"  also: {', '.join(sentences)}"
        for finding, number in totals.findings.items():
            yield f"  cannot be so: {finding} ({number:,})"

    def without_results(self) -> None:
        rows: Rows = []
        groups = self._totals.without_results
        for group in groups[:_MOST]:
            tools = ", ".join(group.tools)
            rows.append((self._text(group.name, 40), self._text(tools, 24), f"{group.calls:,}"))
        self._add_more_row(rows, groups)
        _table("The runs with most calls without a result", ("run", "tools", ">calls"), rows)

    def loops(self) -> None:
        totals = self._totals
        if not totals.kinds:
            print_lines(["", "Loops: none"])
            return
        rows: Rows = [
            (
                name,
                f"{kind_totals.loops:,}",
                f"{kind_totals.runs:,}",
                totals.show_labeled(kind_totals.succeeded),
                f"{kind_totals.rounds:,}",
                _tokens(kind_totals.tokens_after, is_known=bool(kind_totals.with_tokens)),
            )
            for name, kind_totals in sorted(totals.kinds.items(), key=lambda entry: -entry[1].loops)
        ]
        title = f"Loops, in {totals.looping:,} of {count(totals.runs, 'run')} ({percent(totals.looping, totals.runs)})"
        _table(title, ("kind", ">loops", ">runs", ">ok", ">rounds", ">tokens after"), rows)
        worst: Rows = [self._loop(loop) for loop in totals.loops[:_LOOPS]]
        _table("The loops with most tokens after them", ("run", "tool", "kind", ">step", ">rounds", ">tokens"), worst)

    def _loop(self, seen_loop: SeenLoop) -> Sequence[str]:
        loop = seen_loop.loop
        tool = self._text(loop.tool, 12)
        return (
            self._text(seen_loop.name, 20),
            tool,
            loop.kind.words,
            f"{loop.step:,}",
            f"{loop.length:,}",
            _tokens(loop.tokens_after, is_known=seen_loop.has_tokens),
        )

    def limits(self) -> None:
        rows: Rows = []
        for name in TRIALS:
            tally = self._totals.tallies.get(name)
            if tally is None or not 0 < tally.runs <= self._totals.runs * _USEFUL:
                continue
            limit, _, value = name.partition(" ")
            rows.append((_LIMITS[limit], _value(limit, value), *self._tally(tally)))
        if not rows:
            print_lines(["", f"Limits: each that was tried changes no run, or more than {percent(_USEFUL, 1)} of them"])
            return
        head = ("limit", ">value", ">runs", ">ok", ">at step", ">steps", ">calls", ">tokens", ">cost")
        _table("Limits: the runs that each would change, and what it would save", head, rows)
        print_lines(
            [
                "  ok: of these runs, those that had succeeded; at step: the median of the stops",
                *(text for word, text in _NOTES.items() if any(word in row[1] for row in rows)),
                f"  Limits that change more than {percent(_USEFUL, 1)} of the runs are only in --json.",
            ]
        )

    def _tally(self, tally: Tally) -> Sequence[str]:
        totals = self._totals
        at = f"{tally.at.quantile(0.5):,}" if tally.at.n else ""
        return (
            f"{tally.runs:,}",
            totals.show_labeled(tally.succeeded),
            at,
            percent(tally.steps, totals.steps),
            percent(tally.calls, totals.calls),
            *totals.shares_saved(tally),
        )

    def _add_more_row(self, rows: Rows, entries: Sequence[object]) -> None:
        if len(entries) > _MOST:
            rows.append((f"and {len(entries) - _MOST:,} more", *[""] * (len(rows[0]) - 1)))


def _tokens(number: int, *, is_known: bool) -> str:
    return abbreviate(number) if is_known else "?"


def _value(limit: str, value: str) -> str:
    if limit == "tokens":
        return abbreviate(int(value))
    if limit == "detector":
        return _WORDS[value]
    return value.replace("calls:", "calls x").replace("results:", "results x").replace(", 1 nudge", " +nudge")


def _group(group: Group) -> Sequence[str]:
    ok = percent(group.succeeded, group.labeled) if group.labeled else "?"
    steps, calls = group.steps, group.calls
    return (
        f"{group.runs:,}",
        ok,
        f"{steps.quantile(0.5):,}",
        f"{steps.quantile(0.99):,}",
        f"{calls.quantile(0.99):,}",
        abbreviate(group.tokens.quantile(0.99)) if group.tokens.n else "?",
    )


def _shares(distribution: Distribution, scale: int) -> Iterator[float]:
    return (number / scale for number in distribution.shares().values())


def _table(title: str, head: Sequence[str], rows: Rows) -> None:
    """Print a table. A column whose head begins with `>` is aligned to the right."""
    if not rows:
        return
    columns = [list(column) for column in zip(head, *rows, strict=True)]
    for column in columns:
        if column[0].startswith(">"):
            column[0] = column[0][1:]
            width = max(map(len, column))
            column[:] = [cell.rjust(width) for cell in column]
    columns[0] = [f"  {cell}" for cell in columns[0]]
    first_column, *other_columns = zip(*columns, strict=True)
    print_lines(["", title])
    print_columns(first_column, other_columns)


def _list_suggestions(totals: Totals, suggestion: Suggestion | None) -> Iterator[str]:
    yield ""
    if suggestion is None:
        yield "Suggested limits: none, because no run is known to have gone well"
        return
    kind = "succeeded" if suggestion.labeled else "gave an answer"
    yield f"Suggested limits: p99 of {count(suggestion.runs, 'run')} that {kind}, rounded up"
    yield f"    {suggestion.python}"
    yield "  or in an agent file:"
    yield from (f"    {line}" for line in suggestion.front_matter)
    for name, tally in (("These limits", suggestion.effect), ("The defaults", suggestion.defaults)):
        yield f"  {name} would change {_describe_done(totals, tally, labeled=suggestion.labeled)}"
    if suggestion.runs < _FEW:
        yield f"  The p99 of fewer than {_FEW} runs is their maximum: audit more of them."
    if len(totals.groups) > 1:
        yield "  They are for all agents and models together: audit one alone for limits of its own."


def _describe_done(totals: Totals, tally: Tally, *, labeled: bool) -> str:
    ok = f" ({tally.succeeded:,} ok)" if labeled else ""
    tokens, _ = totals.shares_saved(tally)
    savings = f"{percent(tally.steps, totals.steps)} of steps{f', {tokens} of tokens' if tokens else ''}"
    return f"{tally.runs:,} of {count(totals.runs, 'run')}{ok}, saving {savings}."
