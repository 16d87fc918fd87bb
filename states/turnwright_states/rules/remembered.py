"""The values that rules compare: keys of JSON values, and what is kept of a call for a later one."""

from collections.abc import Iterable
from hashlib import sha256
from itertools import takewhile
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from turnwright_states.payload import nests_deeper

from .condition import MOST_ITEMS, MOST_TEXT, UNKNOWN, Path, Scene, is_number, parse_path, read_path

#: The most bytes of values that are kept of a call, which a later call is compared with.
MOST_KEPT: Final = 4_096
#: The deepest nesting of a result, and of a compared value.
_DEEPEST: Final = 100
#: A longer key is replaced by its checksum.
_LONGEST_KEY: Final = 256
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


class Fields:
    """The compared fields of one side of a rule."""

    __slots__ = ("_paths", "reads_outcome", "reads_result")

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(parse_path(path) for path in paths)
        roots = {path.path[0] for path in self._paths}
        self.reads_outcome = not roots.isdisjoint(("result", "status", "text"))
        self.reads_result = "result" in roots

    def key(self, scene: Scene) -> str | None:
        """Return the values as one text, equal for equal JSON values; None if one is missing or too large."""
        paths = self._paths
        if len(paths) == 1:
            return key_of(paths[0].read(scene))
        if not paths:
            return ""
        keys = []
        for path in paths:
            key = key_of(path.read(scene))
            if key is None:
                return None
            keys.append(f"{len(key)}:{key}")
        return _shorten("".join(keys))


def key_of(value: object) -> str | None:
    """Return a text that equal JSON values share: 1 and 1.0 are equal, true and 1 are not. None for no JSON value."""
    if isinstance(value, str):
        return _shorten(f'"{value}')
    parts: list[str] = []
    return _shorten("".join(parts)) if _write(value, parts, _DEEPEST) else None


def parse_result(text: str) -> object:
    """Return the JSON value of a result's text, or the text; `UNKNOWN` for one that is too long or too deep."""
    if len(text) > MOST_TEXT or nests_deeper(text, _DEEPEST):
        return UNKNOWN
    try:
        return decode(text)
    except (DecodeError, UnicodeError):
        return text


class Memory:
    """The part of a call that is kept for the condition of a later one: the values of the paths that it reads."""

    __slots__ = ("_reads",)

    def __init__(self, paths: Iterable[Path]) -> None:
        self._reads = [(path, read_path(path)) for path in _shortest(paths)]

    def keep(self, scene: Scene) -> Scene:
        """Return a scene with the values of the paths, or with none if they have more than `MOST_KEPT` bytes."""
        values = Scene()
        room = MOST_KEPT
        for path, reader in self._reads:
            value = reader(scene)
            if value is UNKNOWN:
                continue
            parts: list[str] = []
            if not _write(value, parts, _DEEPEST, most=room):
                return Scene()
            room -= sum(len(part.encode(errors="surrogatepass")) for part in parts)
            if room < 0:
                return Scene()
            _put(values, path, value)
        return values


def _shortest(paths: Iterable[Path]) -> list[tuple[str, ...]]:
    """Return the paths, each up to a place in a list, without those that begin with another."""
    shortest: list[tuple[str, ...]] = []
    for path in sorted({_names(path) for path in paths if path[0] != "this"}, key=lambda names: (len(names), names)):
        if not any(path[: len(start)] == start for start in shortest):
            shortest.append(path)
    return shortest


def _names(path: Path) -> tuple[str, ...]:
    return tuple(takewhile(lambda key: isinstance(key, str), path))  # type: ignore[arg-type]


def _put(scene: Scene, path: tuple[str, ...], value: object) -> None:
    root, *keys = path
    if not keys:
        setattr(scene, root, value)
        return
    whole = getattr(scene, root)
    if whole is UNKNOWN:
        whole = {}
        setattr(scene, root, whole)
    for key in keys[:-1]:
        whole = whole.setdefault(key, {})
    whole[keys[-1]] = value


def _shorten(text: str) -> str:
    if len(text) <= _LONGEST_KEY:
        return text
    return f"#{sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def _write(value: object, parts: list[str], depth: int, most: int = MOST_ITEMS) -> bool:
    """Append the canonical text of a JSON value; False if it is none, too deep, or has more than `most` parts."""
    if isinstance(value, str):
        parts.append(f'"{len(value)}:{value}')
    elif value is None or isinstance(value, bool):
        parts.append(_CONSTANTS[value])
    elif isinstance(value, int | float):
        if not is_number(value):
            return False
        parts.append(str(int(value)) if value == int(value) else repr(value))
    elif depth == 0 or not isinstance(value, list | tuple | dict) or len(parts) + len(value) > most:
        return False
    elif isinstance(value, dict):
        parts.append("{")
        for key in sorted(value):
            parts.append(f"{len(key)}:{key}")
            if not _write(value[key], parts, depth - 1, most):
                return False
        parts.append("}")
    else:
        parts.append("[")
        if not all(_write(item, parts, depth - 1, most) for item in value):
            return False
        parts.append("]")
    return len(parts) <= most
