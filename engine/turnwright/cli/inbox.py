"""`turnwright abort` and `steer`: what anybody may ask of a turn, whichever process drives it."""

from contextlib import suppress
from typing import Annotated

import typer

from turnwright.engine import Engine
from turnwright.errors import ConfigError, TurnEnded, UnknownTurn
from turnwright.ids import root_of
from turnwright.result import TurnResult
from turnwright.store import Store
from turnwright_states import State

from .options import DEFAULT_STORE, AddressOption, NamespaceOption, QueueOption, StoreOption, TurnArgument
from .runtimes import Service
from .stdin import piped
from .stores import store_flag, use_store


def abort(
    turn: TurnArgument,
    *,
    store: StoreOption = DEFAULT_STORE,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    queue: QueueOption = None,
) -> None:
    """Stop a turn, whatever it is doing, from this process or another. A sub-agent's may be stopped alone.

    With --address the Temporal server is told too, whose jobs are then cancelled; workers hear of it anyway.
    """
    root = root_of(turn)
    service = Service.of(address, namespace, queue)

    async def stop(opened: Store) -> tuple[TurnResult, bool]:
        runtime = service.runtime()
        engine = Engine(store=opened, runtime=runtime)
        result = await engine.get(turn)
        if result.outcome is not None and result.reason is not None:
            raise TurnEnded(turn, result.outcome, result.reason)
        try:
            await engine.abort(turn)
        finally:
            await runtime.aclose()
        return await engine.get(turn), await _rests(opened, root)

    result, caller_rests = use_store(store, stop)
    typer.echo(f"turn {turn}: " + ("aborted" if result.outcome else "told to stop; whoever drives it ends it"))
    if root != turn and caller_rests:
        typer.echo(f"`turnwright resume {root}{store_flag(store)}{service.flags}` goes on without it")


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

    async def post(opened: Store) -> str:
        await Engine(store=opened).steer(turn, said)
        driven = await opened.is_driven(turn)
        return _taken_in(root_of(turn), (await opened.get(turn)).status.state, driven=driven, flags=store_flag(store))

    typer.echo(f"turn {turn} " + use_store(store, post))


async def _rests(store: Store, turn: str) -> bool:
    """Whether a turn has not ended, and nobody drives it on."""
    with suppress(UnknownTurn):
        return (await store.get(turn)).status.outcome is None and not await store.is_driven(turn)
    return False


def _taken_in(root: str, state: State, *, driven: bool, flags: str) -> str:
    """When a turn that stands like this takes a message in. `root` is what `resume` takes."""
    if state.outcome is not None or state in (State.CONCLUDE, State.TEXT_ONLY):
        return "makes no further call that may use tools: it will name the message as not delivered"
    if driven:
        return "takes it in before its next model call"
    if state is State.PAUSED:
        return "rests, and takes it in when it goes on"
    return f"is driven by nobody, and takes it in when `turnwright resume {root}{flags}` takes it up again"
