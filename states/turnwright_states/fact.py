"""The base of every fact: how it is encoded, and the words that pages, logs, events and the command line show of it.

The words are derived from the fields. A kind of fact (`facts.py`) says only what it can say better.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from msgspec import Struct

from .inputs import Input, Usage
from .limits import Limits
from .payload import text_of
from .state import State

if TYPE_CHECKING:
    from pydantic import JsonValue

#: The version of the payloads that this release writes.
PAYLOAD_VERSION: Final = 1

#: The part of a value that may be sent to a browser: all of it (None), or the named fields of an object, and of each
#: object in a list.
PublicPart = Mapping[str, "PublicPart"] | None
PublicFields = Mapping[str, PublicPart]
#: The level of a log line, as in `logging`, and its text.
LogLine = tuple[int, str]

DEBUG, INFO, WARNING = 10, 20, 30
#: The fields that a log record has of its own (`turnwright.logs.FIELDS`), where a fact has them.
_LOG_FIELDS: Final = ("call", "cause", "outcome", "reason")
_NO_TOOLS: Final[Mapping[str, str]] = {}


def allow(*names: str, **parts: PublicPart) -> dict[str, PublicPart]:
    """Return an allow-list: fields that are public as a whole (`names`), and fields of which a part is (`parts`)."""
    return dict.fromkeys(names) | parts


#: Of the usage of a model call, all but its cost.
TOKENS: Final = allow("input_tokens", "output_tokens")


# The garbage collector need not look at what a journal keeps: all that is in it was made before, so no cycle goes
# through it.
class JournalValue(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A value in a journal: a fact, or a part of one."""

    #: The fields that may be sent to a browser, and those that may not. A field in neither is private, and a test
    #: fails until somebody has decided on it.
    public_fields: ClassVar[PublicFields] = {}
    private_fields: ClassVar[frozenset[str]] = frozenset()


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
    """What every fact carries. `elapsed` is in seconds of driving since the turn began."""

    kind: ClassVar[str]
    #: Whether the command line prints a line for it while a turn runs: it shows steps and calls in ways of their own.
    noteworthy: ClassVar[bool] = True
    #: The input that the fact follows from, where each field of that is a field of the fact.
    follows_from: ClassVar[type[Input] | None] = None

    elapsed: float
    state: State
    hash: str = ""

    @property
    def title(self) -> str:
        """The kind in words: `turn started`."""
        return self.kind.replace("_", " ")

    def payload(self) -> str:
        """The fact as the JSON text that a store keeps."""
        return text_of(self)

    def freeze(self) -> None:
        """Make the dicts and lists in a fact that was read unchangeable, as they are in one that the machine makes."""

    def to_json(self) -> "dict[str, JsonValue]":
        """The same as data, without its version. Nothing in it is shared with the fact."""
        fields: dict[str, JsonValue] = json.loads(text_of(self))
        del fields["v"]
        return fields

    def columns(self) -> dict[str, object]:
        """Return the public fields that a table can show: texts, numbers and flags that are not at their defaults."""
        fields = {name: getattr(self, name) for name in self.public_fields}
        return {name: value for name, value in fields.items() if value and isinstance(value, str | float | int)}

    @property
    def new_usage(self) -> Usage | None:
        """The usage that this fact is the first to tell of; None where it tells of none."""
        return getattr(self, "usage", None)

    def summary(self, tools: Mapping[str, str] = _NO_TOOLS) -> str:
        """Return the fact in plain words for people. `tools` has the tools' names by the ids of the calls.

        A text that somebody wrote is quoted whole, with its secrets and its line breaks.
        """
        return self._words(tools)

    def log_line(self, turn: LoggedTurn) -> LogLine:
        """Return the level and the text of the fact's line in the log. `turn` stands after the fact.

        It holds no text that a model, a tool or a person wrote.
        """
        return self._logged(turn)

    def _words(self, _: Mapping[str, str], /) -> str:
        return _listed(self.columns())

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        safe = {name: value for name, value in self.columns().items() if isinstance(value, StrEnum | float | int)}
        return DEBUG, f"{self.title}: {_listed(safe)}" if safe else self.title

    def log_fields(self) -> dict[str, str]:
        """Return the fields that the fact's log record has beside the turn, the step and the state."""
        fields = {name: getattr(self, name) for name in _LOG_FIELDS if name in self.__struct_fields__}
        return {name: str(value) for name, value in fields.items() if name == "call" or isinstance(value, StrEnum)}


def _listed(columns: Mapping[str, object]) -> str:
    """The columns in a line: the name of a flag, and the name and the value of everything else."""
    return ", ".join(name if value is True else f"{name} {value}" for name, value in columns.items())
