"""Error messages for a missing turn and a busy session, with the commands that help."""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Final, cast

from turnwright.errors import (
    ConfigError,
    InvalidAnswerError,
    SessionBusyError,
    SessionNotFoundError,
    TurnNotFoundError,
    TurnwrightError,
)

if TYPE_CHECKING:
    from turnwright.store import Store

#: The options that name a service.
_SERVICE: Final = ("address", "namespace", "queue")
#: The advice of the library about an answer without a name.
_GIVE_BY: Final = "give by="


def with_advice(command: Callable[..., object]) -> Callable[..., object]:
    """Return the command with error messages for users of the command line. The library's own are for its callers.

    It raises `ConfigError` for `TurnNotFoundError`, `SessionNotFoundError` and `SessionBusyError`, if it has an option
    `store`, and for an answer that needs a name.
    """

    @wraps(command)
    def run_with_advice(**options: object) -> object:
        try:
            return command(**options)
        except (SessionBusyError, SessionNotFoundError, TurnNotFoundError) as error:
            store = options.get("store")
            if not isinstance(store, str):
                raise
            raise ConfigError(_advice(error, store, options)) from None
        except InvalidAnswerError as error:
            if _GIVE_BY not in str(error):
                raise
            raise ConfigError(str(error).replace(_GIVE_BY, "give --by NAME")) from None

    return run_with_advice


def _advice(
    error: SessionBusyError | SessionNotFoundError | TurnNotFoundError, store: str, options: Mapping[str, object]
) -> str:
    # Loaded after a mistake only.
    from .runtimes import Service  # noqa: PLC0415
    from .stores import password_hint, store_flag, use_store  # noqa: PLC0415

    flags, hint = store_flag(store), f" ({password_hint(store)})" if password_hint(store) else ""
    if isinstance(error, TurnNotFoundError):
        return unknown_words(error.turn, store, flags) + hint
    if isinstance(error, SessionNotFoundError):
        return f"there is no session {error.session!r} in this store: `turnwright sessions{flags}` lists them{hint}"
    address, namespace, queue = (cast("str | None", options.get(name)) for name in _SERVICE)
    service = Service(address, namespace, queue).flags
    try:
        is_driven, elsewhere = use_store(store, partial(_driver_of, turn=error.turn))
    except TurnwrightError:  # it has been deleted
        return str(error)
    return busy_words(error, flags, service=service, driven=is_driven, elsewhere=elsewhere) + hint


async def _driver_of(store: "Store", *, turn: str) -> tuple[bool, bool]:
    from .stores import is_elsewhere  # noqa: PLC0415 (as above)

    return await store.is_driven(turn), await is_elsewhere(store, turn)


def unknown_words(turn: str, store: str, flags: str) -> str:
    from turnwright.store.address import outlives_process  # noqa: PLC0415 (as above)

    if not outlives_process(store):
        return f"there is no turn {turn!r}: a store in memory is empty when a command starts: name another --store"
    every = " --all" if ":" in turn else ""
    return f"there is no turn {turn!r} in this store: `turnwright turns{every}{flags}` lists them"


def busy_words(
    busy: SessionBusyError, flags: str, *, service: str = "", driven: bool, elsewhere: bool, again: str = ""
) -> str:
    """Return a message that names the turn of the session, and the commands that resume or end it.

    `service` has the flags of the service, if any. `elsewhere`: another program began the turn, and only that program
    has its model and tools. `again` replaces the command that resumes it.
    """
    from .summary import resumed_by  # noqa: PLC0415 (as above)

    stop = f"`turnwright abort {busy.turn}{flags}{service}`"
    cause = f"session {busy.session!r} is busy with turn {busy.turn}"
    if driven:
        return f"{cause}, which is running: wait for it, or stop it with {stop}"
    again = again or resumed_by(busy.turn, flags + service, elsewhere=elsewhere)
    return f"{cause}, whose driver is gone: {again} resumes it, {stop} ends it"
