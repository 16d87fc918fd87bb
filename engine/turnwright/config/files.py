"""Places where settings are written: files in TOML, and the environment, read with pydantic-settings."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from turnwright._base.frozen import deeper_than
from turnwright._base.regular_files import FileTooLargeError, read_regular
from turnwright.errors import ConfigError
from turnwright.logs import FORMAT_VARIABLE, LEVEL_VARIABLE
from turnwright.model.local.weights import WEIGHTS_VARIABLE
from turnwright.model.providers import BASE_URL_VARIABLE
from turnwright.store.address import split_file

from .settings import SETTINGS, Settings, unknown

FILE_NAME: Final = "turnwright.toml"
PROJECT_NAME: Final = "pyproject.toml"
PREFIX: Final = "TURNWRIGHT_"
#: Names the configuration file, as `--config` does.
CONFIG_VARIABLE: Final = "TURNWRIGHT_CONFIG"
#: The token of the inspector (`turnwright serve`): a secret, which stands in no file.
TOKEN_VARIABLE: Final = "TURNWRIGHT_TOKEN"  # noqa: S105 (a name)
MAX_BYTES: Final = 1024 * 1024
#: Tables and lists inside each other. A `pyproject.toml` holds the settings of other tools too.
_MAX_DEPTH: Final = 50

#: A part of a key in TOML, or a text on one line: they look the same.
_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]++|\\[^\n])*+"?|'[^'\n]*+'?)"""
_DOT: Final = r"[ \t]*+\.[ \t]*+"
#: The pieces of a TOML text, of which one may be a key of too many parts. Texts and comments are passed over whole.
_PIECES: Final = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?+'
    r"|'''(?:[^']++|'(?!''))*+(?:''')?+"
    rf"|\#[^\n]*+|(?P<deep>{_PART}(?:{_DOT}{_PART}){{{_MAX_DEPTH}}})|{_PART}(?:{_DOT}{_PART})*+|.",
    re.DOTALL,
)

_HEADER: Final = ("tool", "turnwright")
_TOO_DEEP: Final = f"{{}}: nests tables more than {_MAX_DEPTH} deep: settings are at most three deep"
#: Kubernetes gives these to every container beside a service that is called `turnwright`.
_SERVICE_LINK: Final = re.compile(
    r"TURNWRIGHT_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_[A-Z]+(_(PROTO|PORT|ADDR))?)?)"
)
_AT_LINE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


class _Sources(BaseSettings, Settings):  # pyright: ignore[reportIncompatibleVariableOverride] (both have a config)
    """Tells pydantic-settings which settings there are. It reads; `settings.check` judges."""

    model_config = SettingsConfigDict(
        case_sensitive=True, env_prefix=PREFIX.lower(), env_nested_delimiter="__", extra="forbid"
    )


