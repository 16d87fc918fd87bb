"""The digest of a turn's journal for lists and statistics, cached until the journal grows."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio.lowlevel
from msgspec.structs import replace

from turnwright._base.ids import child_id
from turnwright.errors import StoreError, TurnNotFoundError, UnreadableTurnError
from turnwright.journal.subturns import leased_calls
from turnwright.store import Store, TurnRow
from turnwright.transcript.reading import reading
from turnwright_states import TurnMachine, Usage
from turnwright_states import facts as f

#: How many turns are remembered: more than the statistics look at, with those of their sub-agents.
_MOST: Final = 12_000
#: Characters of a prompt that are remembered, to be searched and shown.
_PROMPT: Final = 20_000


@dataclass(frozen=True, slots=True)
class Digest:
    """The totals of a turn so far. `seconds` are active time, `children` the possible turns of its sub-agents.

    `usage` and `seconds` are as its page has them. What a fork copied is another turn's doing: `own_usage`,
    `own_seconds`, `retries` and `pauses` are without that. `prompt` is its beginning, where it is very long.

    `fault` says why its journal cannot be read; then the rest is empty.
    """

    prompt: str = ""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    own_usage: Usage = field(default_factory=Usage)
    own_seconds: float = 0.0
    retries: int = 0
    pauses: int = 0
    children: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A digest with its turn's creation, as ids can be used again, and its facts. `ended`: there will be no more."""

    made: tuple[int, float]
    last: int
    ended: bool
    digest: Digest


class Digests:
    """The digests of a store's turns, never older than the row that is passed.

    The digest of an ended turn is read once. For others the new facts are read each time, because the time of the last
    one may not have changed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def of(self, row: TurnRow) -> Digest:
        """The digest of a turn; an empty one with a fault where its journal cannot be read.

        Raises `TurnNotFoundError`.
        """
        if row.fault:
            return Digest(fault=row.fault)
        kept = self._kept.get(row.id)
        if kept is None or kept.made != _made(row) or not (kept.ended or await self._is_new(row.id, kept)):
            # Other tasks run between two digests, because a store may answer without waiting.
            await anyio.lowlevel.checkpoint()
            kept = await self._read(row)
            self._kept[row.id] = kept
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(row.id)
        return kept.digest

    async def _is_new(self, turn: str, kept: _Kept) -> bool:
        try:
            return not await self._store.facts(turn, after=kept.last)
        except TurnNotFoundError:
            raise
        except StoreError:
            return False

    async def _read(self, row: TurnRow) -> _Kept:
        try:
            facts = await self._store.facts(row.id)
            ended = bool(facts) and facts[-1][1].state.outcome is not None
            with reading(row.id):
                return _Kept(_made(row), len(facts), ended, _digest(row.id, [fact for _, fact in facts]))
        except UnreadableTurnError as error:
            return _Kept(_made(row), 0, ended=False, digest=Digest(fault=error.why))


def _made(row: TurnRow) -> tuple[int, float]:
    return row.number, row.created_at


def _digest(turn_id: str, facts: Sequence[f.Fact]) -> Digest:
    """The digest of these facts. Raises `InvalidJournalError` where they do not follow from each other."""
    turn = TurnMachine.resume(facts).turn
    first = facts[0]
    copied = max(first.forked_at or 0, 0) if isinstance(first, f.TurnStarted) else 0
    before = TurnMachine.resume(facts[:copied]).turn if copied else None
    return Digest(
        prompt=next((fact.prompt[:_PROMPT] for fact in facts if isinstance(fact, f.TurnStarted)), ""),
        usage=turn.usage,
        seconds=turn.elapsed,
        own_usage=turn.usage if before is None else _less(turn.usage, before.usage),
        own_seconds=turn.elapsed if before is None else max(turn.elapsed - before.elapsed, 0.0),
        retries=sum(isinstance(fact, f.AttemptFailed | f.Concluded) and fact.retry for fact in facts[copied:]),
        pauses=sum(isinstance(fact, f.Paused) for fact in facts[copied:]),
        children=tuple(child_id(turn_id, call) for call in leased_calls(facts)),
    )


def _less(usage: Usage, part: Usage) -> Usage:
    # The rest of a sum of floats may be below zero.
    return replace(usage, cost=max(usage.cost, part.cost)) - part
