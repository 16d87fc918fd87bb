"""The key of a tool's result, by which the doom-loop detector compares results.

Results are equal if their texts are, except for what is noise by its shape: times, durations, UUIDs and other long
hexadecimal ids, ids of sub-agents' turns, addresses in memory, and paths of temporary files and of processes. Plain
numbers count, since a counter that moves is progress.
"""

import re
from hashlib import blake2b
from typing import Final

_NOISE: Final = "\N{REPLACEMENT CHARACTER}"
_MONTH: Final = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_NOISES: Final = re.compile(
    rf"""
    # A date with a time, a time with seconds, a duration, an address in memory. A date alone is kept.
    (?<![\w.-])(?:
        \d{{4}}-\d\d-\d\d[T\ _]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|\ ?[+-]\d\d:?\d\d)?
      | \d\d?:\d\d:\d\d(?:[.,]\d+)?
      | \d+m\d+(?:\.\d+)?s
      | \d+(?:\.\d+)?\ ?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?)
      | 0x[0-9a-fA-F]{{6,}}
    )(?!\w)
    # The times in a listing of files.
  | \b(?:{_MONTH})\ {{1,2}}\d\d?\ \d\d:\d\d\b
    # The ids of sub-agents' turns, which end with the number of their call.
  | \b[\w-]{{1,99}}(?::call\d{{5,9}})+\b
    # UUIDs, and ids of at least twelve hexadecimal digits that are neither all digits nor all letters.
  | \b[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}\b
  | \b(?=[0-9]{{0,99}}[a-f])(?=[a-f]{{0,99}}[0-9])[0-9a-f]{{12,}}\b
    # Processes, and temporary files.
  | (?<=/proc/)\d+(?:/task/\d+)?\b
  | (?:/private)?(?:/var)?/tmp/[^\s'\":,;)\]}}>]+ | /var/folders/[^\s'\":,;)\]}}>]+ | \btmp\w{{8}}\b
    """,
    re.VERBOSE,
)


def without_noise(text: str) -> str:
    """Return the text with one sign for each part that is noise by its shape."""
    return _NOISES.sub(_NOISE, text)


def result_key(text: str) -> str:
    """Return twelve hexadecimal digits that are equal for two results which differ in noise alone."""
    return blake2b(without_noise(text).encode(errors="replace"), digest_size=6).hexdigest()
