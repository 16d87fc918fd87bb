"""The base of every fact: its encoding, and its words for pages, logs, events and the command line.

The words are derived from the fields. A kind of fact (`facts.py`) overrides them where it has better ones.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from .inputs import Input, Usage
from .limits import Limits
from .payload import freeze, text_of
from .state import State

if TYPE_CHECKING:
    from pydantic import JsonValue

#: The version of the payloads that this release writes.
PAYLOAD_VERSION: Final = 1

#: The part of a value that may be sent to a browser: all of it (None), or the named fields of an object or of each
#: object in a list.
PublicPart = Mapping[str, "PublicPart"] | None
PublicFields = Mapping[str, PublicPart]
#: The level of a log line, as in `logging`, and its text.
LogLine = tuple[int, str]

DEBUG, INFO, WARNING = 10, 20, 30
#: The fields of a fact that become fields of a log record (`turnwright.logs.FIELDS`).
_LOG_FIELDS: Final = ("call", "cause", "outcome", "reason")
_NO_TOOLS: Final[Mapping[str, str]] = {}


def allow(*names: str, **parts: PublicPart) -> dict[str, PublicPart]:
    """Return an allow-list of fields that are public (`names`), and of fields that are public in part (`parts`)."""
    return dict.fromkeys(names) | parts


#: The usage of a model call without its cost.
TOKENS: Final = allow("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


# The garbage collector need not track these values, because their parts were made before them: no cycle is possible.
class JournalValue(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A value in a journal: a fact, or a part of one."""

    #: The fields that may be sent to a browser, and those that may not. A field in neither is private, and fails a
    #: test.
    public_fields: ClassVar[PublicFields] = {}
    private_fields: ClassVar[frozenset[str]] = frozenset()
    #: The fields that contain dicts or lists.
    json_fields: ClassVar[tuple[str, ...]] = ()

    def freeze(self) -> None:
        """Make the dicts and lists of a value that was read immutable, as the machine's own are."""
        for name in self.json_fields:
            force_setattr(self, name, _freeze(getattr(self, name)))


class LoggedTurn(Protocol):
    """The part of a turn that log lines quote."""

    @property
    def limits(self) -> Limits:
        """The turn's limits."""
        ...

    @property
    def interrupts(self) -> Mapping[str, object]:
        """The open interrupts."""
        ...


class Fact(JournalValue, frozen=True, tag_field="v", tag=PAYLOAD_VERSION):
    """The fields of every fact. `elapsed` is in seconds of driving since the turn began."""

    kind: ClassVar[str]
    #: Whether the command line prints a line for it while a turn runs. It shows steps and calls in other ways.
    noteworthy: ClassVar[bool] = True
    #: The input that the fact follows from, if the fact has all its fields.
    follows_from: ClassVar[type[Input] | None] = None

    elapsed: float
    state: State
    hash: str = ""

    @property
    def title(self) -> str:
        """The kind in words: `turn started`."""
        return self.kind.replace("_", " ")

    def payload(self) -> str:
        """Return the JSON text for the store."""
        return text_of(self)

    def to_json(self) -> "dict[str, JsonValue]":
        """Return the payload as data, without its version. It shares nothing with the fact."""
        fields: dict[str, JsonValue] = json.loads(text_of(self))
        del fields["v"]
        return fields

    def columns(self) -> dict[str, object]:
        """Return the public fields for a table: texts, numbers and flags that differ from their defaults."""
        fields = {name: getattr(self, name) for name in self.public_fields}
        return {name: value for name, value in fields.items() if value and isinstance(value, str | float | int)}

    @property
    def new_usage(self) -> Usage | None:
        """The usage that this fact is the first to report, or None."""
        return getattr(self, "usage", None)

    def summary(self, tools: Mapping[str, str] = _NO_TOOLS) -> str:
        """Return the fact in plain words. `tools` has the tools' names by the ids of the calls.

        Texts of people, models and tools are quoted in full, with their secrets and line breaks.
        """
        return self._words(tools)

    def log_line(self, turn: LoggedTurn) -> LogLine:
        """Return the level and the text of the fact's line in the log. `turn` includes the fact.

        The text contains nothing that a model, a tool or a person wrote.
        """
        return self._logged(turn)

    def _words(self, _: Mapping[str, str], /) -> str:
        return _list_columns(self.columns())

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        safe = {name: value for name, value in self.columns().items() if isinstance(value, StrEnum | float | int)}
        return DEBUG, f"{self.title}: {_list_columns(safe)}" if safe else self.title

    def log_fields(self) -> dict[str, str]:
        """Return the fields of the fact's log record, except the turn, the step and the state."""
        fields = {name: getattr(self, name) for name in _LOG_FIELDS if name in self.__struct_fields__}
        return {name: str(value) for name, value in fields.items() if name == "call" or isinstance(value, StrEnum)}


def _freeze(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_freeze, value))
    if not isinstance(value, JournalValue):
        return freeze(value)
    value.freeze()
    return value


def _list_columns(columns: Mapping[str, object]) -> str:
    """Return the columns in one line: a flag as its name, any other column as its name and value."""
    return ", ".join(name if value is True else f"{name} {value}" for name, value in columns.items())
