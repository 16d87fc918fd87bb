"""The errors of this package, by their cause.

    TurnwrightError
    ├── ConfigError              the caller: an agent file, a flag, a limit, a tool, a store's address
    │   ├── UnknownOptionError   an unknown keyword argument (also a `TypeError`)
    │   └── CannotRunError       a turn's tools, model, code or dependencies are missing; the turn stays as it is
    ├── SessionBusyError         the caller: the session's live turn must end, pause or be aborted first
    ├── TurnNotFoundError        the caller: the store has no such turn
    ├── SessionNotFoundError     the caller: the store has no turn of this session
    ├── TurnAlreadyEndedError    the caller: the turn has ended
    ├── TurnConflictError        the caller: the turn of this id was started with another request
    ├── NoOutputError            the caller: the turn has no answer, because it was stopped, failed, or continues
    ├── InvalidAnswerError       the caller: no such open interrupt, or an answer that it does not accept
    ├── TurnBusyError            another driver holds the turn
    ├── LeaseLostError           another driver claimed the turn while this one ran
    ├── RuntimeUnavailableError  a runtime's service cannot be reached; the journal has what it was to receive
    ├── StoreError               the store could not read or write; nothing was journaled
    │   ├── TurnExistsError      a turn of this id exists already
    │   ├── UnreadableTurnError  one turn's row or journal is damaged; the other turns are not affected
    │   └── StoreReplacedError   the store's file was deleted or replaced while it was open
    ├── EngineClosedError        the caller: the engine was closed
    ├── UnpairedError            a message list with a call without its result (`turnwright.transcript.pairing`)
    ├── ToolError                a tool (`turnwright.tools`): becomes the result of the call
    └── ModelError               the provider (`turnwright.model`): becomes a fact, never leaves the driver

Each can be pickled and copied, with its text and its fields (`PicklableError`).

How a turn ends is never an exception. It is the outcome and the reason of its result (docs/rules.md#outcomes).
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from types import UnionType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class PicklableError(BaseException):
    """An exception that can be copied and sent to another process: see `turnwright_states.errors.PicklableError`.

    It is written twice, since the help of the command line loads this module, and nothing of the machine.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_error, (type(self), self.args, vars(self))


def _restore_error(kind: type[PicklableError], args: tuple[object, ...], fields: dict[str, object]) -> PicklableError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


class TurnwrightError(PicklableError, Exception):
    """The base of all errors that this package raises. They can be pickled, with their fields."""


class ConfigError(TurnwrightError):
    """An input of the caller is invalid. The message says what, where, and what to write instead."""


class UnknownOptionError(ConfigError, TypeError):
    """An unknown keyword argument of a class or a function. To Python this is a `TypeError`."""


class CannotRunError(ConfigError):
    """A turn cannot be driven here because its tools, model, code or dependencies are missing. It stays as it is.

    `may_pass` is True if a later attempt in the same process may succeed: the function that makes the dependencies
    raised.
    """

    def __init__(self, why: str, *, may_pass: bool = False) -> None:
        super().__init__(why)
        self.may_pass = may_pass


class SessionBusyError(TurnwrightError):
    """The session has a live turn."""

    def __init__(self, session: str, turn: str) -> None:
        super().__init__(
            f"session {session!r} is busy with turn {turn}: wait for it, or abort it; if its process died,"
            " `recover()` resumes it, in a process that has its model and its tools"
        )
        self.session = session
        self.turn = turn


class TurnNotFoundError(TurnwrightError):
    """The store has no such turn."""

    def __init__(self, turn: str) -> None:
        super().__init__(f"there is no turn {turn!r:.300} in this store: `Engine.turns()` lists them")
        self.turn = turn


class SessionNotFoundError(TurnwrightError):
    """The store has no turn of this session."""

    def __init__(self, session: str) -> None:
        super().__init__(f"there is no session {session!r} in this store: `Engine.sessions()` lists them")
        self.session = session


class TurnAlreadyEndedError(TurnwrightError):
    """The turn has ended."""

    def __init__(self, turn: str, outcome: str, reason: str) -> None:
        super().__init__(f"turn {turn} has ended ({outcome}: {reason}): start a new one")
        self.turn = turn
        self.outcome = outcome
        self.reason = reason


