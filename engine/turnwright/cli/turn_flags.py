"""The flags of commands that drive one turn, or several. The help of a command loads this module."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    DEFAULT_STORE,
    AgentOption,
    AnswerFlags,
    ByOption,
    ConfigOption,
    DriverFlags,
    EngineFlags,
    JsonOption,
    MetadataOption,
    NoInputOption,
    SettingOption,
    StepsOption,
    StoreOption,
    ToolTimeoutOption,
    VerboseOption,
)
from .runtimes import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFlags:
    """The flags that say how new turns run."""

    agent: AgentOption = None
    driver: DriverFlags
    steps: StepsOption = None
    tool_timeout: ToolTimeoutOption = None
    setting: SettingOption = None
    metadata: MetadataOption = None
    store: StoreOption = DEFAULT_STORE
    config: ConfigOption = None
    verbose: VerboseOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """The flags of `turnwright run`."""

    turn: TurnFlags
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", metavar="FILE", help="A picture or a document for the model; may be repeated."),
    ] = None
    output_schema: Annotated[
        Path | None,
        typer.Option("--output-schema", metavar="FILE", help="A JSON Schema: the answer is JSON that fits it."),
    ] = None
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="The conversation that the turn belongs to.")
    ] = None
    turn_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The turn's id. Run again with it, the command starts no second turn."),
    ] = None
    continues: Annotated[
        str | None, typer.Option("--continue", metavar="TURN", help="Continue in a new turn from one that ended.")
    ] = None
    service: Service
    no_input: NoInputOption = False
    as_json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeFlags:
    """The flags of `turnwright resume`."""

    answers: AnswerFlags
    by: ByOption = ""
    store: StoreOption = DEFAULT_STORE
    engine: EngineFlags
    service: Service
    no_input: NoInputOption = False
    verbose: VerboseOption = False
    as_json: JsonOption = False
