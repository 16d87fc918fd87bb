"""The report of an audit as one HTML page, which loads nothing."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from turnwright._base.words import count, money
from turnwright.privacy.invisible import escape_invisible
from turnwright.status import LIMITS
from turnwright_states.rules import RuleList

from .loops import LoopKind
from .numbers import abbreviate, percent
from .plots import Line, curves, histogram
from .suggest import Suggestion
from .totals import MICRO, SeenLoop, Tally, Totals
from .trials import TRIALS

_STYLE: Final = Path(__file__).with_name("page.css")
_KINDS: Final = list(LoopKind)
_LOOPS: Final = 40
_ROWS: Final = 20
_LIMITS: Final = ("steps", "tool_calls", "tokens", "cost")
_DETECTORS: Final = {
    "doom_threshold calls:3": "same calls, three times",
    "doom_threshold calls:3, 1 nudge": "same calls, three times, after a nudge",
    "doom_threshold results:3": "same calls and results, three times",
    "detector errors:4": "same error, four times",
    "detector nothing:6": "nothing new for six rounds",
    "detector results:3 + errors:4 + nothing:6": "the last three together",
}


def page_of(
    totals: Totals,
    suggestion: Suggestion | None,
    *,
    files: int,
    hide: Callable[[str], str],
    rules: RuleList | None = None,
) -> str:
    """Return the page. `hide` hides secrets in texts of a recording; `rules` are those of the audit."""
    page = _Page(totals, hide)
    body = "".join(
        [
            *page.head(files),
            *page.rules(rules),
            *page.list_suggestions(suggestion),
            *page.sizes(),
            *page.limits(),
            *page.loops(),
            *page.tables(),
        ]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Audit of agent runs</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head><body><main>{body}</main></body></html>\n"
    )


class _Page:
    def __init__(self, totals: Totals, hide: Callable[[str], str]) -> None:
        self._totals = totals
        self._hide = hide

    def _text(self, text: str) -> str:
        return escape(escape_invisible(self._hide(text)))

    def head(self, files: int) -> Iterator[str]:
        totals = self._totals
        formats = ", ".join(sorted(totals.formats))
        where = f"{count(files, 'file')} ({self._text(formats)})"
        yield f"<h1>Audit of {count(totals.runs, 'agent run')}</h1><p>{where}</p>"
        of = "" if totals.labeled in (0, totals.runs) else f" of the {totals.labeled:,} with a label"
        cards = {
            "steps": abbreviate(totals.steps),
            "tool calls": abbreviate(totals.calls),
            "tokens": abbreviate(totals.tokens) if totals.tokens else "not recorded",
            "cost": money(totals.cost) if totals.cost else "not recorded",
            f"succeeded{of}": percent(totals.succeeded, totals.labeled) or "no labels",
            "of the runs have a loop": percent(totals.looping, totals.runs),
            "calls without a result": f"{totals.unpaired:,}",
        }
        yield '<div class="cards">'
        yield from (f'<div class="card"><b>{value}</b><span>{name}</span></div>' for name, value in cards.items())
        yield "</div>"

    def rules(self, rules: RuleList | None) -> Iterator[str]:
        if rules is None:
            return
        yield f"<h2>Rules</h2><p>{self._totals.describe_breaking()}.</p>"
        rows = [(self._text(name), *cells) for name, *cells in self._totals.rule_rows(rules)]
        yield _table(("rule", "effect", ">runs", ">failed", ">calls"), rows)

    def list_suggestions(self, suggestion: Suggestion | None) -> Iterator[str]:
        if suggestion is None:
            return
        kind = "succeeded" if suggestion.labeled else "gave an answer"
        yield f"<h2>Suggested limits</h2><p>The p99 of {count(suggestion.runs, 'run')} that {kind}, rounded up.</p>"
        matter = escape("\n".join(suggestion.front_matter))
        yield f'<pre tabindex="0">{escape(suggestion.python)}</pre><pre tabindex="0">{matter}</pre>'
        rows = [self._effect("these limits", suggestion.effect), self._effect("the defaults", suggestion.defaults)]
        yield _table(("", ">runs changed", ">had succeeded", ">steps saved", ">tokens saved", ">cost saved"), rows)

    def _effect(self, name: str, tally: Tally) -> Sequence[str]:
        totals = self._totals
        shares = (percent(tally.steps, totals.steps), *totals.shares_saved(tally))
        return (name, f"{tally.runs:,}", totals.show_labeled(tally.succeeded), *shares)

    def sizes(self) -> Iterator[str]:
        every = self._totals.all
        plots = {
            "Steps": (every.steps, abbreviate),
            "Tool calls": (every.calls, abbreviate),
            "Tokens": (every.tokens, abbreviate),
            "Cost": (every.cost, _micro),
        }
        yield "<h2>Size of a run</h2><p>The number of runs by size. A wide range has a logarithmic scale.</p>"
        yield '<div class="plots">'
        for name, (numbers, words) in plots.items():
            if numbers.max:
                yield f'<div class="panel"><h3>{name}</h3>{histogram(name, numbers, words)}</div>'
        yield "</div>"

    def limits(self) -> Iterator[str]:
        totals, is_labeled = self._totals, self._totals.labeled > 0
        run_count, label = (
            (totals.succeeded, "successful runs stopped") if is_labeled else (totals.runs, "runs stopped")
        )
        saved_label = "steps of failed runs saved" if is_labeled else "steps saved"
        yield "<h2>Limits against successes lost</h2>"
        yield "<p>What each limit would have done to these runs. A model that knows a limit may act otherwise.</p>"
        yield _legend({"saved-key": saved_label, "lost-key": label})
        yield '<div class="plots">'
        for limit in _LIMITS:
            names = [name for name in TRIALS if name.startswith(f"{limit} ")]
            tallies = [totals.tallies.get(name, Tally()) for name in names]
            if not any(tally.runs for tally in tallies):
                continue
            values = [_value(limit, name.partition(" ")[2]) for name in names]
            title = LIMITS[limit].counted.capitalize()
            lines = (
                Line("saved", saved_label, [self._find_saving(tally) for tally in tallies]),
                Line(
                    "lost",
                    label,
                    [(tally.succeeded if is_labeled else tally.runs) / max(run_count, 1) for tally in tallies],
                ),
            )
            yield f'<div class="panel"><h3>{title}</h3>{curves(title, values, lines)}</div>'
        yield "</div>"
        rows = []
        for name, words in _DETECTORS.items():
            tally = totals.tallies.get(name, Tally())
            ok = totals.show_labeled(tally.succeeded)
            rows.append((words, f"{tally.runs:,}", ok, f"{self._find_saving(tally):.1%}"))
        yield "<h2>Loop detectors</h2>"
        yield _table(("a turn is stopped by", ">runs", ">had succeeded", f">{saved_label}"), rows)

    def _find_saving(self, tally: Tally) -> float:
        totals = self._totals
        if totals.labeled:
            return tally.saved_failed / max(totals.failed_steps, 1)
        return tally.steps / max(totals.steps, 1)

    def loops(self) -> Iterator[str]:
        worst_loops = self._totals.loops[:_LOOPS]
        yield "<h2>Loops on a timeline</h2>"
        if not worst_loops:
            yield "<p>No run has a loop.</p>"
            return
        yield "<p>Each bar is a run, from its first to its last step. Loops with most tokens after them come first.</p>"
        yield _legend({f"k{at}": kind for at, kind in enumerate(_KINDS)})
        yield '<div class="panel">'
        runs: dict[tuple[str, str], list[SeenLoop]] = {}
        for seen_loop in worst_loops:
            runs.setdefault((seen_loop.file, seen_loop.run), []).append(seen_loop)
        yield from map(self._run, runs.values())
        yield "</div>"

    def _run(self, loops: Sequence[SeenLoop]) -> str:
        first = loops[0]
        name = self._text(first.name)
        label = {True: ", succeeded", False: ", failed", None: ""}[first.success]
        shapes = ['<rect class="whole" x="0" y="1" width="100" height="12" rx="1"/>']
        for seen_loop in loops:
            loop, scale = seen_loop.loop, 100 / max(seen_loop.steps, 1)
            words = f"{loop.tool}: {loop.kind.words}, {loop.length} rounds from step {loop.step}"
            after = abbreviate(loop.tokens_after) if seen_loop.has_tokens else "?"
            title = self._text(f"{words}, {after} tokens after it")
            x, width = (loop.step - 1) * scale, max(loop.length * scale, 0.6)
            box = f'x="{x:.2f}" y="1" width="{width:.2f}" height="12"'
            shapes.append(f'<rect class="k{_KINDS.index(loop.kind)}" {box}><title>{title}</title></rect>')
        words = ", ".join(dict.fromkeys(seen_loop.loop.kind.words for seen_loop in loops))
        head = f'<svg viewBox="0 0 100 14" preserveAspectRatio="none" role="img" aria-label="{name}: {words}">'
        note = f"{self._text(first.loop.tool)}, {count(first.steps, 'step')}{label}"
        return f'<div class="run"><span>{name}<br><small>{note}</small></span>{head}{"".join(shapes)}</svg></div>'

    def tables(self) -> Iterator[str]:
        totals = self._totals
        rows: list[Sequence[str]]
        if unpaired_runs := totals.without_results[:_ROWS]:
            rows = [
                (
                    self._text(unpaired_run.name),
                    self._text(", ".join(unpaired_run.tools)),
                    f"{unpaired_run.calls:,}",
                )
                for unpaired_run in unpaired_runs
            ]
            yield f"<h2>Calls without a result</h2>{_table(('run', 'tools', '>calls'), rows)}"
        endings = Counter(totals.endings).most_common(_ROWS)
        rows = []
        for name, number in endings:
            rows.append((self._text(name), f"{number:,}", percent(number, totals.runs)))
        yield f"<h2>Endings</h2>{_table(('ending', '>runs', '>share'), rows)}"
        groups = sorted(totals.groups.items(), key=lambda entry: -entry[1].runs)[:_ROWS]
        rows = []
        for name, group in groups:
            distributions = (group.steps, group.calls, group.tokens)
            sizes = [
                abbreviate(distribution.quantile(share)) if distribution.n else "?"
                for distribution in distributions
                for share in (0.5, 0.99)
            ]
            rows.append((self._text(name), f"{group.runs:,}", percent(group.succeeded, group.labeled) or "?", *sizes))
        head = (">runs", ">ok", ">steps p50", ">p99", ">calls p50", ">p99", ">tokens p50", ">p99")
        yield f"<h2>By agent and model</h2>{_table(('agent / model', *head), rows)}"


def _micro(number: float) -> str:
    return money(number / MICRO)


def _value(limit: str, value: str) -> str:
    return abbreviate(int(value)) if limit == "tokens" else value


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table. A column whose head begins with `>` is aligned to the right. Cells are HTML."""
    styles = [' class="n"' if name.startswith(">") else "" for name in head]
    heads = "".join(f"<th{style}>{name.removeprefix('>')}</th>" for name, style in zip(head, styles, strict=True))
    body = []
    for row in rows:
        cells = (f"<td{style}>{cell}</td>" for cell, style in zip(row, styles, strict=True))
        body.append(f"<tr>{''.join(cells)}</tr>")
    inner = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="panel scroll" tabindex="0"><table>{inner}</table></div>'


def _legend(keys: dict[str, str]) -> str:
    """Return the meanings of colors, each by its class."""
    legend = "".join(f'<span><i class="{name}"></i>{words}</span>' for name, words in keys.items())
    return f'<div class="legend">{legend}</div>'