class TurnConflictError(TurnwrightError):
    """The turn of this id was started with another request. `field` names the first difference, such as `prompt`."""

    def __init__(self, turn: str, field: str) -> None:
        difference = f"{'other' if field.endswith('s') else 'another'} {field}"
        super().__init__(f"turn {turn} exists with {difference}: use another id, or the same request")
        self.turn = turn
        self.field = field


class NoOutputError(TurnwrightError):
    """The turn has no answer: it was stopped by a limit or a person, it failed, or it has not ended."""

    def __init__(self, turn: str, why: str) -> None:
        super().__init__(f"turn {turn} has no output ({why}): check `output` for None, or use `text`")
        self.turn = turn


class InvalidAnswerError(TurnwrightError):
    """An answer to an interrupt that is not open or does not accept it. The message lists the open interrupts.

    `why` is the message without the interrupt. Of a result, `interrupt` may be a call or its key, and `subject`, which
    begins the message, is then "call". `is_unfit`: the answer itself is wrong, and another one would be accepted.
    `is_refused`: the app does not authorize it.
    """

    def __init__(
        self,
        interrupt: str,
        why: str,
        interrupts: Sequence[str],
        *,
        subject: str = "interrupt",
        is_unfit: bool = False,
        is_refused: bool = False,
    ) -> None:
        is_open = f"open: {', '.join(interrupts)}" if interrupts else "none is open"
        super().__init__(f"{subject} {interrupt!r:.300}: {why} ({is_open})")
        self.interrupt, self.why = interrupt, why
        self.interrupts = tuple(interrupts)
        self.is_unfit, self.is_refused = is_unfit, is_refused


class AlreadySettledError(TurnwrightError):
    """A call has another result already. `key` is the call's; `since` is in seconds since the Unix epoch, if known."""

    def __init__(self, key: str, since: float | None, by: str) -> None:
        try:
            time = "" if since is None else f" since {datetime.fromtimestamp(since, UTC):%Y-%m-%dT%H:%MZ}"
        except (OverflowError, ValueError, OSError):  # not a time of a clock
            time = ""
        super().__init__(f"call {key} has another result{time}{f' (by {by})' if by else ''}")
        self.key = key
        self.since = since
        self.by = by


class TurnBusyError(TurnwrightError):
    """Another living driver holds the turn."""

    def __init__(self, turn: str, owner: str) -> None:
        super().__init__(f"turn {turn} is being driven by {owner}: wait for it, or abort it")
        self.turn = turn
        self.owner = owner


class LeaseLostError(TurnwrightError):
    """Another driver has claimed the turn. This one must stop, and has written nothing since."""

    def __init__(self, turn: str, epoch: int) -> None:
        super().__init__(f"turn {turn} was claimed by another driver (this one had epoch {epoch})")
        self.turn = turn
        self.epoch = epoch


class StoreError(TurnwrightError):
    """The store could not be read or written. Nothing was journaled; the turn can be recovered."""


class TurnExistsError(StoreError):
    """The store has a turn of this id already. Nothing was written. `where` names the store, if it is known."""

    def __init__(self, turn: str, *, where: str = "") -> None:
        super().__init__(f"{f'{where}: ' if where else ''}turn {turn} already exists")
        self.turn = turn


class UnreadableTurnError(StoreError):
    """The row, the journal or the inbox of one turn is damaged. The other turns are not affected.

    `where` names the store, if it is known. `why` says what is damaged. `can_end`: the turn cannot continue, and still
    be shown and aborted.
    """

    def __init__(self, turn: str, why: str, *, where: str = "", can_end: bool = False) -> None:
        remedy = (
            "read it with the release that wrote it; if it is damaged, restore a copy of the store or delete the turn"
        )
        if can_end:
            remedy = f"restore a copy of the store, or end the turn as it is (`turnwright abort {turn}`) or delete it"
        super().__init__(f"{f'{where}: ' if where else ''}turn {turn}: {why}: {remedy}")
        self.turn = turn
        self.why = why
        self.can_end = can_end


class StoreReplacedError(StoreError):
    """A file of the store was deleted or replaced while it was open. Writes to it are lost."""


