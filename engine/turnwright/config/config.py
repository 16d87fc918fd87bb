"""The configuration: one value for each setting, with its origin.

    load_config()                       # the settings of `turnwright run` in this folder
    Engine(model=..., tools=[...], **load_config().engine_options())

**Precedence**, for each setting:

1. the flags of a command, and `overrides` in code
2. the front matter of the agent, for the settings of agents
3. the environment, `TURNWRIGHT_...`
4. the configuration file, `turnwright.toml` or `[tool.turnwright]` in `pyproject.toml`
5. the preset, for the limits that it sets
6. the default

The ceiling limits all of them. It comes from the same sources, but no agent can set it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypedDict

from pydantic import BaseModel

from turnwright.errors import ConfigError
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prices import Price
from turnwright.transcript.pairing import Unpaired
from turnwright_states import Limits

from . import files
from .settings import SETTINGS, Settings, check

if TYPE_CHECKING:
    from turnwright.agent import Agent


class SettingSource(StrEnum):
    """The kinds of origins, in the order of precedence."""

    CODE = "code"
    FLAG = "flag"
    FRONT_MATTER = "front matter"
    ENVIRONMENT = "environment"
    FILE = "file"
    PRESET = "preset"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """An effective value and its origin. `str()` shows only the origin, which has no secret."""

    value: object = field(repr=False)
    source: SettingSource
    place: str = ""
    """A file and a key, a variable, a flag, a preset or an agent; empty for a default."""

    def __str__(self) -> str:
        """Format the origin, for example as `environment TURNWRIGHT_STORE`."""
        return f"{self.source} {self.place}".strip()


class EngineOptions(TypedDict):
    """The arguments of `Engine` that come from the configuration."""

    store: str
    limits: Limits
    prices: Mapping[str, Price]
    unpaired: Unpaired
    show_budget_to_model: bool
    model_settings: ModelSettings | None
    strict_settings: bool
    stop_repetition: bool


@dataclass(frozen=True, slots=True)
class Config:
    """The effective settings, as `load_config` returns them."""

    file: Path | None
    """The configuration file, or None."""
    settings: Settings = field(repr=False)
    """The effective values. `store` and `base_url` may contain a password."""
    origins: Mapping[str, SettingOrigin] = field(repr=False)
    """Every setting by its key, with its effective value and its origin."""
    conclude_prompt: str | None = field(repr=False)
    """The text of `conclude_prompt_file`; None means the built-in one."""

    def limits(self) -> Limits:
        """Return the engine's limits: the preset's, replaced by the limits that are set."""
        return self.settings.limits

    def prices(self) -> dict[str, Price]:
        """Return the price of each model by its name."""
        return {name: row.price() for name, row in self.settings.prices.items()}

    def engine_options(self) -> EngineOptions:
        """Return the arguments for `Engine(**...)`. The app adds model, tools and hooks."""
        return EngineOptions(
            store=self.settings.store,
            limits=self.limits(),
            prices=self.prices(),
            unpaired=self.settings.unpaired,
            show_budget_to_model=self.settings.show_budget_to_model,
            model_settings=self.settings.model_settings if self.settings.model_settings.given else None,
            strict_settings=self.settings.strict_settings,
            stop_repetition=self.settings.stop_repetition,
        )

    def agent_sources(self) -> tuple[str, ...]:
        """Return the files, folders and code with agents: the configured ones, or else those of the working folder."""
        from turnwright.agents.files import default_sources  # noqa: PLC0415 (few programs read agents)

        return self.settings.agents or default_sources()

    def agent(self, name: str) -> "Agent":
        """Return the agent of this name from the configured sources, ready to run. Raises `ConfigError`."""
        return self.prepared(self.written(name)[0])

    def written(self, name: str) -> "tuple[Agent, Path]":
        """Return the agent of this name as its source defines it, and the source. Raises `ConfigError`."""
        from turnwright.agents.files import read_agents  # noqa: PLC0415 (few programs read agents)
        from turnwright.agents.markdown import find_agent  # noqa: PLC0415 (as above)

        sources = self.agent_sources()
        agent = find_agent(read_agents(*sources, limits=self.limits()), name)
        if len(sources) == 1:
            return agent, Path(sources[0])
        sources_with_agent = (
            source for source in sources if agent.name in [source_agent.name for source_agent in read_agents(source)]
        )
        return agent, Path(next(sources_with_agent))

    def prepared(self, agent: "Agent") -> "Agent":
        """Return the agent as it runs with this configuration.

        Flags replace its front matter, which replaces the configured `conclude_prompt`. Raises `ConfigError` for limits
        that the preset does not allow.
        """
        from turnwright.agent import BUDGET_FIELDS, Agent  # noqa: PLC0415 (few commands have an agent)

        limits = {key.removeprefix("limits."): value for key, value in self._nearer("limits.").items()}
        budget = {name: limits.pop(name) for name in tuple(limits) if name in BUDGET_FIELDS}
        limits.pop("ceiling", None)  # a limit of the engine only
        ready = agent.to_json() | agent.code | limits | self._nearer("model")
        if budget:
            of_agent = {name: value for name, value in agent.overrides.items() if name in BUDGET_FIELDS}
            ready["budget"] = of_agent | budget
        if self.conclude_prompt is not None and (
            "conclude_prompt" not in ready or self._nearer("conclude_prompt_file")
        ):
            ready["conclude_prompt"] = self.conclude_prompt
        ready_agent = Agent.model_validate(ready)
        ready_agent.limits_for(self.limits())
        return ready_agent

    def origins_for(self, agent: "Agent", place: str) -> dict[str, SettingOrigin]:
        """Return the origins of the settings for the turns of this agent, which is defined in the file `place`.

        Pass the agent as `written` returns it, not as `prepared` does. Its settings have the origin `front matter`,
        unless a flag replaces them.
        """
        self.prepared(agent)
        origins = dict(self.origins)
        where = f"{place}: agent {agent.name!r}"
        limits = agent.limits_for(self.limits()).model_dump()
        agent_values: dict[str, object] = {
            f"limits.{name}": limits[name] for name in agent.overrides if f"limits.{name}" in origins
        }
        agent_values |= {"model": agent.model} if agent.model is not None else {}
        agent_values |= {"conclude_prompt_file": None} if "conclude_prompt" in agent.model_fields_set else {}
        for key, value in agent_values.items():
            if origins[key].source not in _NEAREST:
                origins[key] = SettingOrigin(value, SettingSource.FRONT_MATTER, where)
        settings = {} if agent.model_settings is None else agent.model_settings.given
        for name, value in settings.items():
            origins[f"model_settings.{name}"] = SettingOrigin(value, SettingSource.FRONT_MATTER, where)
        return origins

    def _nearer(self, prefix: str) -> dict[str, object]:
        """Return the settings from flags and code, which replace an agent's front matter."""
        return {
            key: origin.value
            for key, origin in self.origins.items()
            if key.startswith(prefix) and origin.source in _NEAREST
        }


