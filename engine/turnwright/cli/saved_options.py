"""The flags that the command line saves with a turn, so that `resume` needs none."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from turnwright.agent import Agent
from turnwright.errors import ConfigError
from turnwright.model.providers import BASE_URL_VARIABLE
from turnwright.tools.load import is_in_file, names_code, split_code
from turnwright_states import Limits
from turnwright_states.inputs import JsonObject
from turnwright_states.payload import thaw

if TYPE_CHECKING:
    from turnwright.driver.subagents import AgentTool


class SavedOptions(BaseModel):
    """The flags of a run, without keys: keys come from the environment each time.

    An address with a password or a query is not saved either; `withheld` is then true. `from_flag`: the address was a
    flag, and so wins over a later environment.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str | None = None
    base_url: str | None = None
    from_flag: bool = False
    withheld: bool = False
    timeout: float | None = None
    tools: str | None = None
    root: Path | None = None
    #: The files that name MCP servers. They are read each time, because they may contain secrets.
    mcp: tuple[Path, ...] = ()
    #: The modules of hooks and guardrails, and the sources of agents that have some: code is loaded each time.
    hooks: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    #: The sub-agents of the turn. They are saved, because their files may change.
    subagents: tuple[JsonObject, ...] = ()
    #: The limits of the sub-agents, whatever the configuration says later. None if there are no sub-agents.
    limits: Limits | None = None

    @classmethod
    def of(
        cls,
        *,
        model: str,
        base_url: str | None,
        from_flag: bool,
        timeout: float | None,
        tools: str | None,
        root: Path,
        mcp: Sequence[Path] = (),
        hooks: Sequence[str] = (),
        agents: Sequence[str] = (),
        helpers: "Sequence[AgentTool]" = (),
        limits: Limits | None = None,
    ) -> Self:
        """Return the flags with absolute paths. `model` is the model's id, or `local`."""
        secret = base_url is not None and _may_hold_secret(base_url)
        return cls(
            model=model,
            base_url=None if secret else base_url,
            from_flag=from_flag and not secret,
            withheld=secret,
            timeout=timeout,
            tools=None if tools is None else _whole(tools),
            root=root.resolve(),
            mcp=tuple(file.expanduser().resolve() for file in mcp),
            hooks=tuple(map(_whole, hooks)),
            agents=tuple(
                _whole(source) if names_code(source) else str(Path(source).expanduser().resolve()) for source in agents
            ),
            subagents=tuple(helper.agent.to_json() for helper in helpers),
            limits=limits if helpers else None,
        )

    @classmethod
    def others_in(cls, metadata: JsonObject) -> dict[str, JsonValue]:
        """Return the metadata of a turn without the saved flags."""
        return {key: thaw(value) for key, value in metadata.items() if key not in cls.model_fields}

    def registered(self) -> list[Agent]:
        """Return the agents of the saved sources, which have code that a journal cannot keep."""
        from turnwright.agents.files import read_agents  # noqa: PLC0415 (few turns need them)

        try:
            return list(read_agents(*self.agents)) if self.agents else []
        except ConfigError as error:
            raise ConfigError(f"the agents of the turn: {error}\nor name other sources with --agents") from error

    def helpers(self) -> "list[AgentTool]":
        """Return the tools of the saved sub-agents, with the code of their sources."""
        from turnwright.driver.subagents import agent_tools  # noqa: PLC0415 (few turns have any)

        code = {agent.name: agent for agent in self.registered()} if self.subagents else {}
        try:
            return agent_tools(
                code[name].restore(agent) if (name := agent.get("name")) in code else Agent.from_json(agent)
                for agent in self.subagents
            )
        except ValidationError as error:
            raise ConfigError(f"a saved sub-agent of the turn is damaged: {error.errors()[0]['msg']}") from None

    def endpoint(self, flag: str | None) -> str | None:
        """Return the address: from the flag now, the saved flag, the environment, or else any saved address.

        Raises `ConfigError` if the address was withheld and nothing else gives one.
        """
        address = (
            flag or (self.base_url if self.from_flag else None) or os.environ.get(BASE_URL_VARIABLE) or self.base_url
        )
        if address is None and self.withheld:
            raise ConfigError(
                "the turn's base URL was not saved, because it may hold a secret: give it again with --base-url or"
                f" {BASE_URL_VARIABLE}"
            )
        return address

    def silence(self, flag: float | None, default: float | None) -> float | None:
        """Return how long the endpoint may be silent: as saved, or as `default`, which has the value of a `flag`."""
        return self.timeout if flag is None and self.timeout is not None else default

    def to_json(self) -> dict[str, JsonValue]:
        fields: dict[str, JsonValue] = self.model_dump(
            mode="json", exclude_none=True, exclude_defaults=True, exclude={"limits"}
        )
        if self.limits is not None:
            # Only the fields that were set: the class of the agent's tools may decide the others.
            fields["limits"] = self.limits.model_dump(mode="json", exclude_unset=True)
        return fields

    @classmethod
    def from_json(cls, metadata: JsonObject) -> Self:
        try:
            return cls.model_validate(metadata)
        except ValidationError as error:
            raise ConfigError(f"the turn's metadata is damaged: {error.errors()[0]['msg']}") from None


def _whole(spec: str) -> str:
    """Return `path/file.py` or `path/file.py:name` with an absolute path, and the name of a module as it is."""
    if not is_in_file(spec):
        return spec
    file, name = split_code(spec)
    path = str(Path(file).expanduser().resolve())
    return f"{path}:{name}" if name else path


def _may_hold_secret(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return True
    return "@" in parts.netloc or bool(parts.query)
