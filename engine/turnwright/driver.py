"""The only loop: take a turn up, do what its machine asks, feed back what came of it, until it ends or rests."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from turnwright_states import AwaitPerson, Fail, Halt

from .errors import Fenced, StoreError
from .ledger import Publish
from .opening import open_segment
from .perform import account_for_crash, perform
from .segment import Segment
from .setup import Setup
from .store import Claim, Store
from .tasks import beside

_LOG = logging.getLogger(__name__)


class Driver:
    """Drives turns of one store with one setup. `publish` hears every event of every turn."""

    def __init__(self, store: Store, setup: Setup, publish: Publish | None = None) -> None:
        self._store = store
        self._setup = setup
        self._publish = publish
        #: The turns that are being driven here, by id.
        self.segments: dict[str, Segment] = {}

    async def drive(self, turn_id: str, claim: Claim | None = None) -> None:
        """Drive a turn until it has ended or is paused. Returns at once when it already has, or is.

        `claim` is the one that created the turn; without it the turn is claimed here. Raises `UnknownTurn`,
        `TurnBusy`, `Fenced` and `StoreError`, and `ConfigError` when the turn's tools or model are not there. How the
        turn ends is never an exception. When the task is cancelled the turn is let go of, and can be taken up again.
        """
        async with self._taken_up(turn_id, claim) as segment:
            while True:
                event = await segment.take_in()
                action = segment.machine.action
                if isinstance(action, Halt) or (event is None and isinstance(action, AwaitPerson)):
                    return
                try:
                    event = event or await perform(segment, action)
                except (StoreError, Fenced):
                    raise
                except Exception as error:  # noqa: BLE001 (whatever it is, the turn ends and says so)
                    _LOG.exception("turn %s failed in %s", turn_id, segment.machine.state)
                    event = Fail(
                        error=f"{type(error).__name__}: {error}", partial=segment.partial, elapsed=segment.elapsed()
                    )
                if event is not None:
                    await segment.feed(event)

    @asynccontextmanager
    async def _taken_up(self, turn_id: str, claim: Claim | None) -> AsyncIterator[Segment]:
        """Claim, fold, watch the inbox while the turn is driven, and let go whatever happens."""
        held = claim or await self._store.claim(turn_id)
        # A crash is accounted for before the turn is let go of, or else it is left for the next driver to account for.
        crashed = held.crashed
        try:
            segment = await open_segment(self._store, self._setup, held, self._publish)
            self.segments[turn_id] = segment
            async with beside(segment.watch):
                await account_for_crash(segment, crashed=crashed)
                crashed = False
                yield segment
        except StoreError:
            # What was done and could not be written down is lost, as if this process had died: the next driver, which
            # will do it again, accounts for that.
            crashed = crashed or turn_id in self.segments
            raise
        finally:
            self.segments.pop(turn_id, None)
            with anyio.CancelScope(shield=True):
                await self._let_go(held, crashed=crashed)

    async def _let_go(self, claim: Claim, *, crashed: bool) -> None:
        try:
            await self._store.release(claim, crashed=crashed)
        except StoreError:
            # What drove the turn has already failed or finished; the next claim sees that nobody let go.
            _LOG.warning("turn %s could not be let go of", claim.turn, exc_info=True)
