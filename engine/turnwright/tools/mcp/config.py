"""The servers of an `mcp.json`: read, checked, and with the environment's variables filled in.

The format is the one that MCP clients share, a JSON object `mcpServers` (VS Code: `servers`) with an entry a server.
Where clients name one thing differently, the names are taken for the same; keys that are not known are left alone, so
that a file written for another client can be used as it is.
"""

import json
import os
import re
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from turnwright._base.frozen import deeper_than, too_deep_at
from turnwright._base.regular_files import read_regular
from turnwright.errors import ConfigError

from .secrets import hidden_words, in_address, in_arguments

#: Whose calls wait for a person: see `turnwright.tools.mcp.mcp_tools`.
Approve = Literal["annotated", "always", "never"]

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([^${}:]+)(?:(:-)([^{}]*))?\}")
_INPUT: Final = re.compile(r"\$\{input:([^}]*)\}")
#: What other clients call our transports.
_TYPES: Final[Mapping[str, str]] = {
    "local": "stdio",
    "remote": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
}
#: The largest file of servers, in bytes, and how deep lists and objects may be nested in it.
MAX_BYTES: Final = 1024 * 1024
_MAX_DEPTH: Final = 50
#: The longest time-out that the clients which count in seconds take. Others count in milliseconds, from 1,000 on.
_MOST_SECONDS: Final = 3600


def _names(value: object) -> object:
    """One name, `*` above all, is a list of it."""
    return [value] if isinstance(value, str) else value


def _seconds(value: object) -> object:
    """A time-out in seconds, also where it was written in milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > _MOST_SECONDS:
        return value / 1000
    return value


def _text(value: object) -> object:
    """A number is a text in an environment; a port is often written as one."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
_Variable = Annotated[str, BeforeValidator(_text)]
_Patience = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]