_NEAREST: Final = frozenset({SettingSource.CODE, SettingSource.FLAG})


#: The settings of one source, by key.
_Layer = Mapping[str, SettingOrigin]
#: The settings whose rows may come from several sources.
_TABLES: Final = ("prices", "model_settings")
_OTHER_NAMES: Final = {"limits.steps": "behavior.max_steps"}


def load_config(
    start: Path | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    flags: Mapping[str, str] | None = None,
) -> Config:
    """Return the effective settings, by this module's precedence.

    The file is `file`, or the one in TURNWRIGHT_CONFIG, or the nearest `turnwright.toml` or `pyproject.toml` with
    `[tool.turnwright]` in `start` (by default the working folder) and above it, up to the root of the repository or the
    home folder. `environ` is the environment, by default the process's. `overrides` are values by key,
    `{"limits.steps": 5}`, where None means no limit. `flags` names the overrides that came from flags,
    `{"limits.steps": "--steps"}`, for messages and origins.

    Raises `ConfigError` with all mistakes of all sources, one per line: the place, the key and the expected value.
    """
    environ = os.environ if environ is None else environ
    path = _find_path(start, file, environ)
    by_flag = {} if flags is None else flags
    from_environment, names, mistakes = files.read_environment(environ)

    def read_layer(
        values: Mapping[str, object],
        source: Callable[[str], SettingSource],
        place: Callable[[str], str],
        *,
        is_text: bool = True,
    ) -> _Layer:
        leaves, faults = check(values, place, is_text=is_text)
        mistakes.extend(faults)
        return {key: SettingOrigin(value, source(key), place(key)) for key, value in leaves.items()}

    layers = [
        read_layer(
            _nest_values({} if overrides is None else overrides),
            lambda key: SettingSource.FLAG if key in by_flag else SettingSource.CODE,
            lambda key: by_flag.get(key, f"overrides: {key}"),
            is_text=False,  # only code can pass None
        ),
        read_layer(
            _nest_values(from_environment), lambda _: SettingSource.ENVIRONMENT, lambda key: _variable(key, names)
        ),
    ]
    if path is not None:
        of_file = read_layer(
            files.read_file(path), lambda _: SettingSource.FILE, lambda key: f"{path}: {files.key_in(path, key)}"
        )
        faults = files.mistakes_of_files({key: origin.value for key, origin in of_file.items()})
        mistakes += [f"{of_file[key].place}: {problem}" for key, problem in faults]
        layers.append(
            {key: replace(origin, value=files.beside(path, key, origin.value)) for key, origin in of_file.items()}
        )
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    origins = dict(_merge_layers(layers))
    return Config(
        file=path,
        settings=_make_settings(origins),
        origins=MappingProxyType(origins),
        conclude_prompt=_prompt(origins["conclude_prompt_file"]),
    )


