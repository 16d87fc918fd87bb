"""Reading settings from TOML files, and from the environment."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from turnwright._base.frozen import deeper_than
from turnwright._base.regular_files import FileTooLargeError, read_regular
from turnwright.errors import ConfigError
from turnwright.logs import FORMAT_VARIABLE, LEVEL_VARIABLE
from turnwright.model.local.weights import WEIGHTS_VARIABLE
from turnwright.model.providers import BASE_URL_VARIABLE
from turnwright.store.address import split_file

from .settings import SETTINGS, unknown

FILE_NAME: Final = "turnwright.toml"
PROJECT_NAME: Final = "pyproject.toml"
PREFIX: Final = "TURNWRIGHT_"
#: Names the configuration file, as `--config` does.
CONFIG_VARIABLE: Final = "TURNWRIGHT_CONFIG"
#: The token of the inspector (`turnwright serve`). As a secret, it is not read from a file.
TOKEN_VARIABLE: Final = "TURNWRIGHT_TOKEN"  # noqa: S105 (a name)
#: The address of links, and the keys that sign them (`Links.from_environment`). Secrets too.
LINKS_VARIABLE: Final = "TURNWRIGHT_LINKS"
LINK_KEYS_VARIABLE: Final = "TURNWRIGHT_LINK_KEYS"
MAX_BYTES: Final = 1024 * 1024
#: The maximum depth of nested tables and lists. A `pyproject.toml` has the settings of other tools too.
_MAX_DEPTH: Final = 50

#: A part of a key in TOML, or a text on one line: they have the same form.
_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]++|\\[^\n])*+"?|'[^'\n]*+'?)"""
_DOT: Final = r"[ \t]*+\.[ \t]*+"
#: The pieces of a TOML text, to find keys with too many parts. A text or a comment is one piece.
_PIECES: Final = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?+'
    r"|'''(?:[^']++|'(?!''))*+(?:''')?+"
    rf"|\#[^\n]*+|(?P<deep>{_PART}(?:{_DOT}{_PART}){{{_MAX_DEPTH}}})|{_PART}(?:{_DOT}{_PART})*+|.",
    re.DOTALL,
)

_HEADER: Final = ("tool", "turnwright")
_TOO_DEEP: Final = f"{{}}: nests tables more than {_MAX_DEPTH} deep: settings are at most three deep"
#: Kubernetes sets these variables in containers if there is a service named `turnwright`.
_SERVICE_LINK: Final = re.compile(
    r"TURNWRIGHT_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_[A-Z]+(_(PROTO|PORT|ADDR))?)?)"
)
#: The other variables, which set no setting.
_OTHER_VARIABLES: Final = frozenset(
    {
        CONFIG_VARIABLE,
        FORMAT_VARIABLE,
        LEVEL_VARIABLE,
        LINKS_VARIABLE,
        LINK_KEYS_VARIABLE,
        TOKEN_VARIABLE,
        WEIGHTS_VARIABLE,
    }
)
_AT_LINE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


def variable(key: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + key.replace(".", "__").upper()


#: Every setting's key by its variable.
VARIABLES: Final[Mapping[str, str]] = {variable(key): key for key in SETTINGS}


def find_file(start: Path, home: Path | None) -> Path | None:
    """Return the configuration file in a folder or the nearest one above it, or None.

    The search ends at the root of the repository or at `home`. If the folder is below neither, only the folder itself
    is searched, because in a shared folder such as `/tmp` anybody may put a file. In each folder, `turnwright.toml`
    precedes a `pyproject.toml` with `[tool.turnwright]`. Raises `ConfigError` for a `pyproject.toml` on the way that
    cannot be read.
    """
    start = start.resolve()
    folders = [start, *start.parents]
    ends = (at for at, folder in enumerate(folders) if folder == home or os.path.lexists(folder / ".git"))
    for folder in folders[: next(ends, 0) + 1]:
        # A link without a target counts as found, so that reading it reports the mistake.
        if os.path.lexists(folder / FILE_NAME):
            return folder / FILE_NAME
        project = folder / PROJECT_NAME
        if os.path.lexists(project) and _read_table(project) is not None:
            return project
    return None


def read_file(path: Path) -> dict[str, object]:
    """Return the settings in a file; in a `pyproject.toml`, its table `[tool.turnwright]`. Raises `ConfigError`."""
    settings = _read_table(path) if path.name == PROJECT_NAME else _read_document(path)
    if settings is None:
        raise ConfigError(f"{path}: has no [{'.'.join(_HEADER)}]: add it, or name another file")
    return dict(settings)


def key_in(path: Path, key: str) -> str:
    """Return a setting's key as it is written in this file."""
    return ".".join((*_HEADER, key)) if path.name == PROJECT_NAME else key


def read_environment(environ: Mapping[str, str]) -> tuple[dict[str, object], dict[str, str], list[str]]:
    """Return the settings in the environment by key, the variable of each key that is set, and the mistakes.

    An empty variable counts as unset. Numbers, lists and tables are written as in JSON.
    """
    mistakes = [
        f"{name}: {unknown(_guess(name), variable)}"
        for name in sorted(environ)
        if name.startswith(PREFIX)
        and name not in VARIABLES.keys() | _OTHER_VARIABLES
        and not _SERVICE_LINK.fullmatch(name)
    ]
    names = {key: name for name, key in VARIABLES.items() if environ.get(name, "") != ""}
    if "base_url" not in names and environ.get(BASE_URL_VARIABLE, "").strip():
        names["base_url"] = BASE_URL_VARIABLE
    # Numbers are decoded here, because the validation is strict: a file must not say "5".
    return {key: _decode(environ[name], SETTINGS[key].in_json) for key, name in names.items()}, names, mistakes


def _guess(name: str) -> str:
    """Return the key that a misspelled variable may mean."""
    return name.removeprefix(PREFIX).lower().replace("__", ".")


def _decode(text: str, types: tuple[type, ...]) -> object:
    """Return the JSON value of a text if it has one of these types, else the text."""
    try:
        value: object = json.loads(text) if types else text
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, types) else text


