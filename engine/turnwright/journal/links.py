"""Links by which people answer, and callbacks by which services give results: addresses with signed tokens.

A token says all that it allows, and anybody who has it may do that until it expires (docs/rules.md#links).
"""

import hmac
import json
import math
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as NotBase64Error
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, Literal, Self
from urllib.parse import urlsplit

from msgspec import Struct, ValidationError, convert, to_builtins

from turnwright.errors import ConfigError
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import DECISIONS, Decision, InterruptKind
from turnwright_states.payload import thaw

#: Seconds that the address of a callback is valid, if the tool sets none: as long as a wait.
CALLBACK_SECONDS: Final = 604_800.0
_DAY: Final = 86_400.0
_KEY_BYTES: Final = 32
#: Characters of a token, at most.
_LONGEST: Final = 8_192
#: What a link may decide. A text, changed arguments and a result need a form of the app.
_LINKED: Final = frozenset(Decision) - {Decision.REPLY, Decision.SETTLE}


class Grant(Struct, frozen=True, kw_only=True):
    """The right that a token gives: to answer an interrupt of a turn with a decision, or to give a call's result.

    `started_at` is the turn's beginning, so that a token is void for another turn of the same id. `digest` is that of
    the tool and the arguments that a person was shown. `expires_at` is in seconds since the Unix epoch.
    """

    purpose: Literal["answer", "settle"]
    #: The turn that is answered, or that has the call.
    turn: str
    started_at: str
    #: The interrupt, or the call's key.
    subject: str
    digest: str = ""
    decision: str = ""
    by: str = ""
    expires_at: float
    version: Literal[1] = 1


class Links:
    """Makes and reads links below the address `base`, where the app mounts `turnwright.web.answer_app`.

    `keys[0]` signs, and all verify, so that keys can be rotated. Each has at least 32 bytes; a text is used as UTF-8.
    `expires_in` are the seconds that a link is valid, a day by default. Raises `ConfigError`.
    """

    def __init__(self, base: str, *, keys: Sequence[bytes | str], expires_in: float = _DAY) -> None:
        try:
            parts = urlsplit(base) if isinstance(base, str) else None
        except ValueError:
            parts = None
        if parts is not None and "@" in parts.netloc:
            raise ConfigError("links: base must have no user and no password: everybody who gets a link reads them")
        if parts is None or parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(f"links: base must be an address such as https://bot.example/a, not {base!r:.80}")
        if parts.query or parts.fragment:
            raise ConfigError(f"links: base must have neither a query nor a fragment: {base!r:.80}")
        if isinstance(keys, str | bytes) or not keys:
            raise ConfigError("links: keys must be a list with at least one key")
        self._base = base.rstrip("/")
        self._keys = tuple(map(_key, keys))
        self._expires_in = checked_seconds(expires_in)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the links of `TURNWRIGHT_LINKS`, with the keys of `TURNWRIGHT_LINK_KEYS`, which spaces separate.

        None without the first variable. Raises `ConfigError`.
        """
        from turnwright.config.files import LINK_KEYS_VARIABLE, LINKS_VARIABLE  # noqa: PLC0415 (for the command line)

        base = environment.get(LINKS_VARIABLE, "")
        return cls(base, keys=environment.get(LINK_KEYS_VARIABLE, "").split()) if base else None

    @property
    def path(self) -> str:
        """The path of the address: `/a`. Empty if the links are at the root."""
        return urlsplit(self._base).path

    def __repr__(self) -> str:
        return f"<Links {self._base}>"

    def answer(
        self, turn: str, interrupt: Interrupt, decision: str, *, by: str, expires_in: float | None, now: float
    ) -> str:
        """Return the address that answers an interrupt. Raises `ConfigError` for a decision that it does not take."""
        decisions = [word for word in DECISIONS[interrupt.kind] if word in _LINKED]
        if decision not in decisions:
            words = f"takes {', '.join(decisions)} by a link, not {decision}" if decisions else "takes no link"
            raise ConfigError(f"{interrupt.id}: {interrupt.kind} {words}")
        if interrupt.is_shared and decision == Decision.APPROVE and not by.strip():
            raise ConfigError(f"{interrupt.id} needs a name: give by=")
        seconds = self._expires_in if expires_in is None else checked_seconds(expires_in)
        return self._address(
            Grant(
                purpose="answer",
                turn=turn,
                started_at=interrupt.turn_started_at,
                subject=interrupt.id,
                digest=digest_of(interrupt),
                decision=str(decision),
                by=by,
                expires_at=now + seconds,
            )
        )

    def callback(self, key: str, started_at: str, *, expires_in: float | None, now: float) -> str:
        """Return the address that takes the result of the call with this key."""
        seconds = CALLBACK_SECONDS if expires_in is None else checked_seconds(expires_in)
        turn, expires_at = key.rpartition(":")[0], now + seconds
        return self._address(
            Grant(purpose="settle", turn=turn, started_at=started_at, subject=key, expires_at=expires_at)
        )

    def read(self, token: str) -> Grant | None:
        """Return what a token allows, also if it has expired; None if none of the keys signed it."""
        if len(token) > _LONGEST or not token.isascii():
            return None
        text, _, signature = token.partition(".")
        # Each key is tried, so that the time says nothing about them.
        matches = [hmac.compare_digest(_sign(key, text), signature) for key in self._keys]
        if not any(matches):
            return None
        try:
            fields = json.loads(b64decode(f"{text}{'=' * (-len(text) % 4)}", altchars=b"-_", validate=True))
            return convert(fields, Grant)
        except (ValueError, NotBase64Error, ValidationError, RecursionError):
            return None  # another version of this package signed it

    def _address(self, grant: Grant) -> str:
        text = _encode(json.dumps(to_builtins(grant), separators=(",", ":")).encode())
        return f"{self._base}/{text}.{_sign(self._keys[0], text)}"


def checked_seconds(seconds: float) -> float:
    """Return a time for which a link is valid. Raises `ConfigError` unless it is a number of seconds above 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ConfigError(f"links: expires_in must be a number of seconds above 0, not {seconds!r:.40}")
    return float(seconds)


def digest_of(interrupt: Interrupt) -> str:
    """Return the digest of the tool and the arguments that an interrupt shows.

    A wait for a result has the time too: a call that runs again may wait again, with the same id.
    """
    arguments = None if interrupt.arguments is None else thaw(interrupt.arguments)
    if interrupt.kind is InterruptKind.DOOM_LOOP:
        arguments = None
    asked_at = interrupt.asked_at if interrupt.kind is InterruptKind.RESULT else None
    text = json.dumps([interrupt.tool, arguments, interrupt.grant, asked_at], sort_keys=True)
    return _encode(sha256(text.encode()).digest())


def _key(key: bytes | str) -> bytes:
    if not isinstance(key, bytes | str):
        raise ConfigError(f"links: a key must be bytes or text, not {type(key).__name__}")
    try:
        octets = key.encode() if isinstance(key, str) else key
    except UnicodeEncodeError:
        raise ConfigError("links: a key has half a surrogate pair") from None
    if len(octets) < _KEY_BYTES:
        raise ConfigError(f"a key needs {_KEY_BYTES} bytes, not {len(octets)}")
    return octets


def _sign(key: bytes, text: str) -> str:
    return _encode(hmac.digest(key, text.encode(), "sha256"))


def _encode(octets: bytes) -> str:
    return urlsafe_b64encode(octets).decode().rstrip("=")