class EngineClosedError(TurnwrightError):
    """The engine was closed, by `aclose()` or at the end of `async with`. A new engine can use the same store."""

    def __init__(self) -> None:
        super().__init__("this engine is closed: make a new Engine, or call it before aclose() and within `async with`")


class RuntimeUnavailableError(TurnwrightError):
    """The service of a runtime could not be reached. `turn`, if given, is written, and a sweep will submit it.

    Do not start it again: `events` follows it, and `abort` stops it.
    """

    def __init__(self, why: str, turn: str | None = None) -> None:
        super().__init__(why if turn is None else f"turn {turn} is written, and a sweep will submit it: {why}")
        self.turn = turn


def known_options(subject: str, limits: Collection[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function raise `UnknownOptionError`, about `subject`, for an unknown keyword, with a suggestion.

    `limits` are the names that belong into its option `limits`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]

        @wraps(function)
        def check_options(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() - set(names):
                from turnwright_states.suggestions import explain_unknown, find_similar_name  # noqa: PLC0415 (only after a mistake)

                probably = find_similar_name(name, (*names, *limits))
                in_limits = probably is not None and probably not in names
                why = (
                    f"is unknown: did you mean `limits=Limits({probably}=...)`?"
                    if in_limits
                    else explain_unknown(name, names)
                )
                owner = f"{subject} {kwargs['name']}" if "name" in kwargs else subject
                raise UnknownOptionError(f"{owner}: {name} {why}")
            return function(*args, **kwargs)

        return check_options

    return decorate


def need_kind(name: str, value: object, kind: type | UnionType, form: str) -> None:
    """Raise `ConfigError` if an argument is of another kind. `form` says what it must be."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {form}, not {value!r:.80}")


def need_number(name: str, number: object, least: int, most: int | None = None) -> None:
    """Raise `ConfigError` for anything but a whole number from `least` to `most`."""
    if type(number) is not int or number < least or (most is not None and number > most):
        numbers = f", at least {least}" if most is None else f" from {least} to {most}"
        raise ConfigError(f"{name} must be a whole number{numbers}, not {number!r}")


def need_function(name: str, value: object, *takes: str) -> None:
    """Raise `ConfigError` if an argument is neither a function nor None, or if it cannot be called with `takes`.

    Without `takes` its parameters are not checked.
    """
    if value is None:
        return
    if not callable(value):
        raise ConfigError(f"{name} must be a function, not {value!r:.80}")
    if misfit := find_misfit(value, takes) if takes else "":
        raise ConfigError(f"{name} {misfit}")


def find_misfit(function: Callable[..., object], takes: Sequence[str]) -> str:
    """Return why a function cannot be called with these arguments; empty if it can, or if nobody knows."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""  # some functions that are written in C have none
    try:
        signature.bind(*takes)
    except TypeError:
        return f"is called with ({', '.join(takes)}), and takes {signature}"
    return ""


def need_plain_function(name: str, value: object, *takes: str) -> None:
    """Raise `ConfigError` if an argument is neither a function that is not async nor None. See `need_function`."""
    need_function(name, value, *takes)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004 (an object with an async `__call__`)
        raise ConfigError(f"{name} must be a plain function, because nothing awaits it: {value!r:.80} is async")


def need_method(name: str, value: object, method: str, form: str) -> None:
    """Raise `ConfigError` if an argument lacks a method of its protocol. Its value may be secret, and is not shown."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        kind = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise ConfigError(f"{name} must be {form}, not {kind}")


def need_list(name: str, value: object) -> None:
    """Raise `ConfigError` unless several were given.

    A text and a mapping can be iterated too, and one agent, over its fields: it has a name.
    """
    label = getattr(value, "name", getattr(value, "__name__", None))
    if label is not None or isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ConfigError(f"{name} must be a list: write {name}=[{label or '...'}]")


class HookFailedError(TurnwrightError):
    """A hook or a guardrail raised, was late, or returned what it may not: the turn fails, and the message names it."""


class Retry(PicklableError, Exception):  # noqa: N818 (no error: it asks the model to try again)
    """Ask the model to try again: raise it in a tool, an output validator or an `after_model` hook.

    `feedback` is what the model reads. See docs/rules.md#reviews.
    """

    def __init__(self, feedback: str) -> None:
        super().__init__(feedback)
        self.feedback = feedback
