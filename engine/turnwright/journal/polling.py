"""Asks tools about the calls that wait for their results, and has those run again that are ready."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Final

from pydantic import JsonValue

from turnwright._base.ids import root_of
from turnwright.errors import StoreError, TurnNotFoundError, UnreadableTurnError
from turnwright.store import Store, TurnRow
from turnwright.tools import Tool
from turnwright_states import Decision, InterruptKind, State
from turnwright_states import facts as f
from turnwright_states.payload import thaw

from .answers import Answer, answer_item, sign
from .turn_journal import JournalFold

_LOG: Final = logging.getLogger(__name__)
_VIA: Final = "task"


@dataclass(frozen=True, slots=True)
class _Wait:
    """A call that waits for its result, in a turn or in a sub-agent's turn."""

    turn: str
    interrupt: str
    tool: Tool
    data: JsonValue

    @property
    def root(self) -> str:
        return root_of(self.turn)

    @property
    def forwarded(self) -> str:
        """The interrupt's id in the root's turn."""
        path = self.turn.removeprefix(self.root).split(":")[1:]
        return "/".join([*path, self.interrupt])


@contextmanager
def _tolerating(wait: _Wait) -> Iterator[None]:
    """Log an error of the wait's tool: the other waits are looked at too."""
    try:
        yield
    except Exception:  # noqa: BLE001 (an embedder's tool)
        _LOG.exception("tool %s cannot look at its wait now", wait.tool.name, extra={"turn": wait.turn})


class WaitPoller:
    """Looks at the calls of tools that watch their waits (`Tool.watches_waits`). `now` is the wall clock."""

    def __init__(self, store: Store, tools: Mapping[str, Tool], now: Callable[[], float]) -> None:
        self._store = store
        self._tools = {name: tool for name, tool in tools.items() if tool.watches_waits}
        self._now = now
        #: The waits of each paused turn, and the time of the write with which they were read.
        self._waits: dict[str, tuple[float, list[_Wait]]] = {}

    @property
    def is_needed(self) -> bool:
        """Whether any tool watches its waits."""
        return bool(self._tools)

    async def poll(self) -> list[str]:
        """Ask the tools, and post that the ready calls run again. Return their turns, which a driver can resume.

        A wait that has ended otherwise, such as by an abort, is given up. Raises `StoreError`.
        """
        rows = {row.id: row for row in await self._store.turns(live=True)}
        paused_rows = {name: row for name, row in rows.items() if not row.fault and row.status.state is State.PAUSED}
        waits = {name: entry for name, entry in self._waits.items() if name in rows}
        for row in paused_rows.values():
            waits[row.id] = await self._read(row)
        open_waits = self._list(waits)
        ended_waits = [wait for key, wait in self._list(self._waits).items() if key not in open_waits]
        self._waits = waits
        for wait in ended_waits:
            if await self._is_abandoned(wait):
                with _tolerating(wait):
                    await wait.tool.give_up(wait.data)
        roots: dict[str, None] = {}
        for wait in open_waits.values():
            if wait.turn not in paused_rows or wait.root not in paused_rows:
                continue
            is_ready = False
            with _tolerating(wait):
                is_ready = await wait.tool.is_ready(wait.data)
            if is_ready:
                item = answer_item(wait.root, wait.forwarded, Answer(Decision.RERUN), sign(self._now(), via=_VIA))
                with suppress(TurnNotFoundError):  # it was deleted meanwhile
                    await self._store.post(item)
                    roots[wait.root] = None
        return [*roots]

    async def _is_abandoned(self, wait: _Wait) -> bool:
        """Return whether a wait has ended otherwise than by a new run of its call."""
        decision: Decision | None = None
        with suppress(TurnNotFoundError):
            for _, fact in await self._store.facts(wait.turn):
                if isinstance(fact, f.CallWaiting) and fact.interrupt.id == wait.interrupt:
                    decision = None
                elif isinstance(fact, f.Answered) and fact.interrupt == wait.interrupt:
                    decision = fact.decision
        return decision is not Decision.RERUN

    async def _read(self, row: TurnRow) -> tuple[float, list[_Wait]]:
        known_waits = self._waits.get(row.id)
        if known_waits is not None and known_waits[0] == row.updated_at:
            return known_waits
        try:
            turn = (await JournalFold.read(self._store, row.id)).machine.turn
        except TurnNotFoundError:
            return row.updated_at, []
        except StoreError as error:
            # Its waits have not ended. A damaged turn is read again when it is written to, others in the next poll.
            _LOG.debug("the waits of turn %s cannot be read: %s", row.id, error)
            updated_at = row.updated_at if isinstance(error, UnreadableTurnError) else -inf
            return updated_at, [] if known_waits is None else known_waits[1]
        waits = [
            _Wait(row.id, interrupt.id, self._tools[interrupt.tool], thaw(interrupt.kept))
            for interrupt in turn.interrupts.values()
            if interrupt.kind is InterruptKind.RESULT and not interrupt.forwarded and interrupt.tool in self._tools
        ]
        return row.updated_at, waits

    @staticmethod
    def _list(waits: Mapping[str, tuple[float, list[_Wait]]]) -> dict[tuple[str, str], _Wait]:
        return {(wait.turn, wait.interrupt): wait for _, group in waits.values() for wait in group}
