"""One turn as a value: its limits, the model's replies, the tools' behavior, the people's answers, and the faults."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from turnwright.agent import Compact
from turnwright.context import JsonObject
from turnwright.model.model_settings import ModelSettings
from turnwright_states import Limits

from .behavior import Behavior
from .flaky import Line
from .hook_script import GuardrailScript, HookScript
from .python_source import code


@dataclass(frozen=True, slots=True)
class Answers:
    """A person answers the open interrupts: of the decisions that each takes, the one of this number.

    The number counts from 0, and begins anew behind the last decision. Only the `first` so many interrupts are
    answered, in the order of their calls; None answers all, 0 looks and says nothing. An approved call runs
    with the `arguments`, if its tool accepts them.
    """

    decision: int = 0
    text: str = "yes"
    first: int | None = None
    arguments: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Leaves:
    """A person never answers: the turn is aborted, or a new message of the session supersedes it."""

    then: Literal["abort", "message"] = "abort"


Person = Answers | Leaves


@dataclass(frozen=True, slots=True)
class Crash:
    """The process dies at this append of the scenario's journal, counted from 1: before or `after` it is written.

    `heals`: only that one append fails, as when a disk is full for a moment, and nobody dies.
    """

    at: int
    after: bool = False
    heals: bool = False


class _Printer(Protocol):
    def text(self, obj: str) -> None: ...


@dataclass(frozen=True, slots=True, repr=False)
class Scenario:
    """One turn, or two if a new message supersedes the first. `play` drives it.

    The empty scenario is a turn whose model answers "Done." at once. It is shown as the source that makes it.
    """

    script: tuple[Line, ...] = ("Done.",)
    """The model's replies, one line per call; the last line for ever."""
    limits: Limits = field(default_factory=Limits)
    """The engine's limits, over which the agent lays its own."""
    behaviours: tuple[Behavior, ...] = ()
    """The behavior of each call, in the order of the calls; those after the last return "ok"."""
    people: tuple[Person, ...] = ()
    """The answers at each pause, in order; after the last, each interrupt gets its first decision."""
    synthesis: tuple[str | None, ...] | None = None
    """The synthesis of each batch, then always None. None is no synthesis at all."""
    crash: Crash | None = None
    """The place where the process dies; another one resumes the turn."""
    abort_at: int | None = None
    """The append after which the turn is aborted, counted from 1."""
    hooks: HookScript = field(default_factory=HookScript)
    """The decisions of hooks that are added to the agent, after its own."""
    guardrails: tuple[GuardrailScript, ...] = ()
    """Guardrails that are added to the agent, after its own."""
    compaction: Compact | None = None
    """The compaction of the agent, instead of its own."""
    settings: ModelSettings | None = None
    """The model settings of the run."""
    metadata: JsonObject = field(default_factory=dict)
    """The metadata of the run, for templates and the function that makes dependencies."""

    def __repr__(self) -> str:
        return code(self)

    def _repr_pretty_(self, printer: _Printer, _cycle: bool) -> None:
        """Shorten the text for Hypothesis and IPython, which would show every field."""
        printer.text(code(self))
