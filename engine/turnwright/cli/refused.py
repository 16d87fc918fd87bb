"""What a command says of a turn that is not there and of a session that is busy: which commands help, with flags."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING

from turnwright.errors import ConfigError, SessionBusyError, TurnNotFoundError, TurnwrightError

if TYPE_CHECKING:
    from turnwright.store import Store


def with_advice(command: Callable[..., object]) -> Callable[..., object]:
    """The command, which says what helps in its own words: the library's are for whoever calls the library.

    It raises `ConfigError` for `TurnNotFoundError` and `SessionBusyError`, if it has an option `store`.
    """

    @wraps(command)
    def advised(**given: object) -> object:
        try:
            return command(**given)
        except (SessionBusyError, TurnNotFoundError) as error:
            store = given.get("store")
            if not isinstance(store, str):
                raise
            raise ConfigError(_advice(error, store, given)) from None

    return advised


def _advice(error: SessionBusyError | TurnNotFoundError, store: str, given: Mapping[str, object]) -> str:
    # Only who made a mistake waits for these to be loaded.
    from .runtimes import Service  # noqa: PLC0415
    from .stores import password_hint, store_flag, use_store  # noqa: PLC0415

    flags, hint = store_flag(store), f" ({password_hint(store)})" if password_hint(store) else ""
    if isinstance(error, TurnNotFoundError):
        return unknown_words(error.turn, store, flags) + hint
    named = given.get("service")
    service = replace(named, agent_queues=None).flags if isinstance(named, Service) else ""
    try:
        driven, elsewhere = use_store(store, partial(_standing, turn=error.turn))
    except TurnwrightError:  # it was deleted since
        return str(error)
    return busy_words(error, flags, service=service, driven=driven, elsewhere=elsewhere) + hint


async def _standing(store: "Store", *, turn: str) -> tuple[bool, bool]:
    from .stores import is_elsewhere  # noqa: PLC0415 (likewise)

    return await store.is_driven(turn), await is_elsewhere(store, turn)


def unknown_words(turn: str, store: str, flags: str) -> str:
    from turnwright.store.address import outlives_process  # noqa: PLC0415 (likewise)

    if not outlives_process(store):
        return f"there is no turn {turn!r}: a store in memory is empty when a command begins: name another --store"
    every = " --all" if ":" in turn else ""
    return f"there is no turn {turn!r} in this store: `turnwright turns{every}{flags}` lists them"


def busy_words(busy: SessionBusyError, flags: str, *, service: str = "", driven: bool, elsewhere: bool) -> str:
    """Say what the session is busy with, and which commands end that: `service` has the flags of one, if any.

    `elsewhere`: another program began the turn, and alone has its model and its tools.
    """
    from .summary import taken_up_by  # noqa: PLC0415 (likewise)

    stop = f"`turnwright abort {busy.turn}{flags}{service}`"
    what = f"session {busy.session!r} is busy with turn {busy.turn}"
    if driven:
        return f"{what}, which is being driven: wait for it, or stop it: {stop}"
    again = taken_up_by(busy.turn, flags + service, elsewhere=elsewhere)
    return f"{what}, which nobody drives: {again} takes it up again, {stop} ends it"
