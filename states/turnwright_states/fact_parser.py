"""Parsing and checking of the facts of a journal."""

import json
from functools import cache
from typing import Final

from msgspec import DecodeError, convert
from msgspec import ValidationError as Misfit
from msgspec.json import Decoder

from .errors import InvalidJournalError
from .fact import PAYLOAD_VERSION, Fact
from .facts import KINDS
from .payload import find_repeated_key, misfit, model, nests_deeper

#: The deepest nesting of lists and objects in a payload. Code that walks a fact may recurse up to it. The machine's
#: inputs accept 255 levels in one value, so its own facts stay below.
MAX_NESTING: Final = 300
#: The characters of a damaged value that an error quotes.
_MOST_QUOTED: Final = 60
#: The first characters of every payload of this release.
_HEAD: Final = f'{{"v":{PAYLOAD_VERSION},'


def parse_fact(kind: object, payload: object, seq: int = 0) -> Fact:
    """Parse one fact from its kind and its JSON text.

    `seq` is its number in the journal, for the message. Raises `InvalidJournalError` for an unknown kind, and for a
    payload that has another version, does not fit its kind, is not text, or nests lists and objects more than
    `MAX_NESTING` deep. It also refuses a name that occurs twice in one object, because parsers of JSON disagree about
    such names.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidJournalError(seq, f"its kind {_quote(kind)} is unknown to this release")
    if not isinstance(payload, str):
        raise InvalidJournalError(seq, f"its payload {_quote(payload)} is not text")
    if nests_deeper(payload, MAX_NESTING):
        raise InvalidJournalError(seq, f"its payload is nested too deeply: more than {MAX_NESTING} lists and objects")
    if payload.startswith(_HEAD):
        try:
            fact = _make_decoder(KINDS[kind]).decode(payload)
            if fact.payload() == payload:  # else a name may occur twice, of which the decoder takes the last
                fact.freeze()
                return fact
        except (DecodeError, ValueError, RecursionError):
            pass  # `_parse` finds the mistake, if there is one.
    return _parse(kind, payload, seq)


@cache
def _make_decoder(kind: type[Fact]) -> Decoder[Fact]:
    return Decoder(kind, dec_hook=model)


def _quote(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}..."


def _parse(kind: str, payload: str, seq: int) -> Fact:
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidJournalError(seq, "its payload is not a JSON object")
    name = find_repeated_key(payload)
    if name is not None:
        raise InvalidJournalError(seq, f"its payload has {name!r} twice in one object")
    version = fields.pop("v", None)
    if type(version) is not int or version != PAYLOAD_VERSION:
        newer = type(version) is int and version > PAYLOAD_VERSION
        why = f"its payload has version {version!r}, and this release reads {PAYLOAD_VERSION}"
        raise InvalidJournalError(seq, why, newer=newer)
    try:
        fact = convert(fields, KINDS[kind], dec_hook=model)
        # Python parses more than JSON allows. A value that cannot be written again would fail later.
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except Misfit as error:
        raise InvalidJournalError(seq, f"its payload does not fit {kind}: {misfit(error)}") from None
    except UnicodeEncodeError:
        raise InvalidJournalError(seq, "its payload holds half a surrogate pair, which is not text") from None
    except (ValueError, RecursionError):
        raise InvalidJournalError(
            seq, "its payload holds a number that JSON does not have, or is nested too deeply"
        ) from None
    fact.freeze()
    return fact