def beside(path: Path, key: str, value: object) -> object:
    """Return the value with absolute paths. A relative path in a file starts at the file's folder."""
    folder = path.parent.absolute()
    match key, value:
        case "agents" | "hooks" | "mcp", tuple():
            return tuple(_from(folder, item) if _is_path(key, item) else item for item in map(str, value))
        case "root" | "conclude_prompt_file" | "tools", str():
            return _from(folder, value) if _is_path(key, value) else value
        case "store", str():
            before, file = split_file(value)
            return before + _from(folder, file) if file else value
        case _:
            return value


def _is_path(key: str, text: str) -> bool:
    """Return whether a value of this setting is a path, and not the name of a module or of an agent in it."""
    from turnwright.tools.load import is_in_file, names_code  # noqa: PLC0415 (loads the tools)

    match key:
        case "tools" | "hooks":
            return is_in_file(text)
        case "agents":
            return is_in_file(text) or not names_code(text)
        case _:
            return True


def _from(folder: Path, path: str) -> str:
    return os.path.normpath(folder / os.path.expanduser(path))  # noqa: PTH111 (`Path.expanduser` raises for an unknown user)


def mistakes_of_files(leaves: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the settings that are not allowed in a file, with the reason: an address with a password."""
    if "@" in str(leaves.get("base_url", "")).partition("://")[2].partition("/")[0]:
        yield "base_url", f"has a key or a password: keep it in the environment, in {variable('base_url')}"


def _read_table(path: Path) -> Mapping[str, object] | None:
    """Return the file's `[tool.turnwright]`, or None."""
    table: object = _read_document(path)
    for key in _HEADER:
        if not isinstance(table, dict) or key not in table:
            return None
        table = table[key]
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {'.'.join(_HEADER)}: must be a table, not a {type(table).__name__}")
    return table


def _read_document(path: Path) -> dict[str, object]:
    """Parse the file's TOML. Raises `ConfigError`, with the line if possible."""
    text = read_text(path)
    # The time to parse a key grows with the square of the number of its parts.
    if text.count(".") >= _MAX_DEPTH and any(piece.lastgroup for piece in _PIECES.finditer(text)):
        raise ConfigError(_TOO_DEEP.format(path))
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT_LINE.search(str(error))
        line = text.count("\n") + 1 if at is None or at[1] is None else at[1]
        raise ConfigError(f"{path}:{line}: is not TOML: {_AT_LINE.sub('', str(error))}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: cannot be parsed: it is nested too deeply, or a number is too long") from None
    if deeper_than(document, _MAX_DEPTH):
        raise ConfigError(_TOO_DEEP.format(path))
    return document


def read_text(path: Path) -> str:
    """Return the text of a configuration file, or of a file that it names. Raises `ConfigError`."""
    try:
        # Editors on Windows write a byte order mark.
        return read_regular(path, MAX_BYTES).decode("utf-8-sig").replace("\r\n", "\n")
    except FileTooLargeError:
        raise ConfigError(f"{path}: is larger than {MAX_BYTES // 1024} KiB: name another file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text: save it as UTF-8") from None
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file: name another, or create this one") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character in it
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({reason}): name a readable file") from None