def _find_path(start: Path | None, file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is not None:
        return file
    path = environ.get(files.CONFIG_VARIABLE, "")
    if path != "":
        return Path(path)
    home = environ.get("HOME", "")
    try:
        return files.find_file(Path() if start is None else start, None if home == "" else Path(home).resolve())
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise ConfigError(f"the configuration's folder cannot be read: {error}") from None


def _variable(key: str, names: Mapping[str, str]) -> str:
    around = (key, key.rpartition(".")[0], key.partition(".")[0])
    return next((names[candidate] for candidate in around if candidate in names), files.variable(key))


def _nest_values(overrides: Mapping[str, object]) -> dict[str, object]:
    """Return the values with a nested mapping for each section."""
    sections: dict[str, object] = {}
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        plain_value = (
            {field: getattr(value, field) for field in value.model_fields_set}
            if isinstance(value, BaseModel)
            else value
        )
        if name or isinstance(plain_value, Mapping):
            inner = {name: plain_value} if name else plain_value
            before = sections.get(section, {})
            sections[section] = (
                {**before, **inner} if isinstance(before, Mapping) and isinstance(inner, Mapping) else inner
            )
        else:
            sections[section] = plain_value
    return sections


def _merge_layers(layers: list[_Layer]) -> Iterator[tuple[str, SettingOrigin]]:
    """Yield every effective setting with its origin, in the order of `SETTINGS`."""
    preset = _first("preset", layers)
    name = SETTINGS["preset"].default if preset is None else preset.value
    limits = Limits.preset(name)  # type: ignore[arg-type] # checked when it was read
    for key, setting in SETTINGS.items():
        if key in _OTHER_NAMES.values():
            continue
        if key in _TABLES:
            rows = dict.fromkeys(row for layer in layers for row in layer if row.startswith(f"{key}."))
            yield from ((row, origin) for row in rows if (origin := _first(row, layers)) is not None)
            continue
        setting_origin = _first(key, layers)
        limit = key.removeprefix("limits.")
        if setting_origin is not None:
            yield key, setting_origin
        elif key != limit and limit in limits.model_fields_set:
            yield key, SettingOrigin(getattr(limits, limit), SettingSource.PRESET, str(name))
        else:
            yield key, SettingOrigin(setting.default, SettingSource.DEFAULT)


def _first(key: str, layers: list[_Layer]) -> SettingOrigin | None:
    names = (key, _OTHER_NAMES.get(key, key))
    return next((layer[name] for layer in layers for name in names if name in layer), None)


def _make_settings(origins: Mapping[str, SettingOrigin]) -> Settings:
    values = _nest_values({key: origin.value for key, origin in origins.items() if origin.source not in _UNSAID})
    settings = Settings.model_validate(values)
    try:
        limits = Limits.preset(settings.preset, **settings.limits.model_dump(exclude_unset=True))
    except ValueError as error:
        # Each value is valid alone. Only the preset can still refuse one, and that is `steps`.
        raise ConfigError(f"{origins['limits.steps'].place}: {error}") from None
    return settings.model_copy(update={"limits": limits})


_UNSAID: Final = frozenset({SettingSource.DEFAULT, SettingSource.PRESET})


def _prompt(origin: SettingOrigin) -> str | None:
    if origin.value is None:
        return None
    try:
        text = files.read_text(Path(str(origin.value)))
    except ConfigError as error:
        raise ConfigError(f"{origin.place}: {error}") from None
    if not text.strip():
        raise ConfigError(f"{origin.place}: {origin.value}: is blank: write a prompt for the model, or name no file")
    return text
