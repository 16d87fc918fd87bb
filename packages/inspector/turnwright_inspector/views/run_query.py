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
    "turns": lambda one: one.found.turns,
    "steps": lambda one: one.found.steps,
    "calls": lambda one: one.found.calls,
    "lost": lambda one: one.found.unpaired,
    "loops": lambda one: one.loops,
    "tokens": lambda one: one.found.tokens,
    "cost": lambda one: one.found.cost,
    "time": lambda one: one.seconds,
    "began": lambda one: one.began,
}
#: The endings of a run, by their words in an address.
RESULTS: Final[Mapping[str, Callable[[RunEntry], bool]]] = {
    "succeeded": lambda one: one.found.success is True,
    "failed": lambda one: one.found.success is False,
    "ended by itself": lambda one: one.found.finished,
    "stopped or cut": lambda one: not one.found.finished,
    "with a loop": lambda one: one.loops > 0,
    "with a lost result": lambda one: one.found.unpaired > 0,
    "with failed calls": lambda one: one.found.errors > 0,
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
    def of(cls, asked: Mapping[str, str]) -> "RunQuery":
        """Return the query of an address. Fields that nobody can mean are empty."""
        asked = {name: value.replace("\0", "").strip()[:_LONGEST] for name, value in asked.items()}
        result, sort = asked.get("result", ""), asked.get("sort", "")
        return cls(
            text=asked.get("q", ""),
            agent=asked.get("agent", ""),
            model=asked.get("model", ""),
            ending=asked.get("ending", ""),
            format=asked.get("format", ""),
            result=result if result in RESULTS else "",
            sort=sort if sort in COLUMNS else "",
            ascending=asked.get("way", "") == "up",
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
        said = library.saying(text) if text else frozenset[int]()
        found = [one for one in entries if self._matches(one, text.casefold(), said)]
        if self.sort:
            value = COLUMNS[self.sort]
            known = [one for one in found if value(one) is not None]
            known.sort(key=lambda one: value(one) or 0.0, reverse=not self.ascending)
            found = known + [one for one in found if value(one) is None]
        return found

    def _matches(self, one: RunEntry, text: str, said: frozenset[int]) -> bool:
        names = one.names
        return (
            (not text or one.number in said or any(text in name for name in names))
            and self.agent.casefold() in names.agent
            and self.model.casefold() in names.model
            and self.ending.casefold() in names.ending
            and (not self.format or self.format.casefold() == names.format)
            and (not self.result or RESULTS[self.result](one))
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
        found = [one.found for one in runs]
        return cls(
            runs=len(runs),
            succeeded=sum(one.success is True for one in found),
            labeled=sum(one.success is not None for one in found),
            finished=sum(one.finished for one in found),
            endings=Counter(one.ending for one in found).most_common(_ENDINGS),
            steps=sum(one.steps for one in found),
            calls=sum(one.calls for one in found),
            lost=sum(one.unpaired for one in found),
            loops=sum(one.loops for one in runs),
            tokens=sum(one.tokens for one in found),
            cost=sum(one.cost for one in found),
            seconds=sum(one.seconds or 0.0 for one in runs),
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
    found = query.runs(library, entries)
    end = start + PAGE
    return RunList(
        runs=found[start:end],
        following=end if len(found) > end else None,
        totals=RunTotals.of(found),
        total=len(entries),
        agents=_names(one.found.agent for one in entries),
        models=_names(one.found.model for one in entries),
        endings=_names(one.found.ending for one in entries),
        formats=sorted({one.found.format for one in entries}),
    )


def others_of(run: RunEntry, entries: Sequence[RunEntry]) -> list[RunEntry]:
    """Return other runs to compare one with: first those with its prompt, then those of its agent."""
    same = [one for one in entries if one.prompt and one.prompt == run.prompt]
    related = [one for one in entries if one.found.agent == run.found.agent and one.prompt != run.prompt]
    return [one for one in [*same, *related] if one.number != run.number][:_OFFERED]


def _names(names: Iterable[str]) -> Sequence[str]:
    return [name for name, _ in Counter(names).most_common(_SUGGESTED) if name]
