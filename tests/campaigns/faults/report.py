"""The result of a campaign: as a value, as JSON and as the tables of `docs/evidence.md`."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from turnwright._base.version import VERSION
from turnwright_states.facts import KINDS

from .audit import CLAIMS, Audit

_TITLES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
_BEGIN: Final = "<!-- campaign -->"
_END: Final = "<!-- /campaign -->"


@dataclass(slots=True)
class StoreReport:
    """The trials over one kind of store, added up. `faults` has every claim, zeros included."""

    turns: int = 0
    processes: int = 0
    kills: int = 0
    recoveries: int = 0
    missed: int = 0
    facts: int = 0
    executions: int = 0
    requests: int = 0
    answers: int = 0
    words: int = 0
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLAIMS, 0))
    killed: dict[str, int] = field(default_factory=dict)
    killed_after: dict[str, int] = field(default_factory=dict)
    endings: dict[str, int] = field(default_factory=dict)

    def add(self, audits: Iterable[Audit]) -> None:
        killed, after, endings = Counter[str](), Counter[str](), Counter[str]()
        for audit in audits:
            self.turns += 1
            self.kills += len(audit.kills)
            for name in ("missed", "requests", "words", *(_FIGURES.keys() - {"turns", "kills"})):
                setattr(self, name, getattr(self, name) + getattr(audit, name))
            for claim, claim_faults in audit.faults.items():
                self.faults[claim] += len(claim_faults)
            killed.update(how for how, _ in audit.kills)
            after.update(kind for _, kind in audit.kills)
            endings[audit.ending] += 1
        self.killed = dict(killed.most_common())
        self.killed_after = {kind: after[kind] for kind in (*KINDS, "none") if after[kind]}
        self.endings = dict(sorted(endings.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class FaultReport:
    """A campaign. It has no date and no machine's name: the same seed gives nearly the same report."""

    version: str
    seed: int
    stores: Mapping[str, StoreReport]

    @classmethod
    def of(cls, seed: int, audits: Mapping[str, Sequence[Audit]]) -> "FaultReport":
        stores: dict[str, StoreReport] = {}
        for name, of_store in audits.items():
            stores[name] = StoreReport()
            stores[name].add(of_store)
        return cls(VERSION, seed, stores)

    @classmethod
    def from_json(cls, text: str) -> "FaultReport":
        """Read the text of `to_json`. Raises `TypeError` or `ValueError` for any other text."""
        read = json.loads(text)
        return cls(
            read["version"], read["seed"], {name: StoreReport(**fields) for name, fields in read["stores"].items()}
        )

    def to_json(self) -> str:
        """The report as JSON text, to be committed."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @property
    def faults(self) -> int:
        """The number of violations."""
        return sum(sum(store.faults.values()) for store in self.stores.values())

    def tables(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        reports = list(self.stores.values())
        yield f"Turnwright {self.version}, seed {self.seed}."
        yield ""
        yield from self._table(
            "", [(words, [getattr(report, name) for report in reports]) for name, words in _FIGURES.items()]
        )
        yield ""
        yield f"{self.faults} violations of the {len(CLAIMS)} claims that were checked."
        yield ""
        places = dict.fromkeys(name for report in reports for name in report.killed)
        yield from self._table("kills", [(name, [report.killed.get(name, 0) for report in reports]) for name in places])

    def _table(self, title: str, rows: Iterable[tuple[str, Sequence[int]]]) -> Iterator[str]:
        yield f"| {' | '.join([title, *(_TITLES.get(name, name) for name in self.stores)])} |"
        yield f"| --- |{' ---: |' * len(self.stores)}"
        for name, numbers in rows:
            yield f"| {' | '.join([name, *(f'{number:,}' for number in numbers)])} |"


#: The figures of a store that the page shows, in words.
_FIGURES: Final = {
    "turns": "turns",
    "processes": "driver processes",
    "kills": "kills that hit a running driver",
    "recoveries": "turns recovered by another process",
    "facts": "facts checked",
    "executions": "tool executions",
    "answers": "answers by people",
}


def put_into(page: str, report: FaultReport) -> str:
    """The page with the report's tables between its marks. Raises `ValueError` for a page without marks."""
    new_page, count = re.subn(
        f"(?<={_BEGIN}\n).*?(?={_END})", lambda _: f"\n{report.tables()}\n\n", page, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"the page must have {_BEGIN} and {_END} once, each on a line of its own")
    return new_page
