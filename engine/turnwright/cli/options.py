"""The options that several commands share, and their values.

The help of a command loads this module, so functions load what only values need.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Never

import typer

from turnwright._base.regular_files import read_regular
from turnwright._base.schema_faults import dangling_refs
from turnwright._base.words import explain_json_error
from turnwright.errors import ConfigError
from turnwright.model.providers import LOCAL, PROVIDERS, open_model, openai_base_url, split_name, whole_name
from turnwright.store.address import SCHEMES

from .process import say

if TYPE_CHECKING:
    from pydantic import JsonValue

    from turnwright.agent import Agent
    from turnwright.config.config import Config
    from turnwright.context import GuardrailBase, HooksBase
    from turnwright.driver.subagents import AgentTool
    from turnwright.journal.fork_changes import ForkChanges
    from turnwright.model.model_settings import ModelSettings
    from turnwright.model.protocol import Model
    from turnwright.tools import Tool
    from turnwright.tools.load import LoadedTools

_MAX_SCHEMA: Final = 1024 * 1024
DEFAULT_STORE: Final = "sqlite:///turns.db"
#: The model where no flag names one: OpenAI needs a real name, and a server with one model takes any.
DEFAULT_MODEL: Final = "gpt-5-mini"
ANY_MODEL: Final = "default"

#: The flag of each setting that has one, by key.
FLAGS: Final[Mapping[str, str]] = {
    "limits.steps": "--steps",
    "limits.tool_timeout": "--tool-timeout",
    "model": "--model",
    "base_url": "--base-url",
    "timeout": "--timeout",
    "agents": "--agents",
    "tools": "--tools",
    "hooks": "--hooks",
    "mcp": "--mcp",
    "root": "--root",
}


def configuration(file: Path | None = None, flag_values: Mapping[str, object] | None = None) -> "Config":
    """Return the settings of this command. In `flag_values`, None is a flag that was not given.

    Raises `ConfigError` that lists all mistakes.
    """
    from turnwright.config.config import load_config  # noqa: PLC0415 (slow to load)

    values = {key: value for key, value in ({} if flag_values is None else flag_values).items() if value is not None}
    return load_config(file=file, overrides=values, flags=FLAGS)


def _steps(value: int | None) -> int | None:
    if value is None:
        return None
    from turnwright_states.limits import MAX_STEPS  # noqa: PLC0415 (see the docstring of this module)

    if value > MAX_STEPS:
        say(f"--steps {value}: a turn takes at most {MAX_STEPS} steps")
        say("To take more, continue in a new turn: `turnwright run --continue TURN`")
        return MAX_STEPS
    return value


def _store(context: typer.Context, value: str) -> str:
    # Compared by name: which package defines the enum depends on the release of Typer.
    source = context.get_parameter_source("store")
    if source is not None and source.name != "DEFAULT":
        return value
    return configuration(context.params.get("config")).settings.store


TurnArgument = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id, or a unique beginning of it.")]
TurnOrNoneArgument = Annotated[
    str | None, typer.Argument(metavar="TURN", help="The turn's id, or a unique beginning of it.")
]
SessionOption = Annotated[
    str | None, typer.Option("--session", metavar="ID", help="All turns of this session, instead of one turn.")
]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        callback=_store,
        help=f"{', '.join(scheme.example for scheme in SCHEMES)}, or that of a package.",
    ),
]
ToolsOption = Annotated[
    str | None,
    typer.Option(
        "--tools",
        metavar="MODULE",
        help="A module or a .py file with @tool functions [and make_deps].",
    ),
]
McpOption = Annotated[
    list[Path] | None,
    typer.Option("--mcp", metavar="FILE", help="A file that names MCP servers, like mcp.json; may be repeated."),
]
HooksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hooks",
        metavar="MODULE[:NAME]",
        help="Hooks and guardrails of a module or a .py file, all or one; may be repeated.",
    ),
]
BaseUrlOption = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="The model's endpoint, such as .../v1.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long the endpoint may be silent, at any point.",
    ),
]
RootOption = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="The folder for the built-in tools [default: .].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON event per line.")]
AgentsOption = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="SOURCE",
        help="Agents: a Markdown file, a folder like .opencode, a .py file, or MODULE:NAME"
        " [default: with --agent, AGENTS.md, or agents/*.md and *.agent.md].",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        help="The configuration [default: turnwright.toml, here or in a parent folder].",
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option("--temporal-address", metavar="HOST:PORT", help="A Temporal server, whose workers drive the turns."),
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Its namespace [default: default].")
]
QueueOption = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Its task queue [default: turnwright].")
]
AgentQueuesOption = Annotated[
    list[str] | None,
    typer.Option("--agent-queue", metavar="AGENT=QUEUE", help="An agent with another task queue; may be repeated."),
]
ServesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--serves",
        metavar="QUEUE",
        help="Take turns only from this task queue; may be repeated [default: all].",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID",
        help=f"The model: {', '.join(provider.help for provider in PROVIDERS)}, or PROVIDER:ID of a package.",
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="The agent to run [default: the only one of --agents, or a plain assistant].",
    ),
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
JsonObjectOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
StepsOption = Annotated[
    int | None, typer.Option("--steps", metavar="N", callback=_steps, help="The most steps of the turn, up to 200.")
]
PORT: Final = 8321
PortOption = Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 picks a free one.")]
ToolTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--tool-timeout",
        metavar="SECONDS",
        help="How long a call of a tool without a timeout of its own may take [default: 300].",
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="NAME=VALUE",
        help="A setting of the model calls, such as temperature=0 or thinking=high; may be repeated.",
    ),
]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata",
        metavar="KEY=VALUE",
        help="A value for make_deps, hooks and templates, such as user=ann; may be repeated.",
    ),
]
NoInputOption = Annotated[bool, typer.Option("--no-input", help="Ask nothing: exit with 3 when the turn pauses.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also print the outcome, what was used, and the path of states.")
]
AnswerOption = Annotated[
    list[str] | None, typer.Option("--answer", metavar="ID=TEXT", help="Answer a question; may be repeated.")
]
SettleOption = Annotated[
    list[str] | None,
    typer.Option("--settle", metavar="ID=TEXT", help="Give the result of a call; may be repeated."),
]
ByOption = Annotated[
    str, typer.Option("--by", metavar="NAME", help="Who answers: kept with the answer, as you claim it.")
]
ApproveOption = Annotated[
    list[str] | None, typer.Option("--approve", metavar="ID", help="Approve an interrupt; may be repeated.")
]
ArgumentsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arguments",
        metavar="[ID=]JSON",
        help="Approve a call with these arguments, all of them in one JSON object; may be repeated.",
    ),
]
RejectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reject", metavar="ID[=WORDS]", help="Reject an interrupt, with a note to the model; may be repeated."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """The flags that change the engine of a turn that has started (see `with_shared_options`)."""

    agents: AgentsOption = None
    tools: ToolsOption = None
    mcp: McpOption = None
    hooks: HooksOption = None
    base_url: BaseUrlOption = None
    timeout: TimeoutOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFlags(EngineFlags):
    """The flags of an engine that drives turns."""

    root: RootOption = None
    model: ModelOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFlags:
    """The flags that answer interrupts: texts (`ID=TEXT`), results of calls, and decisions."""

    texts: AnswerOption = None
    results: SettleOption = None
    approvals: ApproveOption = None
    rejections: RejectOption = None
    arguments: ArgumentsOption = None


def first_given(flags: EngineFlags) -> str | None:
    """Return the first of these flags that was given, as people write it."""
    flags_given = (field.name for field in fields(flags) if getattr(flags, field.name) not in (None, []))
    return next((f"--{name.replace('_', '-')}" for name in flags_given), None)


def read_schema(file: Path) -> "dict[str, JsonValue]":
    """Return the JSON Schema in a file. Raises `ConfigError`, naming the file, for anything else."""
    try:
        schema: object = json.loads(read_regular(file, _MAX_SCHEMA).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"--output-schema {file}: {getattr(error, 'strerror', None) or explain_json_error(error)}"
        ) from None
    if not isinstance(schema, dict):
        raise ConfigError(f"--output-schema {file}: a JSON Schema is a JSON object")
    if dangling := dangling_refs(schema):
        raise ConfigError(f"--output-schema {file}: {dangling[0]}")
    return schema


def choose_agent(name: str | None, source: str | None, config: "Config") -> "tuple[Agent, list[AgentTool]]":
    """Return the agent of that name, or the only one that is not a sub-agent, and the sub-agents of its source.

    Without a name and a source, return a plain assistant, which follows a plain AGENTS.md of this folder. Raises
    `ConfigError` if no agent has the name, and if there are several and no name was given.
    """
    if name is None and source is None:
        return _plain_agent(), []
    from turnwright.agents.files import read_agents  # noqa: PLC0415 (few commands read agents)
    from turnwright.agents.markdown import find_agent  # noqa: PLC0415 (as above)
    from turnwright.driver.subagents import agent_tools, primary_agents  # noqa: PLC0415 (as above)

    agents = read_agents(*(config.agent_sources() if source is None else (source,)), limits=config.limits())
    helpers = agent_tools(agents)
    if name is not None:
        return find_agent(agents, name), helpers
    primary = primary_agents(agents)
    if len(primary) != 1:
        names = ", ".join(agent.name for agent in primary or agents)
        kind = "several agents" if primary else "sub-agents"
        raise ConfigError(f"{source} has {kind}: choose one with --agent: {names}")
    return primary[0], helpers


def _plain_agent() -> "Agent":
    """Return a plain assistant, with the instructions of this folder if they can be read."""
    from turnwright.agent import AGENTS_FILE  # noqa: PLC0415 (see the docstring of this module)
    from turnwright.agents.front_matter import UnreadableFileError, read_text  # noqa: PLC0415 (few commands need it)
    from turnwright.agents.markdown import plain_agent, read_instructions  # noqa: PLC0415 (as above)

    file = Path(AGENTS_FILE)
    with suppress(UnreadableFileError):
        return plain_agent(read_instructions(read_text(file)) if file.is_file() else "")
    return plain_agent()


def read_agents_of(source: str, config: "Config") -> "tuple[list[Agent], list[AgentTool]]":
    """Return the agents of a source as they run with the configuration, and the sub-agents as tools."""
    from turnwright.agents.files import read_agents  # noqa: PLC0415 (few commands read agents)
    from turnwright.driver.subagents import agent_tools  # noqa: PLC0415 (as above)

    agents = [config.prepared(agent) for agent in read_agents(source, limits=config.limits())]
    return agents, agent_tools(agents)


def with_limits(agent: "Agent", limits: Mapping[str, float | None]) -> "Agent":
    """Return the agent with the limits of flags, by name; None is a flag that was not given. Raises `ConfigError`."""
    limits_given = {name: value for name, value in limits.items() if value is not None}
    if not limits_given:
        return agent
    from pydantic import ValidationError  # noqa: PLC0415 (see the docstring of this module)

    from turnwright.agent import Agent  # noqa: PLC0415 (as above)

    try:
        return Agent.model_validate(agent.to_json() | agent.code | limits_given)
    except ValidationError as error:
        details = error.errors()[0]
        flag = FLAGS[f"limits.{details['loc'][0]}"]
        raise ConfigError(f"{flag}: {details['msg']}") from None


def read_settings(pairs: Sequence[str] | None) -> "ModelSettings | None":
    """Return the model settings of `--setting` flags; None without any. A value is JSON, or else a text.

    Raises `ConfigError` for a flag without `=`, an unknown setting, and a value out of range.
    """
    values = _pairs(pairs, "--setting", "NAME=VALUE, such as temperature=0")
    if not values:
        return None
    from turnwright.model.model_settings import parsed_settings  # noqa: PLC0415 (see the docstring of this module)

    return parsed_settings(values, "--setting")


def read_changes(limits: Sequence[str] | None, results: Sequence[str] | None) -> "ForkChanges":
    """Return the changes of `--limit` and `--result` flags. Raises `ConfigError` for a flag without `=`."""
    changes: ForkChanges = {}
    if limits:
        changes["limits"] = _pairs(limits, "--limit", "NAME=VALUE, such as steps=20")
    if results:
        pairs = [result.partition("=") for result in results]
        if wrong := [f"{call}" for call, equals, _ in pairs if not (equals and call)]:
            raise ConfigError(f"--result {wrong[0]}: write it as CALL=TEXT")
        changes["results"] = {call: text for call, _, text in pairs}
    return changes


def read_metadata(pairs: Sequence[str] | None) -> "dict[str, JsonValue]":
    """Return the metadata of `--metadata` flags. A value is JSON, or else a text.

    Raises `ConfigError` for a flag without `=`, and for a key under which the command line saves a flag.
    """
    from .saved_options import SavedOptions  # noqa: PLC0415 (see the docstring of this module)

    values = _pairs(pairs, "--metadata", "KEY=VALUE, such as user=ann")
    if reserved_keys := sorted(values.keys() & SavedOptions.model_fields.keys()):
        raise ConfigError(
            f"--metadata {reserved_keys[0]}: the command line saves a flag under this key: choose another key"
        )
    return values


def _pairs(pairs: Sequence[str] | None, flag: str, form: str) -> "dict[str, JsonValue]":
    """Return the values of flags like NAME=VALUE, the last one of each name."""
    values: dict[str, JsonValue] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not (equals and name):
            raise ConfigError(f"{flag} {pair}: write it as {form}")
        try:
            values[name] = json.loads(text, parse_constant=_not_json)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def _not_json(constant: str) -> Never:
    raise ValueError(constant)


def model_named(name: str | None, base_url: str | None) -> str:
    """Return the full name of a model, as `open_model` takes it.

    For None, return the model of the configured endpoint, or else the embedded model. A Claude model is asked at
    Anthropic, unless an endpoint is named.
    """
    endpoint = base_url or openai_base_url()
    if name is None:
        has_service = endpoint or os.environ.get("OPENAI_API_KEY")
        return (ANY_MODEL if endpoint else DEFAULT_MODEL) if has_service else LOCAL.name
    return whole_name(name, endpoint)


def open_models(
    name: str, agent: "Agent | None", base_url: str | None, timeout: float | None = None
) -> "tuple[Model, Callable[[str], Model]]":
    """Open a model, and return it with a function that finds the model of an agent by its name.

    The model of `agent` is this one, whichever model the agent names. `base_url` is used only for models of the same
    API as `name`.
    """
    named_model = open_model(name, base_url=base_url, timeout=timeout)
    agent_model = None if agent is None else agent.model
    models = {model_name: named_model for model_name in (named_model.name, name, agent_model) if model_name is not None}

    def find(model_name: str) -> "Model":
        if model_name not in models:
            whole = model_named(model_name, base_url)
            is_same_provider = split_name(whole)[0] == split_name(name)[0]
            models[model_name] = open_model(whole, base_url=base_url if is_same_provider else None, timeout=timeout)
        return models[model_name]

    return named_model, find


def choose_tools(module: str | None, root: Path) -> "LoadedTools":
    """Return the built-in tools, confined to `root`, and the tools of the module, which win for the same name.

    With them comes the module's function that makes their dependencies, if it has one.

    Raises `ConfigError` for a root that is not a folder, and for a module that cannot be loaded.
    """
    from turnwright.tools import builtin_tools  # noqa: PLC0415 (few commands have tools)
    from turnwright.tools.load import LoadedTools, load_tools_and_deps  # noqa: PLC0415 (as above)

    if not root.is_dir():
        raise ConfigError(f"--root {root}: is not a folder")
    tools = {tool.name: tool for tool in builtin_tools(root)}
    if module is None:
        return LoadedTools(list(tools.values()), None)
    module_tools = load_tools_and_deps(module)
    tools |= {tool.name: tool for tool in module_tools.tools}
    return LoadedTools(list(tools.values()), module_tools.make_deps)


def with_helpers(tools: "Sequence[Tool]", helpers: "Sequence[AgentTool]") -> "tuple[Tool, ...]":
    """Return the tools and the sub-agents of a source. A sub-agent that is among the tools already is not added."""
    delegating_names = {tool.name for tool in tools if tool.delegates}
    return (*tools, *(helper for helper in helpers if helper.name not in delegating_names))


def need_one(turn: str | None, session: str | None) -> str:
    """Return what was named. Raises `ConfigError` unless it is either a turn or a session."""
    if (turn is None) is (session is None):
        raise ConfigError(
            "name a turn, or a session with --session: `turnwright turns` and `turnwright sessions` list them"
            if turn is None
            else "name a turn or a session, not both"
        )
    return turn or session or ""


def choose_hooks(specs: Sequence[str]) -> "tuple[list[HooksBase], list[GuardrailBase]]":
    """Return the hooks and the guardrails that `--hooks` names. Raises `ConfigError`, naming the flag."""
    from turnwright.agents.named_code import code_of  # noqa: PLC0415 (few commands have hooks)
    from turnwright.context import GuardrailBase, HooksBase  # noqa: PLC0415 (as above)

    objects = [value for spec in specs for value in code_of(spec)]
    hooks = [value for value in objects if isinstance(value, HooksBase)]
    return hooks, [value for value in objects if isinstance(value, GuardrailBase)]
