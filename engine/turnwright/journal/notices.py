"""Delivers the notices of the outbox to the subscribers of an engine, at least once (docs/rules.md#outbox)."""

import base64
import binascii
import hmac
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, cast

import anyio
from pydantic import JsonValue

from turnwright._base.words import cut_clean
from turnwright.errors import ConfigError, StoreError, TurnNotFoundError, TurnwrightError, need_function
from turnwright.store import Store
from turnwright.store.outbox import NoticedFact, NoticeRow, OutboxStore, noticed_facts
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.transcript import reading
from turnwright_states import EndReason, Outcome
from turnwright_states.payload import thaw

from .result import result_of
from .turn_journal import first_fact

#: Seconds for which a delivery has a notice to itself, and the seconds of a subscriber.
LEASE_SECONDS: Final = 60.0
SUBSCRIBER_SECONDS: Final = 50.0
#: Seconds until the first repetition, which doubles with each failure, at most, and until a notice is given up.
_FIRST: Final = 1.0
_LONGEST: Final = 3_600.0
_GIVEN_UP: Final = 3 * 86_400.0
#: Notices of one lease: they are delivered one after the other.
_AT_ONCE: Final = 1
_ERROR_LIMIT: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SUCCESS: Final = range(200, 300)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """A change of a turn, as a subscriber receives it, at least once and in no promised order.

    `handed_out`: a call waits for a result from outside. `paused`: the turn waits for `interrupts`. `ended`: with its
    `outcome` and `reason`. Only root turns have notices. `id` is the receiver's key against duplicates, and `seq` the
    number of the fact. `at` is in seconds since the Unix epoch.
    """

    id: str
    kind: Literal["handed_out", "paused", "ended"]
    turn: str
    session: str | None
    agent: str
    metadata: Mapping[str, JsonValue]
    seq: int
    at: float
    interrupts: tuple[Interrupt, ...] = ()
    outcome: Outcome | None = None
    reason: EndReason | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the notice as data, without private fields."""
        return {
            "id": self.id,
            "kind": self.kind,
            "turn": self.turn,
            "session": self.session,
            "agent": self.agent,
            "metadata": thaw(dict(self.metadata)),
            "seq": self.seq,
            "at": self.at,
            "interrupts": [interrupt.to_json() for interrupt in self.interrupts],
            "outcome": None if self.outcome is None else str(self.outcome),
            "reason": None if self.reason is None else str(self.reason),
        }


#: Receives notices. An exception has the notice delivered again.
Subscriber = Callable[[Notice], Awaitable[None]]
#: Calls a subscriber, and raises a `TurnwrightError` if it fails.
Call = Callable[[str, Subscriber, Notice], Awaitable[object]]


def checked_subscribers(subscribers: Mapping[str, Subscriber]) -> dict[str, Subscriber]:
    """Return the subscribers of an engine. Raises `ConfigError` for a name that is not one, and for no function."""
    if not isinstance(subscribers, Mapping):
        raise ConfigError(f"subscribers must map names to async functions, not {subscribers!r:.80}")
    for name, subscriber in subscribers.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ConfigError(f"subscribers: a name has 1 to 64 of A-Z a-z 0-9 . _ -, not {name!r:.80}")
        need_function(f"subscribers: {name}", subscriber, "notice")
    return dict(subscribers)


async def deliver_notices(
    store: Store, outbox: OutboxStore, subscribers: Mapping[str, Subscriber], call: Call, now: Callable[[], float]
) -> int:
    """Deliver the notices that are due, each once. Returns the number of those that were delivered."""
    count = 0
    start = now()
    while leased_rows := await outbox.lease_notices([*subscribers], start, now() + LEASE_SECONDS, _AT_ONCE):
        for row in leased_rows:
            count += await _deliver(store, outbox, row, subscribers[row.name], call, now)
    return count


async def _deliver(  # noqa: PLR0917 (what, from where, and to whom)
    store: Store,
    outbox: OutboxStore,
    row: NoticeRow,
    subscriber: Subscriber,
    call: Call,
    now: Callable[[], float],
) -> bool:
    about = {"turn": row.turn}
    try:
        await call(row.name, subscriber, await _notice(store, row))
    except TurnNotFoundError:
        pass  # it was deleted, and its notices with it
    except TurnwrightError as error:
        wait = min(_FIRST * 2.0 ** min(row.tries, 20), _LONGEST)
        is_given_up = now() + wait > row.at + _GIVEN_UP
        words = "given up" if is_given_up else f"delivered again in {wait:g} s"
        _LOG.warning("notice %s is %s: %s", row.id, words, error, extra=about)
        await outbox.failed(row, cut_clean(str(error), _ERROR_LIMIT), None if is_given_up else now() + wait)
        return False
    await outbox.delivered(row)
    return True


async def _notice(store: Store, row: NoticeRow) -> Notice:
    """Return a notice with what was true at its fact. Raises `TurnNotFoundError` and `StoreError`."""
    journal = await store.facts(row.turn)
    with reading(row.turn):
        facts = [(seq, fact) for seq, fact in journal if seq <= row.seq]
        turn_start, result = first_fact(row.turn, facts), result_of(row.turn, facts)
    last_seq, last = facts[-1]
    if NoticedFact(row.seq, row.kind) not in noticed_facts(row.turn, (last,), last_seq - 1):
        raise StoreError(f"turn {row.turn}: fact {row.seq} of its journal is not one of a notice {row.kind!r:.40}")
    return Notice(
        id=row.id,
        kind=cast("Literal['handed_out', 'paused', 'ended']", row.kind),
        turn=row.turn,
        session=turn_start.session,
        agent=str(turn_start.agent.get("name", "")),
        metadata=turn_start.metadata,
        seq=row.seq,
        at=row.at,
        interrupts=result.interrupts,
        outcome=result.outcome,
        reason=result.reason,
    )


def webhook(url: str, *, secret: bytes | str, timeout: float = 10.0) -> Subscriber:
    """Return a subscriber that posts each notice to an address, signed as Standard Webhooks.

    The body is `{"type": "turn.paused", "timestamp": ..., "data": {...}}`, the header `webhook-id` the receiver's key
    against duplicates. `secret` is the key of the signature; a text that begins with `whsec_` is base64. A status from
    200 to 299 within `timeout` seconds is a delivery. No redirect is followed. Raises `ConfigError`.
    """
    key = _secret(secret)
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ConfigError(f"webhook: the address must begin with https:// or http://, not {url!r:.80}")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= SUBSCRIBER_SECONDS:
        raise ConfigError(f"webhook: timeout must be above 0 and at most {SUBSCRIBER_SECONDS:g} s, not {timeout!r:.40}")

    async def post(notice: Notice) -> None:
        import httpx  # noqa: PLC0415 (slow to load, and few apps have webhooks)

        time = datetime.now(UTC)
        body = json.dumps(
            {"type": f"turn.{notice.kind}", "timestamp": time.isoformat(), "data": notice.to_json()}, ensure_ascii=True
        ).encode()
        headers = sign_webhook(key, notice.id, int(time.timestamp()), body)
        headers["content-type"] = "application/json"
        status = None
        with anyio.move_on_after(timeout):  # of all together: httpx's timeout is that of each read
            async with (
                httpx.AsyncClient(timeout=timeout, follow_redirects=False) as client,
                client.stream("POST", url, content=body, headers=headers) as response,
            ):
                status = response.status_code  # the body may be endless, and is not read
        if status is None:
            raise ConfigError(f"the receiver did not answer within {timeout:g} s")
        if status not in _SUCCESS:
            raise ConfigError(f"the receiver answered with the status {status}")

    return post


def sign_webhook(key: bytes, identifier: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks for a body."""
    payload = b"%s.%d.%s" % (identifier.encode(), timestamp, body)
    signature = base64.b64encode(hmac.digest(key, payload, "sha256")).decode()
    return {"webhook-id": identifier, "webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{signature}"}


def _secret(secret: bytes | str) -> bytes:
    """Return the key of a webhook. Raises `ConfigError` for one that is not one."""
    if isinstance(secret, str) and secret.startswith("whsec_"):
        try:
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(
                "webhook: the secret after whsec_ is not base64: make one with `openssl rand -base64 32`"
            ) from None
    elif isinstance(secret, bytes | str):
        key = secret.encode(errors="replace") if isinstance(secret, str) else secret
    else:
        raise ConfigError(f"webhook: the secret must be bytes or text, not {type(secret).__name__}")
    if len(key) < _SECRET_BYTES:
        raise ConfigError(f"webhook: a secret needs {_SECRET_BYTES} bytes, not {len(key)}")
    return key


#: The bytes of a secret, at least: Standard Webhooks has 24 to 64.
_SECRET_BYTES: Final = 24
