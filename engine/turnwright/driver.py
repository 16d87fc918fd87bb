"""The only loop: take a turn up, do what its machine asks, feed back what came of it, until it ends or rests."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from turnwright_states import Abort, AwaitPerson, Event, Expire, Fail, Halt

from .ending import end_children
from .errors import CannotDrive, ConfigError, Fenced, StoreError, TurnBusy
from .inbox import CALLS
from .ledger import Publish
from .opening import open_segment
from .perform import account_for_crash, perform
from .segment import Segment
from .setup import Setup
from .store import Claim, Store
from .subagent import Children
from .tasks import beside
from .tools.tool import describe

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
        `TurnBusy`, `Fenced` and `StoreError`, and `CannotDrive` when the turn's tools or model are not there. How the
        turn ends is never an exception. When the task is cancelled the turn is let go of, and can be taken up again.
        """
        await self._drive(turn_id, claim)
        # Who posts to a turn that nobody drives takes it up; what was posted while this driver let go is its to see.
        with suppress(TurnBusy):
            while await self._is_called(turn_id):
                await self._drive(turn_id, None)

    async def _drive(self, turn_id: str, claim: Claim | None) -> None:
        if claim is None and (await self._store.get(turn_id)).status.outcome is not None:
            return  # nothing is left to do, so neither its tools nor its model are needed
        async with self._taken_up(turn_id, claim) as segment:
            while True:
                event = await segment.take_in()
                action = segment.machine.action
                if isinstance(action, Halt) or (event is None and isinstance(action, AwaitPerson)):
                    return
                try:
                    event = event or await perform(segment, action)
                except (StoreError, Fenced, CannotDrive):
                    raise
                except Exception as error:  # noqa: BLE001 (whatever it is, the turn ends and says so)
                    _LOG.exception("turn %s failed in %s", turn_id, segment.machine.state)
                    event = Fail(error=describe(error), partial=segment.partial, elapsed=segment.elapsed())
                await _feed(segment, event)

    def _poke(self, turn_id: str) -> None:
        if turn_id in self.segments:
            self.segments[turn_id].poke()

    async def _is_called(self, turn_id: str) -> bool:
        """Whether an abort or an answer waits for a turn that has not ended."""
        called = any(item.kind in CALLS for item in await self._store.inbox(turn_id))
        return called and (await self._store.get(turn_id)).status.outcome is None

    @asynccontextmanager
    async def _taken_up(self, turn_id: str, claim: Claim | None) -> AsyncIterator[Segment]:
        """Claim, fold, watch the inbox while the turn is driven, and let go whatever happens."""
        held = claim or await self._store.claim(turn_id)
        # A crash is accounted for before the turn is let go of, or else it is left for the next driver to account for.
        crashed = held.crashed
        try:
            try:
                segment = await open_segment(self._store, self._setup, held, self._publish)
            except ConfigError as error:
                raise CannotDrive(str(error)) from None
            segment.delegate = Children(segment, self.drive, self._poke).work
            self.segments[turn_id] = segment
            async with beside(segment.watch):
                await _feed(segment, await account_for_crash(segment, crashed=crashed))
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
                try:
                    await self._let_go(held, crashed=crashed)
                except anyio.get_cancelled_exc_class():
                    # Cancelled once more, past the shield: a turn that is never let go of is this process's for ever.
                    await self._let_go(held, crashed=crashed)
                    raise

    async def _let_go(self, claim: Claim, *, crashed: bool) -> None:
        try:
            await self._store.release(claim, crashed=crashed)
        except StoreError:
            # What drove the turn has already failed or finished; the next claim sees that nobody let go.
            _LOG.warning("turn %s could not be let go of", claim.turn, exc_info=True)


async def _feed(segment: Segment, event: Event | None) -> None:
    """Feed what came of an action. What stops the turn ends its sub-agents first, and says what they used."""
    if isinstance(event, Abort | Expire | Fail):
        event = event.model_copy(update={"spent": await end_children(segment.ledger)})
    if event is not None:
        await segment.feed(event)
