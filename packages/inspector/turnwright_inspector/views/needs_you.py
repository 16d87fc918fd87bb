"""The turns that need a person: paused ones, and those whose driver is gone."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from turnwright.errors import StoreError, TurnNotFoundError, UnreadableTurnError
from turnwright.journal.driving_status import DriverStatus, by_command_line, driving_status
from turnwright.journal.inbox import answers_in, has_request, with_inbox
from turnwright.journal.result import result_of
from turnwright.journal.turn_journal import first_fact
from turnwright.runtime.engine import Engine
from turnwright.store import InboxKind, TurnRow
from turnwright.store.outbox import NoticeCounts, OutboxStore
from turnwright.store.summaries import PAUSED, UNFINISHED, TurnFilter
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_states import InterruptKind

from .available_actions import OpenQuestion, question_of
from .cli_commands import resume_command, show_command
from .summaries import Summaries

#: The most turns on the page, and the most unfinished turns whose drivers are checked.
MOST: Final = 50
_MOST_CHECKED: Final = 200
#: Seconds for which a count is used again.
_FRESH: Final = 2.0
NO_NOTICES: Final = NoticeCounts(0, 0)


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A turn that needs a person, with what its forms need (`available_actions.AvailableActions`).

    `paused`: it asks the `questions`. Otherwise its driver is gone: `crashed`, or it was released. `due`: it can
    continue, and has no driver. `drives`: this process can run it. `fault`: its journal cannot be read.
    """

    row: TurnRow
    prompt: str
    paused: bool
    crashed: bool
    driven: bool
    drives: bool
    stopping: bool
    questions: tuple[OpenQuestion, ...]
    due: bool
    show: str
    command: str
    trouble: str
    fault: str = ""
    back: str = "needs-you"

    @property
    def turn(self) -> str:
        return self.row.id

    @property
    def root(self) -> str:
        return self.row.id

    @property
    def prefix(self) -> str:
        """The beginning of the ids of this turn's forms."""
        return f"{self.row.id}-"

    @property
    def open(self) -> tuple[OpenQuestion, ...]:
        return tuple(question for question in self.questions if not question.answered)

    @property
    def approvals(self) -> list[str]:
        """The names of the open questions, if all of them are approvals of calls. Else a choice has to be made."""
        kinds = {question.pending.kind for question in self.open}
        return [question.name for question in self.open] if kinds == {InterruptKind.APPROVAL} else []


class NeedsYou:
    """Finds and counts the turns of a store that need a person. `count` is the last known number.

    `notices` are the last known numbers of notices in the outbox, which need a person once they failed.
    """

    def __init__(self, engine: Engine, background: BackgroundTurns, summaries: Summaries, *, store: str) -> None:
        self._engine = engine
        self._background = background
        self._summaries = summaries
        self._store = store
        self.count = 0
        self.notices = NO_NOTICES
        self._counted_at = float("-inf")
        self._trouble = ""

    async def refresh(self) -> int:
        """Count the turns, at most once in two seconds. A damaged turn leaves the number as it is.

        Raises `StoreError` if the store cannot be read, and for the next two seconds without a question to it: a server
        that is down answers each after its timeout.
        """
        if anyio.current_time() - self._counted_at > _FRESH:
            self._counted_at = anyio.current_time()
            try:
                paused_count = (await self._summaries.read.totals(TurnFilter(outcome=PAUSED))).turns
                self.count = paused_count + len([row async for row, _ in self._list_left()])
                if isinstance(self._engine.store, OutboxStore):
                    self.notices = await self._engine.store.count_notices()
                self._trouble = ""
            except UnreadableTurnError:
                self._trouble = ""
            except StoreError as error:
                self._trouble, self._counted_at = str(error), anyio.current_time()
        if self._trouble:
            raise StoreError(self._trouble)
        return self.count

    async def find(self) -> list[WaitingTurn]:
        """Return the turns, those that have waited longest first. Raises `StoreError`."""
        summaries = await self._summaries.read.find(TurnFilter(outcome=PAUSED), ascending=True, limit=MOST)
        turns = [(summary.row, None) for summary in summaries] + [turn async for turn in self._list_left()]
        turns.sort(key=lambda turn: turn[0].updated_at)
        waiting: list[WaitingTurn] = []
        for row, driver in turns[:MOST]:
            with suppress(TurnNotFoundError):
                waiting.append(await self._waiting(row, driver))
        self._counted_at = float("-inf")
        return waiting

    async def _list_left(self) -> AsyncIterator[tuple[TurnRow, DriverStatus | None]]:
        """Yield the turns whose driver died or released them.

        Of the turns of another process that lives, one is checked: a store may have to ask a server each time.
        """
        store, alive = self._summaries.store, set[str | None]()
        for turn in await self._summaries.read.find(TurnFilter(outcome=UNFINISHED), limit=_MOST_CHECKED):
            if turn.row.owner in alive:
                continue
            with suppress(TurnNotFoundError):
                row, driver = await driving_status(store, turn.row)
                if driver is DriverStatus.RUNNING and row.owner != store.owner:
                    alive.add(row.owner)
                if driver in (DriverStatus.CRASHED, DriverStatus.LEFT):
                    yield row, driver

    async def _waiting(self, row: TurnRow, driver: DriverStatus | None) -> WaitingTurn:
        store, name = self._engine.store, row.id
        questions: tuple[OpenQuestion, ...] = ()
        prompt = fault = ""
        elsewhere = False
        inbox = await store.inbox(name)
        try:
            facts = await store.facts(name)
            turn_start, interrupts = first_fact(name, facts), with_inbox(result_of(name, facts).interrupts, inbox)
            answered_ids = answers_in(inbox, interrupts)
            questions = tuple(
                [
                    await question_of(store, row, interrupt.id, interrupt, answered=interrupt.id in answered_ids)
                    for interrupt in interrupts
                ]
            )
            prompt, elsewhere = turn_start.prompt, not by_command_line(turn_start.metadata)
        except TurnNotFoundError:
            raise
        except StoreError as error:
            fault = str(error)
        is_driven = await store.is_driven(name) if not fault else False
        is_requested = has_request(inbox)
        return WaitingTurn(
            row=row,
            prompt=prompt,
            paused=driver is None,
            crashed=driver is DriverStatus.CRASHED,
            driven=is_driven,
            drives=self._background.drives,
            stopping=any(item.kind is InboxKind.ABORT for item in inbox),
            questions=questions,
            due=not is_driven and not fault and (driver is not None or is_requested),
            show=show_command(name, self._store),
            command=resume_command(name, self._store, elsewhere=elsewhere),
            trouble=self._background.troubles.get(name, ""),
            fault=fault,
        )
