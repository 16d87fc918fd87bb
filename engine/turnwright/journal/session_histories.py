"""The histories of sessions that this process has driven, so that their next turn reads only what is new.

Each is checked against the store before it is used: turns are never added before others, so it is complete while the
session has as many turns as were read, and the newest of these. It lives in the process alone: the journal stays the
only record (docs/rules.md#journal).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.message import Message
from turnwright.store import Store
from turnwright.transcript.history import History, unchecked_texts
from turnwright.transcript.pairing import UnpairedError
from turnwright.transcript.refusal import Acceptance
from turnwright_states.facts import TurnStarted

from .message_history import EarlierJournals, Said, SessionTurns, history_before, said_before

#: The size of all histories together, in characters, and what a message takes besides.
_MOST_KEPT: Final = 16 * 1024 * 1024
_A_MESSAGE: Final = 500


class _Known(NamedTuple):
    """The history after the turn with the number `last`: how many turns it has, the newest one, and those outside."""

    history: History
    last: int
    turns: int
    newest: str
    outside: frozenset[str]
    accepted: Acceptance

    @property
    def weight(self) -> int:
        """Its share of `_MOST_KEPT`."""
        size = self.history.size
        return size.characters + size.content + _A_MESSAGE * len(self.history.messages)


class SessionHistories:
    """Returns the history of each turn of one store, and keeps those of sessions, the last used ones."""

    def __init__(self, store: Store, most: int = _MOST_KEPT) -> None:
        self._store = store
        self._most = most
        self._weight = 0
        #: How often all were forgotten.
        self._forgotten = 0
        #: By session and model, the one used last at the end.
        self._histories: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._histories)

    def forget(self) -> None:
        """Forget all histories: the text of a deleted turn may be in that of any session."""
        self._histories.clear()
        self._weight = 0
        self._forgotten += 1

    async def before(
        self,
        turn_id: str,
        turn_start: TurnStarted,
        model: str,
        earlier: EarlierJournals,
        pair_calls: Callable[[list[Message]], list[Message]],
    ) -> History:
        """Return the messages before a turn. `pair_calls` repairs or rejects those that are not.

        Raises what `history_before` and `pair_calls` raise.
        """
        session = turn_start.session
        if session is not None and not turn_start.message_history:
            number = (await self._store.get(turn_id)).number
            turns = SessionTurns(self._store, session, number)
            if turn_start.continue_from is None or await turns.has(turn_start.continue_from):
                request = _Asked(turn_id, turn_start, model, earlier, self._forgotten)
                return await self._longer(request, session, number) or await self._anew(
                    request, session, turns, pair_calls
                )
        messages, unchecked_text = await history_before(self._store, turn_id, turn_start, model, earlier)
        return History.of(pair_calls(messages))._replace(unchecked=unchecked_text)

    async def _longer(self, request: "_Asked", session: str, number: int) -> History | None:
        """Return the history of a session that is known, and the turns since. None if it must be read anew."""
        kept_history = self._take((session, request.model))
        if kept_history is None or kept_history.last >= number or not await self._exist(kept_history.outside):
            return None
        turns = SessionTurns(self._store, session, number, kept_history.last)
        turns_since = await request.said_before(self._store, turns)
        # Counted last: what is deleted between the two, is missed here.
        count = await self._count(session, number)
        if count is None or count != kept_history.turns + turns.listed:
            return None
        if turns.newest_known not in {"", kept_history.newest}:  # the store was restored, and gave the numbers again
            return None
        history, acceptance = kept_history.history, kept_history.accepted
        try:
            for turn in turns_since:
                if turn.only_adds:
                    before = len(history.messages) + len(turn.brought)
                    history = history.followed_by(turn.after((), acceptance)[0])
                    acceptance = turn.accepted_after(before, acceptance, len(history.messages))
                else:
                    messages, acceptance = turn.after(history.messages, acceptance)
                    history = History.of(messages)
        except UnpairedError:
            return None
        if turns.is_whole:
            newest, outside = turns.newest or kept_history.newest, kept_history.outside | turns.outside
            kept_history = _Known(history, number - 1, count, newest, outside, acceptance)
        self._keep((session, request.model), kept_history, request.forgotten)
        return _checkable(history, acceptance)

    async def _anew(
        self,
        request: "_Asked",
        session: str,
        turns: SessionTurns,
        pair_calls: Callable[[list[Message]], list[Message]],
    ) -> History:
        """Read all turns of a session, and keep its history if nothing of it is left out or repaired."""
        # Counted first: what is deleted afterwards, is missed at the next turn.
        count = await self._count(session, turns.before)
        messages: list[Message] = []
        acceptance = Acceptance()
        for turn in await request.said_before(self._store, turns):
            messages, acceptance = turn.after(messages, acceptance)
        try:
            history = History.of(messages)
        except UnpairedError:
            return _checkable(History.of(pair_calls(messages)), acceptance)
        if turns.is_whole and count is not None:
            kept_history = _Known(history, turns.before - 1, count, turns.newest, frozenset(turns.outside), acceptance)
            self._keep((session, request.model), kept_history, request.forgotten)
        return _checkable(history, acceptance)

    async def _count(self, session: str, number: int) -> int | None:
        """Return the turns of a session before its newest turn, which has this number. None if they are not counted."""
        sessions = await self._store.sessions(limit=1, before=number + 1)
        return sessions[0].turns - 1 if sessions and sessions[0].id == session else None

    async def _exist(self, turns: frozenset[str]) -> bool:
        try:
            for turn in turns:
                await self._store.get(turn)
        except (TurnNotFoundError, UnreadableTurnError):
            return False
        return True

    def _take(self, key: tuple[str, str]) -> _Known | None:
        kept_history = self._histories.pop(key, None)
        if kept_history is not None:
            self._weight -= kept_history.weight
        return kept_history

    def _keep(self, key: tuple[str, str], kept_history: _Known, forget_count: int) -> None:
        """Keep a history, unless all were forgotten since it was asked for."""
        self._take(key)
        if kept_history.weight > self._most or forget_count != self._forgotten:
            return
        self._histories[key] = kept_history
        self._weight += kept_history.weight
        while self._weight > self._most:
            self._take(next(iter(self._histories)))


def _checkable(history: History, acceptance: Acceptance) -> History:
    """Return the history with the text that no model has replied to."""
    if acceptance.messages >= len(history.messages):
        return history
    return history._replace(unchecked=unchecked_texts(history.messages[acceptance.messages :]))


class _Asked(NamedTuple):
    """The turn whose history is asked for."""

    turn_id: str
    started: TurnStarted
    model: str
    earlier: EarlierJournals
    #: The number of times that all histories had been forgotten then.
    forgotten: int

    async def said_before(self, store: Store, turns: SessionTurns) -> list[Said]:
        """Return the turns of a session before it, the oldest first."""
        return await said_before(store, self.turn_id, self.started, self.model, self.earlier, turns)
