"""Reading the servers of an `mcp.json`, with validation and with environment variables.

The format is the one that MCP clients share: a JSON object `mcpServers` (VS Code: `servers`) with one entry per server.
The different names that clients use for one thing are all accepted, and unknown keys are ignored. So a file written for
another client works unchanged.
"""

import json
import os
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from turnwright._base.frozen import deeper_than, too_deep_at
from turnwright._base.regular_files import read_regular
from turnwright.errors import ConfigError
from turnwright.tools.tool import Approval

from .secrets import hidden_words, in_address, in_arguments

if TYPE_CHECKING:
    from mcp_types import Tool as Listed

#: The names of approval policies: see `turnwright.tools.mcp.mcp_tools`.
Approve = Literal["annotated", "always", "never"]

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([^${}:]+)(?:(:-)([^{}]*))?\}")
_INPUT: Final = re.compile(r"\$\{input:([^}]*)\}")
#: Other clients' names of our transports.
_TYPES: Final[Mapping[str, str]] = {
    "local": "stdio",
    "remote": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
}
#: The maximum size of a configuration file in bytes, and the maximum depth of its lists and objects.
MAX_BYTES: Final = 1024 * 1024
_MAX_DEPTH: Final = 50
#: Larger timeouts are in milliseconds: clients that count in seconds accept at most this, others start at 1,000.
_MOST_SECONDS: Final = 3600


def _names(value: object) -> object:
    """Accept a single name, such as `*`, as a list."""
    return [value] if isinstance(value, str) else value


def _seconds(value: object) -> object:
    """Convert a timeout in milliseconds to seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > _MOST_SECONDS:
        return value / 1000
    return value


def _text(value: object) -> object:
    """Accept a number, such as a port, as a string."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
_Variable = Annotated[str, BeforeValidator(_text)]
_Timeout = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]


def _words(value: object) -> object:
    """Accept a list of scopes as a text."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


class McpOAuth(BaseModel):
    """The access to a server over HTTP. Without any field, the server says all that a login needs.

    `client_id` and `client_secret` are those of a client that was registered by hand. Without them, the client has the
    address `client_metadata_url` as its id, or registers itself. `scope` replaces the scopes that the server proposes.
    `issuer` is the only authorization server that gets the credentials. `callback_port` is the port of
    `http://localhost:PORT/callback`, where the browser ends; by default it is a free one at `127.0.0.1`.

    With the grant `client_credentials` nobody logs in: the client has a `client_secret`, or a `private_key` (PEM) that
    signs with `algorithm`. It needs an `issuer`.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", hide_input_in_errors=True, alias_generator=to_camel, populate_by_name=True
    )

    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code", validation_alias=AliasChoices("grant", "grantType", "grant_type")
    )
    client_id: str = ""
    client_secret: str = Field(default="", repr=False)
    client_metadata_url: str = ""
    private_key: str = Field(default="", repr=False)
    algorithm: str = "RS256"
    scope: Annotated[str, BeforeValidator(_words)] = Field(default="", validation_alias=AliasChoices("scope", "scopes"))
    issuer: str = ""
    callback_port: int | None = Field(default=None, ge=1, le=65_535)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.client_metadata_url and urlsplit(self.client_metadata_url).scheme != "https":
            raise ValueError("clientMetadataUrl must start with https://")
        if self.grant == "client_credentials":
            if not (self.client_id and self.issuer):
                raise ValueError("client_credentials need a clientId, and the issuer that may see the credentials")
            if bool(self.client_secret) == bool(self.private_key):
                raise ValueError("client_credentials need either a clientSecret or a privateKey")
        return self


def _oauth(value: object) -> object:
    """Accept true and false, and an object that is switched off."""
    if value is False or (isinstance(value, Mapping) and value.get("enabled") is False):
        return None
    return {} if value is True else value


