"""`turnwright run` and `resume`: their options.

The help loads this module, so a command loads what drives a turn when it runs.
"""

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    DEFAULT_STORE,
    AgentOption,
    AnswerOption,
    ApproveOption,
    ArgumentsOption,
    ByOption,
    ConfigOption,
    DriverFlags,
    EngineFlags,
    JsonOption,
    MetadataOption,
    NoInputOption,
    RejectOption,
    SettingOption,
    SettleOption,
    StepsOption,
    StoreOption,
    ToolTimeoutOption,
    TurnArgument,
    VerboseOption,
)
from .runtimes import Service


def run(
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help="What to do. Read from standard input if left out; optional with --continue."
        ),
    ] = None,
    *,
    agent: AgentOption = None,
    flags: DriverFlags,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", metavar="FILE", help="A picture or a document for the model; may be repeated."),
    ] = None,
    steps: StepsOption = None,
    tool_timeout: ToolTimeoutOption = None,
    setting: SettingOption = None,
    metadata: MetadataOption = None,
    output_schema: Annotated[
        Path | None,
        typer.Option("--output-schema", metavar="FILE", help="A JSON Schema: the answer is JSON that fits it."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="The conversation that the turn belongs to.")
    ] = None,
    turn_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The turn's id. Run again with it, the command starts no second turn."),
    ] = None,
    continues: Annotated[
        str | None, typer.Option("--continue", metavar="TURN", help="Continue in a new turn from one that ended.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    service: Service,
    config: ConfigOption = None,
    no_input: NoInputOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run one turn, and print how it ended.

    When the turn pauses, a terminal asks for the answer. Without a terminal, the command exits with 3 and prints how to
    answer. With --continue, options that are not given come from the earlier turn.

    Ctrl-C aborts the turn; a second Ctrl-C leaves at once. After SIGTERM, `resume` continues it.

    With --temporal-address the workers of a Temporal server drive the turn, with their own tools, and with their own
    model unless --model or the agent names one.
    """
    from .run_turn import RunFlags, run_turn  # noqa: PLC0415 (see the docstring of this module)

    run_turn(
        prompt,
        RunFlags(
            agent=agent,
            driver=flags,
            files=files or (),
            steps=steps,
            tool_timeout=tool_timeout,
            setting=setting,
            metadata=metadata,
            output_schema=output_schema,
            session=session,
            turn_id=turn_id,
            continues=continues,
            store=store,
            service=service,
            config=config,
            no_input=no_input,
            verbose=verbose,
            as_json=as_json,
        ),
    )


def resume(
    turn: TurnArgument,
    *,
    answer: AnswerOption = None,
    results: SettleOption = None,
    approvals: ApproveOption = None,
    rejections: RejectOption = None,
    arguments: ArgumentsOption = None,
    by: ByOption = "",
    store: StoreOption = DEFAULT_STORE,
    flags: EngineFlags,
    service: Service,
    no_input: NoInputOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Continue a turn: answer it, or resume it after a crash.

    Without answers a terminal asks for them. If another process drives the turn, it gets the answers. Agent, limits,
    model and root are those of the turn; flags replace its tools, its hooks, the code of its agents and the model's
    server.
    """
    from .answers import AnswerFlags  # noqa: PLC0415 (see the docstring of this module)
    from .run_turn import ResumeFlags, resume_turn  # noqa: PLC0415 (as above)

    resume_turn(
        turn,
        ResumeFlags(
            answers=AnswerFlags(answer or [], approvals or [], rejections or [], arguments or [], results or []),
            by=by,
            store=store,
            engine=flags,
            service=service,
            no_input=no_input,
            verbose=verbose,
            as_json=as_json,
        ),
    )
