"""The list of recorded runs: a query, its totals, and its results page by page."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from turnwright.privacy.redaction import redactor

from .run_library import RunEntry, RunLibrary

#: Runs a page.
PAGE: Final = 50
#: The most characters of a filter, and the most names that a field suggests.
_LONGEST: Final = 300
_SUGGESTED: Final = 100
#: The most runs that a comparison offers.
_OFFERED: Final = 20
#: The endings that the totals count by name.
_ENDINGS: Final = 4

#: The columns by which the list is sorted, the largest value first. Runs without a value are the last.
COLUMNS: Final[Mapping[str, Callable[[RunEntry], float | None]]] = {
    "turns": lambda run: run.measures.turns,
    "steps": lambda run: run.measures.steps,
    "calls": lambda run: run.measures.calls,
    "lost": lambda run: run.measures.unpaired,
    "loops": lambda run: run.loops,
    "tokens": lambda run: run.measures.tokens,
    "cost": lambda run: run.measures.cost,
    "time": lambda run: run.seconds,
    "began": lambda run: run.began,
}
#: The endings of a run, by their words in an address.
RESULTS: Final[Mapping[str, Callable[[RunEntry], bool]]] = {
    "succeeded": lambda run: run.measures.success is True,
    "failed": lambda run: run.measures.success is False,
    "ended by itself": lambda run: run.measures.finished,
    "stopped or cut": lambda run: not run.measures.finished,
    "with a loop": lambda run: run.loops > 0,
    "with a lost result": lambda run: run.measures.unpaired > 0,
    "with failed calls": lambda run: run.measures.errors > 0,
}


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A query of runs, as an address has it. An empty field matches everything.

    `text` is a part of a name or words of prompts, answers, calls and results. `agent`, `model` and `ending` are
    parts of names, `format` is a whole one. `result` is one of `RESULTS`. `sort` is one of `COLUMNS`, or empty for the
    order of the files.
    """

    text: str = ""
    agent: str = ""
    model: str = ""
    ending: str = ""
    format: str = ""
    result: str = ""
    sort: str = ""
    ascending: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "RunQuery":
        """Return the query of an address. Fields that nobody can mean are empty."""
        fields = {name: value.replace("\0", "").strip()[:_LONGEST] for name, value in fields.items()}
        result, sort = fields.get("result", ""), fields.get("sort", "")
        return cls(
            text=fields.get("q", ""),
            agent=fields.get("agent", ""),
            model=fields.get("model", ""),
            ending=fields.get("ending", ""),
            format=fields.get("format", ""),
            result=result if result in RESULTS else "",
            sort=sort if sort in COLUMNS else "",
            ascending=fields.get("way", "") == "up",
        )

    @property
    def address(self) -> dict[str, str]:
        """The query as an address has it, without the page."""
        fields = {
            "q": self.text,
            "agent": self.agent,
            "model": self.model,
            "ending": self.ending,
            "format": self.format,
            "result": self.result,
            "sort": self.sort,
            "way": "up" if self.ascending else "",
        }
        return {name: value for name, value in fields.items() if value}

    def sorted_by(self, column: str) -> dict[str, str]:
        """Return the address of the list sorted by a column, or the other way round if it is already."""
        down = self.sort == column and not self.ascending
        return replace(self, sort=column, ascending=down).address

    def runs(self, library: RunLibrary, entries: Sequence[RunEntry]) -> list[RunEntry]:
        """Return the runs that match, in their order."""
        text = redactor().hide(self.text)
        numbers = library.saying(text) if text else frozenset[int]()
        runs = [run for run in entries if self._matches(run, text.casefold(), numbers)]
        if self.sort:
            value = COLUMNS[self.sort]
            sortable = [run for run in runs if value(run) is not None]
            sortable.sort(key=lambda run: value(run) or 0.0, reverse=not self.ascending)
            runs = sortable + [run for run in runs if value(run) is None]
        return runs

    def _matches(self, run: RunEntry, text: str, numbers: frozenset[int]) -> bool:
        names = run.names
        return (
            (not text or run.number in numbers or any(text in name for name in names))
            and self.agent.casefold() in names.agent
            and self.model.casefold() in names.model
            and self.ending.casefold() in names.ending
            and (not self.format or self.format.casefold() == names.format)
            and (not self.result or RESULTS[self.result](run))
        )


@dataclass(frozen=True, slots=True)
class RunTotals:
    """The sums over all runs of a list. `labeled` runs have a recorded success or failure.

    `endings` counts the most frequent endings. Times are in seconds, of the runs that have some.
    """

    runs: int
    succeeded: int
    labeled: int
    finished: int
    endings: Sequence[tuple[str, int]]
    steps: int
    calls: int
    lost: int
    loops: int
    tokens: int
    cost: float
    seconds: float

    @classmethod
    def of(cls, runs: Sequence[RunEntry]) -> "RunTotals":
        """Add up some runs."""
        measures = [run.measures for run in runs]
        return cls(
            runs=len(runs),
            succeeded=sum(measure.success is True for measure in measures),
            labeled=sum(measure.success is not None for measure in measures),
            finished=sum(measure.finished for measure in measures),
            endings=Counter(measure.ending for measure in measures).most_common(_ENDINGS),
            steps=sum(measure.steps for measure in measures),
            calls=sum(measure.calls for measure in measures),
            lost=sum(measure.unpaired for measure in measures),
            loops=sum(run.loops for run in runs),
            tokens=sum(measure.tokens for measure in measures),
            cost=sum(measure.cost for measure in measures),
            seconds=sum(run.seconds or 0.0 for run in runs),
        )


@dataclass(frozen=True, slots=True)
class RunList:
    """One page of the list. `following` is where the next page starts, None for the last page.

    `agents`, `models` and `endings` are names that fields suggest, and `formats` all names of formats.
    """

    runs: Sequence[RunEntry]
    following: int | None
    totals: RunTotals
    total: int
    agents: Sequence[str]
    models: Sequence[str]
    endings: Sequence[str]
    formats: Sequence[str]


def list_runs(library: RunLibrary, query: RunQuery, start: int) -> RunList:
    """Return the page of a query's runs that begins after the first `start`."""
    entries = library.entries
    runs = query.runs(library, entries)
    end = start + PAGE
    return RunList(
        runs=runs[start:end],
        following=end if len(runs) > end else None,
        totals=RunTotals.of(runs),
        total=len(entries),
        agents=_names(entry.measures.agent for entry in entries),
        models=_names(entry.measures.model for entry in entries),
        endings=_names(entry.measures.ending for entry in entries),
        formats=sorted({entry.measures.format for entry in entries}),
    )


def others_of(run: RunEntry, entries: Sequence[RunEntry]) -> list[RunEntry]:
    """Return other runs to compare one with: first those with its prompt, then those of its agent."""
    same_prompt = [entry for entry in entries if entry.prompt and entry.prompt == run.prompt]
    same_agent = [
        entry for entry in entries if entry.measures.agent == run.measures.agent and entry.prompt != run.prompt
    ]
    return [entry for entry in [*same_prompt, *same_agent] if entry.number != run.number][:_OFFERED]


def _names(names: Iterable[str]) -> Sequence[str]:
    return [name for name, _ in Counter(names).most_common(_SUGGESTED) if name]
