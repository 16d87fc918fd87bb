"""Turns that a runtime's workers drive: they are submitted, and their journal is followed."""

import logging
from typing import Final

import anyio

from turnwright.driver.admission import NewTurnClaim
from turnwright.driver.dependencies import NOTHING_SUPPLIED, Dependencies, Supplied
from turnwright.errors import CannotRunError, RuntimeUnavailableError
from turnwright.journal.answers import current_result
from turnwright.journal.result import TurnResult
from turnwright.journal.turn_journal import JournalFold
from turnwright.store import Store
from turnwright_states import State

from .in_process import InProcessTurns
from .protocol import Runtime

#: Reads of an unchanged turn after which the runtime is asked whether a worker will drive it.
_LOOKS: Final = 20
#: How often it is asked before a warning: a dead worker's turn may be about to be claimed.
_ASKED: Final = 3

_LOG = logging.getLogger(__name__)


class SubmittedTurns:
    """Submits turns to `runtime`, and waits for them. `here` knows what is due."""

    def __init__(self, store: Store, setup: Dependencies, runtime: Runtime, here: InProcessTurns) -> None:
        self._store = store
        self._setup = setup
        self._runtime = runtime
        self._here = here

    def is_driven(self, turn_id: str) -> bool:  # noqa: ARG002 (as `InProcessTurns`)
        """Return False: this process drives no submitted turn."""
        return False

    async def run(
        self,
        turn_id: str,
        new_turn: NewTurnClaim | None = None,
        fold: JournalFold | None = None,  # noqa: ARG002 (as `InProcessTurns`)
        supplies: Supplied = NOTHING_SUPPLIED,  # noqa: ARG002 (likewise: the workers have their own)
    ) -> TurnResult:
        """Submit a turn, and wait until it ends or pauses. Canceling the wait does not stop the turn.

        Raises `CannotRunError` if no worker will drive it.
        """
        if new_turn is not None:
            await submit_new(self._runtime, turn_id)
        else:
            await self._submit(turn_id)
        return await self._wait_for(turn_id)

    async def stop(self, turn_id: str) -> None:
        """Abort a turn that has not ended: here if nobody drives it, else by its driver."""
        await self._here.stop(turn_id)
        try:
            await self._runtime.cancel(turn_id)
        except RuntimeUnavailableError as error:
            _LOG.warning(
                "turn %s is aborted, but its job could not be canceled: %s", turn_id, error, extra={"turn": turn_id}
            )

    async def _submit(self, turn_id: str) -> None:
        if await self._here.is_due(turn_id):
            job = await self._here.job(turn_id)
            await self._runtime.submit(job.turn, job.segment)

    async def _wait_for(self, turn_id: str) -> TurnResult:
        unchanged_count, last, times_asked = 0, -1.0, 0
        async with self._store.watching(turn_id) as wait_for_change:
            while True:
                row = await self._store.get(turn_id)
                if row.status.outcome is not None:
                    break
                resting = row.status.state is State.PAUSED and not await self._here.is_due(turn_id)
                if resting and not await self._store.is_driven(turn_id):
                    break
                unchanged_count = unchanged_count + 1 if row.updated_at == last else 0
                last = row.updated_at
                if unchanged_count >= _LOOKS and not await self._store.is_driven(turn_id):
                    unchanged_count = 0
                    await self._raise_if_given_up(turn_id)
                    times_asked += 1
                    if times_asked == _ASKED:
                        _LOG.warning("turn %s is waiting, and no worker has it", turn_id, extra={"turn": turn_id})
                await wait_for_change(self._setup.poll_interval)
        return await current_result(self._store, turn_id)

    async def _raise_if_given_up(self, turn_id: str) -> None:
        job = await self._here.job(turn_id)
        try:
            why = await self._runtime.failure(turn_id, job.segment)
        except RuntimeUnavailableError as error:
            message = "turn %s is waiting, and its runtime cannot be reached: %s"
            _LOG.warning(message, turn_id, error, extra={"turn": turn_id})
            return
        if why is not None and (await self._store.get(turn_id)).status.outcome is None:
            raise CannotRunError(f"turn {turn_id} is not driven: {why}")


async def submit_new(runtime: Runtime, turn_id: str) -> None:
    """Submit a turn that was just written, even if canceled meanwhile.

    Raises `RuntimeUnavailableError`, which names the turn: a sweep will submit it.
    """
    try:
        with anyio.CancelScope(shield=True):
            await runtime.submit(turn_id, 1)
    except RuntimeUnavailableError as error:
        raise RuntimeUnavailableError(str(error), turn_id) from error
