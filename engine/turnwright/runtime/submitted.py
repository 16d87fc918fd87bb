"""Turns that a runtime's workers drive: they are submitted, and their journal says how they go on."""

import logging
from typing import Final

import anyio

from turnwright.errors import CannotRunError, RuntimeUnavailableError
from turnwright.journal.admission import NewTurnClaim
from turnwright.journal.answer_posting import current_result
from turnwright.journal.dependencies import Dependencies
from turnwright.journal.turn_journal import JournalFold
from turnwright.result import TurnResult
from turnwright.store import Store
from turnwright_states import State

from .in_process import InProcessTurns
from .protocol import Runtime

#: Looks at an unchanged turn after which the runtime is asked whether anybody will drive it at all.
_LOOKS: Final = 20
#: How often it is asked until somebody is told: not yet where a dead worker's turn is about to be taken over.
_ASKED: Final = 3

_LOG = logging.getLogger(__name__)


class SubmittedTurns:
    """Has turns driven by `runtime`, and waits for them. `here` knows what is to be done about one."""

    def __init__(self, store: Store, setup: Dependencies, runtime: Runtime, here: InProcessTurns) -> None:
        self._store = store
        self._setup = setup
        self._runtime = runtime
        self._here = here

    def is_driven(self, turn_id: str) -> bool:  # noqa: ARG002 (as where some are)
        """Whether a turn is driven in this process: none is that follows it here."""
        return False

    async def run(self, turn_id: str, begun: NewTurnClaim | None = None) -> TurnResult:
        """Have a turn driven, and wait until it has ended or rests. Who is cancelled no longer waits; it goes on.

        Raises `CannotRunError` when no worker will drive it.
        """
        if begun is not None:
            await submit_new(self._runtime, turn_id)
        else:
            await self._submit(turn_id)
        return await self._rested(turn_id)

    async def take_up(self, turn_id: str, known: JournalFold | None = None) -> TurnResult:  # noqa: ARG002 (as where it is driven)
        """Have a turn driven on that was left, or answered, and wait until it has ended or rests."""
        return await self.run(turn_id)

    async def stop(self, turn_id: str) -> None:
        """Abort a turn that has not ended: here if nobody drives it, else by whoever does."""
        await self._here.stop(turn_id)
        try:
            await self._runtime.cancel(turn_id)
        except RuntimeUnavailableError as error:
            _LOG.warning("turn %s is aborted, and its job was not told: %s", turn_id, error, extra={"turn": turn_id})

    async def _submit(self, turn_id: str) -> None:
        if await self._here.is_due(turn_id):
            job = await self._here.job(turn_id)
            await self._runtime.submit(job.turn, job.segment)

    async def _rested(self, turn_id: str) -> TurnResult:
        unchanged, last, asked = 0, -1.0, 0
        async with self._store.watching(turn_id) as changed:
            while True:
                row = await self._store.get(turn_id)
                if row.status.outcome is not None:
                    break
                resting = row.status.state is State.PAUSED and not await self._here.is_due(turn_id)
                if resting and not await self._store.is_driven(turn_id):
                    break
                unchanged = unchanged + 1 if row.updated_at == last else 0
                last = row.updated_at
                if unchanged >= _LOOKS and not await self._store.is_driven(turn_id):
                    unchanged = 0
                    await self._raise_if_given_up(turn_id)
                    asked += 1
                    if asked == _ASKED:
                        _LOG.warning("turn %s is waited for, and no worker has it", turn_id, extra={"turn": turn_id})
                await changed(self._setup.poll_interval)
        return await current_result(self._store, turn_id)

    async def _raise_if_given_up(self, turn_id: str) -> None:
        job = await self._here.job(turn_id)
        try:
            why = await self._runtime.failure(turn_id, job.segment)
        except RuntimeUnavailableError as error:
            told = "turn %s is waited for, and its runtime cannot be asked about it: %s"
            _LOG.warning(told, turn_id, error, extra={"turn": turn_id})
            return
        if why is not None and (await self._store.get(turn_id)).status.outcome is None:
            raise CannotRunError(f"turn {turn_id} is not driven: {why}")


async def submit_new(runtime: Runtime, turn_id: str) -> None:
    """Submit a turn that was just written. Who is cancelled meanwhile has submitted it.

    Raises `RuntimeUnavailableError`, which names the turn: it waits for a sweep then.
    """
    try:
        with anyio.CancelScope(shield=True):
            await runtime.submit(turn_id, 1)
    except RuntimeUnavailableError as error:
        raise RuntimeUnavailableError(str(error), turn_id) from error