def variable(key: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + key.replace(".", "__").upper()


#: Every setting's key by its variable.
VARIABLES: Final[Mapping[str, str]] = {variable(key): key for key in SETTINGS}


class _Environment(EnvSettingsSource):
    """The variables that belong to settings, under their names in lower case."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        super().__init__(_Sources)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return dict(self._variables)

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: object) -> object:
        """A list or a table is JSON; what is no JSON is a text, and whether that will do is not judged here."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError):
            return value


def find_file(start: Path, home: Path | None) -> Path | None:
    """The configuration file of a folder: its own, or the nearest one above it; None where there is none.

    It is looked for up to the root of the repository or to `home`, whichever is nearer; where neither is above, only
    in the folder itself, because in a folder such as `/tmp` anybody may leave a file. In each folder `turnwright.toml`
    goes before a `pyproject.toml` that has `[tool.turnwright]`. Raises `ConfigError` for a `pyproject.toml` on the way
    that cannot be read.
    """
    start = start.resolve()
    folders = [start, *start.parents]
    ends = (at for at, folder in enumerate(folders) if folder == home or os.path.lexists(folder / ".git"))
    for folder in folders[: next(ends, 0) + 1]:
        # A link whose target is gone is a mistake to be told, not the absence of a file.
        if os.path.lexists(folder / FILE_NAME):
            return folder / FILE_NAME
        project = folder / PROJECT_NAME
        if os.path.lexists(project) and _table(project) is not None:
            return project
    return None


def read_file(path: Path) -> dict[str, object]:
    """What a file says. In a `pyproject.toml` that is its table `[tool.turnwright]`. Raises `ConfigError`."""
    said = _table(path) if path.name == PROJECT_NAME else _document(path)
    if said is None:
        raise ConfigError(f"{path}: has no [{'.'.join(_HEADER)}]: write it, or name another file")
    return dict(said)


def key_in(path: Path, key: str) -> str:
    """A setting's key as this file spells it."""
    return ".".join((*_HEADER, key)) if path.name == PROJECT_NAME else key


def read_environment(environ: Mapping[str, str]) -> tuple[dict[str, object], dict[str, str], list[str]]:
    """What the environment says, the variable of each key that it sets, and its mistakes.

    An empty variable is one that is not set. Numbers, lists and tables are written as in JSON.
    """
    others = {CONFIG_VARIABLE, TOKEN_VARIABLE, WEIGHTS_VARIABLE, FORMAT_VARIABLE, LEVEL_VARIABLE}
    mistakes = [
        f"{name}: {unknown(_guess(name), variable)}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in VARIABLES.keys() | others and not _SERVICE_LINK.fullmatch(name)
    ]
    names = {key: name for name, key in VARIABLES.items() if environ.get(name, "") != ""}
    if "base_url" not in names and environ.get(BASE_URL_VARIABLE, "").strip():
        names["base_url"] = BASE_URL_VARIABLE
    found = _Environment({variable(key).lower(): environ[name] for key, name in names.items()})()
    return dict(_numbers(found)), names, mistakes


def _guess(name: str) -> str:
    """The key that a misspelled variable may have meant."""
    return name.removeprefix(PREFIX).lower().replace("__", ".")


def _numbers(found: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The same values, with texts read as numbers where the setting is one. pydantic would read `"5"` in a file too."""
    for name, value in found.items():
        setting = SETTINGS.get(prefix + name)
        if setting is None and isinstance(value, dict):
            yield name, dict(_numbers(value, f"{prefix}{name}."))
        elif setting is not None and setting.number and isinstance(value, str):
            yield name, _scalar(value)
        else:
            yield name, value


def _scalar(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float) else text


def beside(path: Path, key: str, value: object) -> object:
    """The value as it holds from any folder: a relative path in a file starts at the file's own folder."""
    folder = path.parent.absolute()
    match key, value:
        case "agents" | "mcp", tuple():
            return tuple(_from(folder, str(one)) for one in value)
        case "root" | "conclude_prompt_file", str():
            return _from(folder, value)
        case "tools", str() if value.endswith(".py"):
            return _from(folder, value)
        case "store", str():
            before, file = split_file(value)
            return before + _from(folder, file) if file else value
        case _:
            return value


def _from(folder: Path, path: str) -> str:
    return os.path.normpath(folder / os.path.expanduser(path))  # noqa: PTH111 (pathlib's raises for a user who is unknown)


def mistakes_of_files(leaves: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What may not stand in a file, though it may elsewhere: a key inside an address. By key, with what is wrong."""
    if "@" in str(leaves.get("base_url", "")).partition("://")[2].partition("/")[0]:
        yield "base_url", f"holds a key or a password: keep it in the environment, in {variable('base_url')}"


def _table(path: Path) -> Mapping[str, object] | None:
    """The file's `[tool.turnwright]`, or None where it has none."""
    said: object = _document(path)
    for key in _HEADER:
        if not isinstance(said, dict) or key not in said:
            return None
        said = said[key]
    if not isinstance(said, dict):
        raise ConfigError(f"{path}: {'.'.join(_HEADER)}: must be a table, not a {type(said).__name__}")
    return said


def _document(path: Path) -> dict[str, object]:
    """The file's TOML. Raises `ConfigError`, with the line, when there is none to be had."""
    text = read_text(path)
    # A key takes a time to be parsed that grows with the square of its parts.
    if text.count(".") >= _MAX_DEPTH and any(piece.lastgroup for piece in _PIECES.finditer(text)):
        raise ConfigError(_TOO_DEEP.format(path))
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT_LINE.search(str(error))
        line = text.count("\n") + 1 if at is None or at[1] is None else at[1]
        raise ConfigError(f"{path}:{line}: is not TOML: {_AT_LINE.sub('', str(error))}") from None
    except (ValueError, RecursionError):
        raise ConfigError(
            f"{path}: is not TOML that can be read: it nests too deep, or has too long a number"
        ) from None
    if deeper_than(document, _MAX_DEPTH):
        raise ConfigError(_TOO_DEEP.format(path))
    return document


def read_text(path: Path) -> str:
    """The text of a file that is named in a configuration, or is one. Raises `ConfigError`."""
    try:
        # Editors on Windows put a mark in front of UTF-8.
        return read_regular(path, MAX_BYTES).decode("utf-8-sig").replace("\r\n", "\n")
    except FileTooLargeError:
        raise ConfigError(f"{path}: is larger than {MAX_BYTES // 1024} KiB: name another file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text: save it as UTF-8") from None
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file: name another, or write this one") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character in it
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({reason}): name a file that can") from None
