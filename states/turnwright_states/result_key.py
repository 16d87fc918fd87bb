"""The key of a tool's result, by which the doom-loop detector compares results.

Results are equal if their texts are, except for what is noise by its shape: times, durations, UUIDs and other long
hexadecimal ids, addresses in memory, and paths of temporary files. Plain numbers count, since a counter that moves is
progress.
"""

import re
from hashlib import blake2b
from typing import Final

_NOISE: Final = "\N{REPLACEMENT CHARACTER}"
_MONTH: Final = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
#: A date with a time, and a time with seconds; a duration; an address in memory. A date alone is no noise.
_TIMES: Final = re.compile(
    r"""(?<![\w.-])(?:
        \d{4}-\d\d-\d\d[T\ _]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|\ ?[+-]\d\d:?\d\d)?
      | \d\d?:\d\d:\d\d(?:[.,]\d+)?
      | \d+m\d+(?:\.\d+)?s
      | \d+(?:\.\d+)?\ ?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?)
      | 0x[0-9a-fA-F]{6,}
    )(?!\w)""",
    re.VERBOSE,
)
#: The times in a listing of files.
_DAYS: Final = re.compile(rf"\b(?:{_MONTH}) {{1,2}}\d\d? \d\d:\d\d\b")
#: UUIDs, and ids of at least twelve hexadecimal digits that are neither all digits nor all letters.
_UUIDS: Final = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_IDS: Final = re.compile(r"\b(?=[0-9]{0,99}[a-f])(?=[a-f]{0,99}[0-9])[0-9a-f]{12,}\b")
_TEMPORARY: Final = re.compile(r"(?:(?:/private)?(?:/var)?/tmp/|/var/folders/)[^\s'\":,;)\]}>]+|\btmp\w{8}\b")
_MONTHS: Final = re.compile(_MONTH)


def without_noise(text: str) -> str:
    """Return the text with one sign for each part that is noise by its shape."""
    text = _TIMES.sub(_NOISE, text)
    text = _IDS.sub(_NOISE, _UUIDS.sub(_NOISE, text))
    if _MONTHS.search(text):
        text = _DAYS.sub(_NOISE, text)
    return _TEMPORARY.sub(_NOISE, text) if "tmp" in text or "/var/folders/" in text else text


def result_key(text: str) -> str:
    """Return twelve hexadecimal digits that are equal for two results which differ in noise alone."""
    return blake2b(without_noise(text).encode(errors="replace"), digest_size=6).hexdigest()
