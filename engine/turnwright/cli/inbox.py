"""`turnwright abort`, `answer` and `steer`: what anybody may ask of a turn, whichever process drives it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from turnwright._base.ids import root_of
from turnwright.engine import Engine
from turnwright.errors import ConfigError, TurnAlreadyEndedError, TurnNotFoundError
from turnwright.journal.answers import Answer
from turnwright.result import TurnResult
from turnwright.store import Queued, Store
from turnwright_states import State

from .answers import AnswerFlags, read_answers
from .lines import piped
from .options import (
    DEFAULT_STORE,
    AddressOption,
    ApproveOption,
    JsonObjectOption,
    NamespaceOption,
    QueueOption,
    RejectOption,
    StoreOption,
    TurnArgument,
)
from .process import echo, echo_json
from .runtimes import Service
from .stores import find_turn, is_elsewhere, store_flag, use_store
from .summary import taken_up_by


def abort(
    turn: TurnArgument,
    *,
    store: StoreOption = DEFAULT_STORE,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    queue: QueueOption = None,
) -> None:
    """Stop a turn, whatever it is doing, from this process or another. A sub-agent's may be stopped alone.

    With --temporal-address the Temporal server is told too, whose jobs are then cancelled; workers hear of it anyway.
    """
    service = Service(address, namespace, queue)
    turn = find_turn(store, turn)
    root = root_of(turn)

    async def stop(opened: Store) -> tuple[TurnResult, bool]:
        runtime = service.runtime()
        engine = Engine(store=opened, runtime=runtime)
        result = await engine.get(turn)
        if result.outcome is not None and result.reason is not None:
            raise TurnAlreadyEndedError(turn, result.outcome, result.reason)
        try:
            await engine.abort(turn)
        finally:
            await runtime.aclose()
        rests = await _rests(opened, root)
        return await engine.get(turn), rests and not await is_elsewhere(opened, root)

    result, caller_rests = use_store(store, stop)
    echo(f"turn {turn}: " + ("aborted" if result.outcome else "told to stop; whoever drives it ends it"))
    if root != turn and caller_rests:
        echo(f"`turnwright resume {root}{store_flag(store)}{service.flags}` goes on without it")


def answer(
    turn: TurnArgument,
    *,
    approvals: ApproveOption = None,
    rejections: RejectOption = None,
    replies: Annotated[
        list[str] | None, typer.Option("--answer", metavar="ID=TEXT", help="Reply to a question; may be repeated.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    service: Service,
    as_json: JsonObjectOption = False,
) -> None:
    """Record answers of a paused turn, and do not drive it: whoever drives it on takes them in.

    That is a worker, the program that began the turn, or `resume`. An ID may be the beginning of an interrupt's.

    With --temporal-address the workers of a Temporal server are told.
    """
    turn = find_turn(store, turn)

    async def record(opened: Store) -> tuple[dict[str, str | Answer], TurnResult, str]:
        runtime = service.runtime()
        engine = Engine(store=opened, runtime=runtime)
        try:
            before = await engine.get(turn)
            if before.outcome is not None and before.reason is not None:
                raise TurnAlreadyEndedError(turn, before.outcome, before.reason)
            still_open = [one.id for one in before.interrupts if one.id not in before.answered]
            flags = AnswerFlags("--answer", replies or [], approvals or [], rejections or [])
            answers = read_answers(flags, still_open, before.answered)
            if not answers:
                raise ConfigError(_nothing_said(before, still_open))
            await engine.answer(turn, answers)
        finally:
            await runtime.aclose()
        driven = await opened.is_driven(turn)
        again = taken_up_by(turn, store_flag(store) + service.flags, elsewhere=await is_elsewhere(opened, turn))
        next_step = "whoever drives the turn takes it in" if driven else f"{again} goes on with it"
        return answers, await engine.get(turn), next_step

    answers, result, next_step = use_store(store, record)
    left = [one.id for one in result.interrupts if one.id not in result.answered and one.id not in answers]
    if as_json:
        echo_json({"turn": turn, "answered": [*answers], "open": left})
    elif left:
        echo(f"turn {turn}: recorded {', '.join(answers)}; still open: {', '.join(left)}")
    else:
        echo(f"turn {turn}: recorded {', '.join(answers)}; {next_step}")


def steer(
    turn: TurnArgument,
    text: Annotated[
        str | None, typer.Argument(help="What to say; read from standard input if left out.", show_default=False)
    ] = None,
    *,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Say something to a turn that has not ended: it is taken in before the next model call that may use tools.

    It refills no limit. A turn that ends before it took it in says so: "not delivered".
    """
    said = piped("message") if text is None else text
    if said is None:
        raise ConfigError(f'no message: write one, as in `turnwright steer {turn} "Leave the tests alone."`')

    turn = find_turn(store, turn)

    async def post(opened: Store) -> str:
        await Engine(store=opened).steer(turn, said)
        driven, root = await opened.is_driven(turn), root_of(turn)
        again = taken_up_by(root, store_flag(store), elsewhere=await is_elsewhere(opened, root))
        return _taken_in((await opened.get(turn)).status.state, driven=driven, again=again)

    echo(f"turn {turn} " + use_store(store, post))


def _nothing_said(result: TurnResult, still_open: Sequence[str]) -> str:
    if still_open:
        return f"no answer: give --approve, --reject or --answer with one of {', '.join(still_open)}"
    if result.interrupts:
        return f"turn {result.id}: none is open: {', '.join(one.id for one in result.interrupts)}: answered already"
    return f"turn {result.id} asks nothing: it is in {result.state}"


async def _rests(store: Store, turn: str) -> bool:
    with suppress(TurnNotFoundError):
        return (await store.get(turn)).status.outcome is None and not await store.is_driven(turn)
    return False


def _taken_in(state: State | Queued, *, driven: bool, again: str) -> str:
    """Return when a turn in this state takes a message in. `again` takes it up where nobody drives it."""
    if state.outcome is not None or state in (State.CONCLUDE, State.TEXT_ONLY):
        return "makes no further call that may use tools: it will name the message as not delivered"
    if driven:
        return "takes it in before its next model call"
    if state is State.PAUSED:
        return "rests, and takes it in when it goes on"
    return f"is driven by nobody, and takes it in when {again} takes it up again"
