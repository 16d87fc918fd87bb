"""One recorded turn as a value: all of its inputs from outside, so that `playback` can play it again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from turnwright.agent import Agent
from turnwright.journal.answers import Answers
from turnwright.message import FilePart, Message
from turnwright.model.protocol import ModelError
from turnwright.tools import Ask, OnCrash
from turnwright_states import (
    AttemptFailedInput,
    CallStatus,
    CompactedInput,
    ExpireInput,
    FailInput,
    Limits,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    TrippedInput,
)

from .flaky import Broke, Line

Decided = (
    RequestPreparedInput
    | ReviewedInput
    | OversizedInput
    | CompactedInput
    | AttemptFailedInput
    | TrippedInput
    | ExpireInput
    | FailInput
)
"""A decision of hooks, guardrails, the output type or the compaction, or what ended them."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The end of one call: its result, as the model received it.

    Two are equal when text, status, data and files are.

    The tool that is played returns the text of an `ok`, and raises that of an `error`. Every other status is the
    engine's own, or a person's: it must come out by itself.
    """

    text: str
    status: CallStatus = CallStatus.OK
    #: Where the error arose: in the tool, just before it could begin, or when the reply arrived. `bug`: it was none of
    #: the tool's, and ended the turn. `hook`: a hook rejected the call.
    at: Literal["run", "start", "reply", "bug", "hook"] = field(default="run", compare=False)
    #: The attempt that came back. Those before it never did.
    attempt: int = field(default=1, compare=False)
    structured: JsonValue = None
    files: tuple[FilePart, ...] = ()
    #: Whether the tool raised `Retry`.
    retry: bool = field(default=False, compare=False)
    #: Whether it was the turn's answer.
    final: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class At:
    """An event from outside when the turn's journal had so many facts, notices not counted.

    `crash`: its process died. `abort` and `superseded`: somebody stopped it. `deadline`: its time was up. `delay`: its
    process was held up until the time was over. `left`: nobody drove it any further. `decision`: the one in
    `Recording.decisions` ended the turn while its calls ran.

    The calls of `ready` had not begun: until then they do not begin.
    """

    facts: int
    what: Literal["crash", "abort", "superseded", "deadline", "delay", "left", "decision"]
    ready: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One turn, to be played again."""

    agent: Agent
    """The agent. Its limits and its tools are ignored: `limits` and `tools` apply."""
    prompt: str
    limits: Limits = field(default_factory=Limits)
    """The merged limits of the agent and the engine."""
    files: tuple[FilePart, ...] = ()
    """The files with the prompt."""
    message_history: tuple[Message, ...] = ()
    """The messages before the turn."""
    model: tuple[Line, ...] = ()
    """The model's replies, one line per call, the concluding ones at the end."""
    tools: tuple[str, ...] = ()
    """The names of the tools that were offered, as far as the journal knows them."""
    ignore_in_loop_detection: tuple[str, ...] = ()
    """The tools that the doom-loop detector ignores."""
    on_crash: Mapping[str, OnCrash] = field(default_factory=dict)
    """The crash policy by tool, for calls that had started when the process died. Without an entry it is unknown."""
    loop_keys: Mapping[str, str] = field(default_factory=dict)
    """The loop key of a call by its id, if that was not its arguments."""
    asks: Mapping[str, tuple[Ask, ...]] = field(default_factory=dict)
    """The questions of a call to a person, by its id."""
    asked_in: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The attempt in the middle of which each of these was asked, 0 for one before the call ran. A call that is not
    here asked them all before it ran."""
    results: Mapping[str, Recorded] = field(default_factory=dict)
    """The result of each call, by its id. A call without an entry never returned."""
    synthesis: tuple[str | ModelError | Broke | None, ...] | None = None
    """The syntheses of each batch, attempt by attempt. None: there was no synthesis."""
    output: Literal["tool", "prompt"] | None = None
    """The way in which a typed answer was asked for: as a call, or in text. None: the answer was not a typed one."""
    reviewed: tuple[int, ...] = ()
    """The lines of `model`, counted from 0, that were reviewed before anything of them ran."""
    decisions: Mapping[int, Decided] = field(default_factory=dict)
    """The decisions beside the model and the tools, by the number of facts before each, notices not counted."""
    then: tuple[Answers | At, ...] = ()
    """The events from outside, in order: the answers at each pause, and each stop or failure."""

    @property
    def needs_decisions(self) -> bool:
        """Whether anything but the model, the tools and people decided in the turn."""
        has_rejection = any(result.at == "hook" for result in self.results.values())
        return bool(self.decisions or self.reviewed or has_rejection)