class McpServer(BaseModel):
    """The configuration of one server: its transport, and which of its tools are offered.

    `type` is `stdio` (a child process, with `command`), `http` (streamable HTTP, with `url`) or `sse` (the older
    transport). By default it follows from the other fields. `cwd` is the working directory of the process.

    `include` and `exclude` have names of tools, or patterns such as `read_*`. Tools in `auto_approve` need no approval.
    `approve` is the policy for the others. `timeout` limits a call, and `startup` the time until the server has sent
    its tools, both in seconds. None means the caller's value. `oauth` says how to log in at a server over HTTP; None
    switches logins off, as an `Authorization` header does. With `tasks` the server may make a call a task, whose result
    comes later.

    These names of other clients are accepted too: `includeTools`, `enabledTools`, `enabled_tools` and `tools`;
    `excludeTools`, `disabledTools` and `disabled_tools`; `autoApprove`, `alwaysAllow` and `trust`; `tool_timeout_sec`
    and `startup_timeout_sec`; `httpUrl`, `serverUrl`, `enabled`. A time above 3600 is in milliseconds.
    """

    # Error messages omit the value, which may contain a secret.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, populate_by_name=True)

    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[_Variable, ...] = Field(default=(), repr=False)
    env: dict[str, _Variable] = Field(default={}, repr=False)
    cwd: Path | None = None
    url: str = Field(default="", repr=False)
    headers: dict[str, _Variable] = Field(default={}, repr=False)
    oauth: Annotated[McpOAuth | None, BeforeValidator(_oauth)] = McpOAuth()
    disabled: bool = False
    include: Names = Field(
        default=("*",), validation_alias=AliasChoices("includeTools", "enabledTools", "enabled_tools", "tools")
    )
    exclude: Names = Field(default=(), validation_alias=AliasChoices("excludeTools", "disabledTools", "disabled_tools"))
    auto_approve: Names = Field(default=(), validation_alias=AliasChoices("autoApprove", "alwaysAllow"))
    approve: Approve | None = None
    timeout: _Timeout | None = Field(default=None, validation_alias=AliasChoices("tool_timeout_sec", "timeout"))
    tasks: bool = False
    #: The values of environment variables, which no message may show.
    hidden: frozenset[str] = Field(default=frozenset(), repr=False, exclude=True)
    startup: _Timeout | None = Field(default=None, validation_alias=AliasChoices("startup_timeout_sec", "startup"))

    @model_validator(mode="before")
    @classmethod
    def _normalize_fields(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        fields = dict(data)
        for alias in ("httpUrl", "serverUrl"):
            if alias in fields:
                fields.setdefault("type", "http")
                fields.setdefault("url", fields[alias])
        if isinstance(fields.get("tools"), Mapping):
            del fields["tools"]  # some clients keep settings of single tools here
        if fields.get("trust") is True:
            fields["autoApprove"] = "*"
        if fields.get("enabled") is False:
            fields["disabled"] = True
        kind = fields.get("type")
        if kind is None:
            path = urlsplit(str(fields.get("url", ""))).path
            fields["type"] = (
                "stdio" if fields.get("command") else "sse" if path.rstrip("/").endswith("/sse") else "http"
            )
        elif isinstance(kind, str):
            fields["type"] = _TYPES.get(kind.lower(), kind.lower())
        return fields

    @model_validator(mode="after")
    def _need_address(self) -> Self:
        if self.type == "stdio":
            if not self.command:
                raise ValueError("there is no command: give the program that is the server")
        elif urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError("there is neither a command nor a url that starts with http:// or https://")
        return self

    @property
    def logs_in(self) -> bool:
        """Whether a person may log in at this server."""
        has_key = any(name.lower() == "authorization" for name in self.headers)
        by_person = self.oauth is not None and self.oauth.grant == "authorization_code"
        return self.type != "stdio" and by_person and not has_key

    @property
    def secrets(self) -> frozenset[str]:
        """The values that no message may show: of `env`, `headers`, `oauth`, variables, secrets in `args` and `url`.

        The latter are found by names such as `--api-key`, by their place in an address, and by their form.
        """
        oauth = (self.oauth.client_secret, self.oauth.private_key) if self.oauth is not None else ()
        values = (*self.env.values(), *self.headers.values(), *oauth, *self.hidden)
        return hidden_words([*values, *in_arguments(self.args), *in_address(self.url)])


def read_mcp_config(file: str | Path) -> dict[str, McpServer]:
    """Read the servers of a file, by name, without disabled ones.

    `${NAME}`, `${env:NAME}` and `${NAME:-default}` are replaced by a variable from the entry's own `env`, or else from
    the environment of the process; in `env` itself only from the latter. A relative `cwd` starts at the file's folder.

    Raises `ConfigError` for a file that cannot be read or has no servers, for an invalid field, and for an unset
    variable. The message names the file, the server and the field, and never a value.
    """
    path = Path(file).expanduser()
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"the MCP servers of {path} cannot be read: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character in it
        problem = getattr(error, "strerror", None) or error
        raise ConfigError(f"the MCP servers of {path} cannot be read: {problem}") from None
    if (place := too_deep_at(text, _MAX_DEPTH)) is not None:
        line = text.count("\n", 0, place) + 1
        raise ConfigError(f"{path}, line {line}: nests lists and objects more than {_MAX_DEPTH} deep")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}, line {error.lineno}: invalid JSON: {error.msg}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: invalid JSON: {error}") from None
    return mcp_servers(data, str(path), folder=path.absolute().parent)


