"""The key of a tool's result, by which the doom-loop detector compares results.

Results are equal if their texts are, except for what is noise by its shape: times, durations, seconds since 1970, UUIDs
and other long hexadecimal ids, ids of sub-agents' turns and of processes, addresses in memory, paths of temporary
files, and the numbers by which a shell or a notebook counts what it ran. Other plain numbers count, since a counter
that moves is progress.

Searching 10 KiB for noise takes about a millisecond, and other turns wait meanwhile. So a long result of a call that
is made for the first time gets a checksum, and its key when the call recurs (`Rounds.settled`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from zlib import crc32

from .doom import canonical

if TYPE_CHECKING:
    from pydantic import JsonValue

_NOISE: Final = "\N{REPLACEMENT CHARACTER}"
#: The longest text, in characters, whose key is always made at once.
SHORT: Final = 512
#: The most characters that are searched for noise: half of them at each end of the text.
_MOST_SEARCHED: Final = 128 * 1024
#: The beginning of a checksum. No key has a colon, and both have twelve characters.
_CHECKSUM: Final = "crc:"

# The first character comes first, so that the search skips all characters at which no alternative begins. Each
# alternative then looks back at it. All but paths and names with "pid" begin a word.
_SHAPES: Final = r"""
  [FIRST] (?<!\w[^/Pp-]) (?:
    # A date with a time, a time with seconds, a duration, an address in memory. A date alone is kept.
    (?<=\d) (?<![.-].) (?:
        \d{3}-\d\d-\d\d[T\ _]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|\ ?[+-]\d\d:?\d\d)?
      | \d?:\d\d:\d\d(?:[.,]\d+)?
      | \d*+m\d++(?:\.\d++)?s
      | \d*+(?:\.\d++)?\ ?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?)
      | (?<=0)x[0-9a-fA-F]{6,}
    )(?!\w)
    # The times in a listing of files.
  | (?: an(?<=Jan) | eb(?<=Feb) | a[ry](?<=Ma.) | pr(?<=Apr) | u[nl](?<=Ju.) | ug(?<=Aug)
      | ep(?<=Sep) | ct(?<=Oct) | ov(?<=Nov) | ec(?<=Dec) ) \ {1,2}\d\d?\ \d\d:\d\d\b
    TURN_ID
    # UUIDs, and ids of at least twelve hexadecimal digits that are neither all digits nor all letters.
  | [0-9a-fA-F]{7} (?<=[0-9a-fA-F]{8}) (?:
        -(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b
      | (?<=(?=[0-9]{0,99}+[a-f])(?=[a-f]{0,99}+[0-9])[0-9a-f]{8}) [0-9a-f]{4,}+\b
    )
    # Processes, and temporary files.
  | (?<=/proc/\d) \d*+(?:/task/\d+)?\b
  | (?<=/) (?:(?:private/)?(?:var/)?tmp|var/folders)/[^\s'\":,;)\]}>]+
  | (?<=t) mp\w{8}\b
    # Seconds since 1970, from 2017 to 2036, and their thousandths, millionths and billionths. No bytes and no money.
  | (?: [5-9](?<=1.) | 0(?<=2.) ) (?<![.$€£¥-]..) \d{8} (?:\d{3}){0,3} (?:\.\d++)?+ (?!\w|\ ?bytes?\b)
    # "pid 12", "PPID=12", '"worker_pid": 12', "process id 12", "process 123", but not "process 123 of 456".
  | (?: (?<![^\W_].) (?<=[Pp]) (?: [Pp]?[Ii][Dd] | rocess[\ _]?[Ii][Dd] ) | id(?<=[a-z]Pid) )
    ["']?[\t\ ]?[:=\#(]?[\t\ ]?["']?\d{1,10}\b
  | (?<!\w.) (?<=[Pp]) rocess\ \d{3,10}\b (?!\ of\b|/)
    # The line of a shell, but not of a script: "/bin/bash: line 17871: cd: ", "sh: 1: ", "zsh:12: ".
  | (?<=[:e]\ \d) (?:
        (?<=(?<![\w.])sh:\ .) | (?<=(?<![\w.])[akz]sh:\ .) | (?<=(?<![\w.])[bd]ash:\ .)
      | (?<=(?<![\w.])sh:\ line\ .) | (?<=(?<![\w.])[akz]sh:\ line\ .) | (?<=(?<![\w.])[bd]ash:\ line\ .)
    ) \d*+ (?=:)
  | (?<=(?<![\w.])zsh:\d) \d*+ (?=:)
    # The cell of a notebook: "Cell In[17]", "In [17]", "<ipython-input-17-".
  | (?: (?<=\bIn\[\d) | (?<=\bIn\ \[\d) ) \d*+ (?=\]) | (?<=<ipython-input-\d) \d*+ (?=-)
    # A line of valgrind, and the job that a shell begins in the background.
  | (?<=^=)=\d++==
  | (?<=^\[)\d++\]\ \d++$
  )
"""
#: The ids of sub-agents' turns, which end with the number of their call. Each word may begin such an id, so they are
#: looked for only in a text that may have one.
_TURN_ID: Final = r"| (?: (?<=\w)(?<!\w\w) | (?<=\w-) ) [\w-]{0,98} (?::call\d{5,9})+ \b"


def _compile(first: str, turn_id: str) -> re.Pattern[str]:
    shapes = _SHAPES.replace("FIRST", first).replace("TURN_ID", turn_id)
    return re.compile(shapes, re.VERBOSE | re.MULTILINE)


_NOISES: Final = _compile(r"\da-fA-FJMNOSt/Pp=\[", "")
_NOISES_AND_TURN_IDS: Final = _compile(r"\w/=\[-", _TURN_ID)


def without_noise(text: str) -> str:
    """Return the text with one sign for each part that is noise by its shape."""
    return (_NOISES_AND_TURN_IDS if ":call" in text else _NOISES).sub(_NOISE, text)


def compared_text(result: str, files: "Sequence[Mapping[str, JsonValue]]" = ()) -> str:
    """Return the text of a result with its files, by which it is compared."""
    return result + canonical(files).decode() if files else result


def result_key(text: str) -> str:
    """Return twelve hexadecimal digits that are equal for two results which differ in noise alone.

    In the middle of a text of more than 131,072 characters nothing is noise.
    """
    if text[SHORT:]:  # `len` would be one more call for each result
        return _key_of_long(text)
    masked_text = (_NOISES_AND_TURN_IDS if ":call" in text else _NOISES).sub(_NOISE, text)  # likewise
    return blake2b(masked_text.encode(errors="replace"), digest_size=6).hexdigest()


def checksum(text: str) -> str:
    """Return what a long result has instead of a key until its call recurs: twelve characters, `crc:` first."""
    return f"{_CHECKSUM}{crc32(text.encode(errors='replace')):08x}"


@lru_cache(maxsize=8)  # the machine needs the key of a call that recurs before its fact is made, and for the fact
def _key_of_long(text: str) -> str:
    half = _MOST_SEARCHED // 2
    if len(text) <= _MOST_SEARCHED:
        return _digest(without_noise(text))
    return _digest(without_noise(text[:half]) + text[half:-half] + without_noise(text[-half:]))


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()