class McpServer(BaseModel):
    """How to reach one server, and what of it is offered.

    `type` is `stdio` (a child process, by `command`), `http` (streamable HTTP, by `url`) or `sse` (the transport before
    that); left out, it is seen from the other fields. `cwd` is where the process runs, else in our own folder.

    `include` and `exclude` name the server's tools, or patterns of them such as `read_*`. `auto_approve` names those
    that no person is asked about, and `approve` is the policy for the others, the caller's where it is None.
    `timeout` is in seconds a call, `startup` until the server has told its tools; None takes the caller's.

    The clients' own names are taken for these: `includeTools`, `enabledTools`, `enabled_tools` and `tools`;
    `excludeTools`, `disabledTools` and `disabled_tools`; `autoApprove`, `alwaysAllow` and `trust`; `tool_timeout_sec`
    and `startup_timeout_sec`; `httpUrl`, `serverUrl`, `enabled`. A time above 3600 is in milliseconds, for some clients
    count so.
    """

    # A mistake is told without the value: there may be a secret in it.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, populate_by_name=True)

    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[_Variable, ...] = Field(default=(), repr=False)
    env: dict[str, _Variable] = Field(default={}, repr=False)
    cwd: Path | None = None
    url: str = Field(default="", repr=False)
    headers: dict[str, _Variable] = Field(default={}, repr=False)
    disabled: bool = False
    include: Names = Field(
        default=("*",), validation_alias=AliasChoices("includeTools", "enabledTools", "enabled_tools", "tools")
    )
    exclude: Names = Field(default=(), validation_alias=AliasChoices("excludeTools", "disabledTools", "disabled_tools"))
    auto_approve: Names = Field(default=(), validation_alias=AliasChoices("autoApprove", "alwaysAllow"))
    approve: Approve | None = None
    timeout: _Patience | None = Field(default=None, validation_alias=AliasChoices("tool_timeout_sec", "timeout"))
    #: What else no message may show: what came from the environment's variables.
    hidden: frozenset[str] = Field(default=frozenset(), repr=False, exclude=True)
    startup: _Patience | None = Field(default=None, validation_alias=AliasChoices("startup_timeout_sec", "startup"))

    @model_validator(mode="before")
    @classmethod
    def _as_one_client_writes_it(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        said = dict(given)
        for other in ("httpUrl", "serverUrl"):
            if other in said:
                said.setdefault("type", "http")
                said.setdefault("url", said[other])
        if isinstance(said.get("tools"), Mapping):
            del said["tools"]  # settings of single tools, which some clients keep here
        if said.get("trust") is True:
            said["autoApprove"] = "*"
        if said.get("enabled") is False:
            said["disabled"] = True
        kind = said.get("type")
        if kind is None:
            path = urlsplit(str(said.get("url", ""))).path
            said["type"] = "stdio" if said.get("command") else "sse" if path.rstrip("/").endswith("/sse") else "http"
        elif isinstance(kind, str):
            said["type"] = _TYPES.get(kind.lower(), kind.lower())
        return said

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.type == "stdio":
            if not self.command:
                raise ValueError("there is no command: give the program that is the server")
        elif urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError("there is neither a command nor a url that begins with http:// or https://")
        return self

    @property
    def secrets(self) -> frozenset[str]:
        """What no message may show: the values of `env`, `headers` and variables, and secrets in `args` and `url`.

        Those are told by names such as `--api-key`, by their place in an address, and by their looks: see `.secrets`.
        """
        given = (*self.env.values(), *self.headers.values(), *self.hidden)
        return hidden_words([*given, *in_arguments(self.args), *in_address(self.url)])


def read_mcp_config(file: str | Path) -> dict[str, McpServer]:
    """Read the servers of a file by name, without those that are disabled.

    `${NAME}` and `${NAME:-default}` (also `${env:NAME}`) stand for a variable of the entry's own `env`, or else of our
    environment; in `env` itself only of ours. A `cwd` that is relative begins at the file's folder.

    Raises `ConfigError` for a file that cannot be read or holds no servers, for a field that is wrong, and for a
    variable that is not set. The message names the file, the server and the field, and never a value.
    """
    path = Path(file).expanduser()
    try:
        text = read_regular(path, MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"the MCP servers of {path} cannot be read: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character in it
        said = getattr(error, "strerror", None) or error
        raise ConfigError(f"the MCP servers of {path} cannot be read: {said}") from None
    if (place := too_deep_at(text, _MAX_DEPTH)) is not None:
        line = text.count("\n", 0, place) + 1
        raise ConfigError(f"{path}, line {line}: nests lists and objects more than {_MAX_DEPTH} deep")
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}, line {error.lineno}: is not JSON: {error.msg}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON that can be read: {error}") from None
    return mcp_servers(given, str(path), folder=path.absolute().parent)


def mcp_servers(given: object, where: str = "the MCP servers", *, folder: Path | None = None) -> dict[str, McpServer]:
    """Give the servers of what such a file holds, by name. `where` is said in errors; the rest is as for a file."""
    entries = None
    if isinstance(given, Mapping) and deeper_than(dict(given), _MAX_DEPTH):
        raise ConfigError(f"{where}: nests lists and objects more than {_MAX_DEPTH} deep")
    if isinstance(given, Mapping):
        entries = given.get("mcpServers", given.get("servers"))
    if not isinstance(entries, Mapping):
        raise ConfigError(f'{where}: has no servers: write {{"mcpServers": {{"NAME": {{"command": "..."}}}}}}')
    found: dict[str, McpServer] = {}
    for name, entry in entries.items():
        label = f"{where}: server {name!r}"
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{label}: is no object: give it a command, or a url")
        if entry.get("disabled") is True or entry.get("enabled") is False:
            continue
        filled: set[str] = set()
        own = _expanded(entry.get("env"), f"{label}: env", os.environ, filled)
        variables = ChainMap(_variables(own), os.environ)
        said = {
            key: own if key == "env" else _expanded(value, f"{label}: {key}", variables, filled)
            for key, value in entry.items()
        }
        try:
            server = McpServer.model_validate({**said, "hidden": filled})
        except ValidationError as error:
            raise ConfigError(f"{label}: {_mistakes(error)}") from None
        if server.cwd is not None and folder is not None:
            server = server.model_copy(update={"cwd": folder / server.cwd.expanduser()})
        found[str(name)] = server
    return found


def _variables(env: object) -> dict[str, str]:
    """What an entry's `env` holds, as far as it is right; the rest is found wrong later."""
    if not isinstance(env, Mapping):
        return {}
    texts = {name: _text(value) for name, value in env.items()}
    return {name: text for name, text in texts.items() if isinstance(name, str) and isinstance(text, str)}


def _expanded(value: object, label: str, variables: Mapping[str, str], filled: set[str]) -> object:
    """Fill in the variables of a value, and of what is in it, and note what they held.

    Raises `ConfigError` for one that is not set.
    """
    if isinstance(value, Mapping):
        return {key: _expanded(inner, f"{label}.{key}", variables, filled) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expanded(inner, f"{label}[{index}]", variables, filled) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value
    if asked := _INPUT.search(value):
        raise ConfigError(
            f"{label}: ${{input:{asked[1]}}} is asked for by VS Code, and by nobody here: write an environment"
            " variable, as ${NAME}"
        )

    def fill(match: re.Match[str]) -> str:
        name, has_default, default = match[1], match[2], match[3]
        held = variables.get(name)
        if held is None and not has_default:
            raise ConfigError(
                f"{label}: the environment variable {name} is not set: set it, or write ${{{name}:-DEFAULT}}"
            )
        if held is None or (has_default and not held):
            return default
        filled.add(held)
        return held

    return _VARIABLE.sub(fill, value)


def _mistakes(error: ValidationError) -> str:
    said = []
    for one in error.errors(include_input=False, include_url=False, include_context=False):
        field = ".".join(str(part) for part in one["loc"])
        text = one["msg"].removeprefix("Value error, ")
        said.append(f"{field}: {text}" if field else text)
    return "; ".join(said)
