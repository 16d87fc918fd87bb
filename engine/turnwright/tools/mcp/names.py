"""The names of MCP tools for the model: `server__tool`."""

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

_LONGEST: Final = 64
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")
_DIGITS: Final = 8


def tool_names(wanted: Sequence[tuple[str, str]]) -> list[str]:
    """Return a unique name, valid for all providers, for each pair of a server and its tool.

    A name is `server__tool`, at most 64 of a-z, A-Z, 0-9, `_` and `-`. Another character becomes `_`. A name that was
    changed, is too long, or occurs twice gets the suffix `_` and 8 digits of the pair's SHA-256. So it does not depend
    on the server's other tools. The pairs must be different.
    """
    plain = [f"{server}__{tool}" for server, tool in wanted]
    often = Counter(plain)
    return [
        name if len(name) <= _LONGEST and not _REFUSED.search(name) and often[name] == 1 else _marked(name, pair)
        for name, pair in zip(plain, wanted, strict=True)
    ]


def _marked(name: str, pair: tuple[str, str]) -> str:
    mark = sha256("\0".join(pair).encode(errors="replace")).hexdigest()[:_DIGITS]
    return f"{_REFUSED.sub('_', name)[: _LONGEST - _DIGITS - 1]}_{mark}"