def mcp_servers(data: object, where: str = "the MCP servers", *, folder: Path | None = None) -> dict[str, McpServer]:
    """Return the servers of the contents of such a file, by name. `where` names the file in errors."""
    entries = None
    if isinstance(data, Mapping) and deeper_than(dict(data), _MAX_DEPTH):
        raise ConfigError(f"{where}: nests lists and objects more than {_MAX_DEPTH} deep")
    if isinstance(data, Mapping):
        entries = data.get("mcpServers", data.get("servers"))
    if not isinstance(entries, Mapping):
        raise ConfigError(f'{where}: has no servers: write {{"mcpServers": {{"NAME": {{"command": "..."}}}}}}')
    servers: dict[str, McpServer] = {}
    for name, entry in entries.items():
        label = f"{where}: server {name!r}"
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{label}: is not an object: give it a command, or a url")
        if entry.get("disabled") is True or entry.get("enabled") is False:
            continue
        secrets: set[str] = set()
        own_variables = _expand(entry.get("env"), f"{label}: env", os.environ, secrets)
        variables = ChainMap(_variables(own_variables), os.environ)
        fields = {
            key: own_variables if key == "env" else _expand(value, f"{label}: {key}", variables, secrets)
            for key, value in entry.items()
        }
        try:
            server = McpServer.model_validate({**fields, "hidden": secrets})
        except ValidationError as error:
            raise ConfigError(f"{label}: {_list_mistakes(error)}") from None
        if server.cwd is not None and folder is not None:
            server = server.model_copy(update={"cwd": folder / server.cwd.expanduser()})
        servers[str(name)] = server
    return servers


def _variables(env: object) -> dict[str, str]:
    """Return the valid variables of an entry's `env`. The validation reports the others later."""
    if not isinstance(env, Mapping):
        return {}
    texts = {name: _text(value) for name, value in env.items()}
    return {name: text for name, text in texts.items() if isinstance(name, str) and isinstance(text, str)}


def _expand(value: object, label: str, variables: Mapping[str, str], secrets: set[str]) -> object:
    """Replace the variables in a value, nested ones too, and add their contents to `secrets`.

    Raises `ConfigError` for an unset variable.
    """
    if isinstance(value, Mapping):
        return {key: _expand(inner, f"{label}.{key}", variables, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expand(inner, f"{label}[{index}]", variables, secrets) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value
    if input_match := _INPUT.search(value):
        raise ConfigError(
            f"{label}: ${{input:{input_match[1]}}} works only in VS Code: use an environment variable, as ${{NAME}}"
        )

    def fill(match: re.Match[str]) -> str:
        name, has_default, default = match[1], match[2], match[3]
        content = variables.get(name)
        if content is None and not has_default:
            raise ConfigError(
                f"{label}: the environment variable {name} is not set: set it, or write ${{{name}:-DEFAULT}}"
            )
        if content is None or (has_default and not content):
            return default
        secrets.add(content)
        return content

    return _VARIABLE.sub(fill, value)


def _list_mistakes(error: ValidationError) -> str:
    mistakes = []
    for detail in error.errors(include_input=False, include_url=False, include_context=False):
        field = ".".join(str(part) for part in detail["loc"])
        text = detail["msg"].removeprefix("Value error, ")
        mistakes.append(f"{field}: {text}" if field else text)
    return "; ".join(mistakes)


@dataclass(frozen=True, slots=True)
class McpHints:
    """A server's hints about one of its tools, with the protocol's defaults for missing hints.

    A server may send wrong hints.
    """

    server: str
    tool: str
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @classmethod
    def of(cls, server: str, listed_tool: "Listed") -> "McpHints":
        """Return the hints of a tool in the server's list."""
        annotations = listed_tool.annotations
        if annotations is None:
            return cls(server, listed_tool.name)
        return cls(
            server,
            listed_tool.name,
            read_only=annotations.read_only_hint is True,
            destructive=annotations.destructive_hint is not False,
            idempotent=annotations.idempotent_hint is True,
            open_world=annotations.open_world_hint is not False,
        )


#: The policy for approvals: a name, or a function that returns the `needs_approval` of a tool.
Policy = Approve | Callable[[McpHints], Approval]


def approval_for(hints: McpHints, policy: Policy) -> Approval:
    """Return the `needs_approval` of a tool.

    With `annotated`, a call needs approval unless the server says that the tool only reads, or that it is neither
    destructive nor open-world. With `always`, each call needs approval; with `never`, none.
    """
    if callable(policy):
        return policy(hints)
    if policy == "annotated":
        return not hints.read_only and (hints.destructive or hints.open_world)
    return policy == "always"
