"""The limits of a turn: one frozen object, on by default. `chart.py` says where each of them ends a turn."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from math import inf
from typing import Final, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

#: The most steps that any turn may take: the highest `ceiling`, and its default.
MAX_STEPS: Final = 200
MAX_DEPTH: Final = 3
MAX_CALLS_PER_STEP: Final = 32
#: The most calls of one reply. A step runs far fewer, but each refused call needs a message, and thousands of messages
#: would be too expensive.
MAX_CALLS_PER_REPLY: Final = 512
#: The most answers that one call may wait for at once, those of its sub-agents included, and the most people who must
#: approve one call.
MAX_ANSWERS: Final = 64
MAX_APPROVERS: Final = 16
#: The seconds of a call of a tool, if nothing sets others.
TOOL_TIMEOUT: Final = 300.0
#: The most money and the most seconds.
LARGEST: Final = 1e15
#: Counts are below this, so that every store and reader can hold them. Only None means "no limit".
COUNTS_BELOW: Final = 2**31 - 1

Concluding = Literal["after", "within", "never"]
DoomCompare = Literal["results", "calls"]
DoomResponse = Literal["stop", "ask"]
StallResponse = Literal["hint", "loop"]
StepNotices = Literal["once", "each"]
PresetName = Literal["default", "coding", "boocode", "opencode", "glm-cli"]
ToolClass = Literal["read_only", "writing", "default"]

#: The plans of the other presets know neither stalls nor idle steps.
_NO_STALLS: Final[dict[str, object]] = {"stall_errors": None, "stall_rounds": None, "idle_steps": None}
_PRESETS: Final[dict[PresetName, dict[str, object]]] = {
    "default": {},
    # Of 116 recorded runs that solved a coding task, the largest had 188 calls (docs/evidence.md).
    "coding": {"tool_calls": 200},
    "boocode": {
        "concluding": "after",
        "doom_threshold": 3,
        "doom_compare": "calls",
        "doom_response": "stop",
        **_NO_STALLS,
        "tool_calls": {"read_only": 50, "writing": 10, "default": 50},
    },
    "opencode": {"concluding": "within", "doom_compare": "calls", "doom_response": "ask", **_NO_STALLS},
    "glm-cli": {"concluding": "within", "steps": 25, "step_notices": "each", "doom_compare": "calls", **_NO_STALLS},
}

_NO_STEPS: Final = "steps must be at least 1 under the preset opencode, not 0"


class _Checked(BaseModel, frozen=True, extra="forbid", defer_build=True):
    """Limits that refuse an unknown name, and suggest the name that was probably meant."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: object) -> object:
        if not isinstance(data, dict) or data.keys() <= cls.model_fields.keys():
            return data
        from .suggestions import explain_unknown  # noqa: PLC0415 (needed only after a mistake)

        raise ValidationError.from_exception_data(
            cls.__name__,
            [
                InitErrorDetails(
                    type=PydanticCustomError(
                        "extra_forbidden", "{why}", {"why": explain_unknown(name, cls.model_fields)}
                    ),
                    loc=(name,),
                    input=value,
                )
                for name, value in data.items()
                if name not in cls.model_fields
            ],
        )


class ToolCallLimits(_Checked, frozen=True):
    """The most tool calls of a turn, by the class of its agent's tools. With `None` there is no limit; 0 is zero."""

    read_only: int | None = 50
    """For an agent whose tools only read, or that has no tools."""
    writing: int | None = 10
    """For an agent with a tool that writes. A stop does not undo its mistakes, so the limit is lower."""
    default: int | None = 50
    """For every other agent: no tool is known to write, and some may."""

    @field_validator("*", mode="before")
    @classmethod
    def _count(cls, value: object) -> object:
        return _whole(value, least=0)

    def of(self, tools: ToolClass) -> int | None:
        """Return the limit of an agent whose tools are of this class."""
        limit: int | None = getattr(self, tools)
        return limit


class Limits(_Checked, frozen=True):
    """The limits of a turn. `None` switches a limit off; `0` is the number zero (docs/rules.md#bounds).

    Raises pydantic's `ValidationError` (a `ValueError`) for a value outside its range; the message names the field and
    the value.
    """

    steps: int | None = None
    """The steps that the agent asks for; at least 0. None means `ceiling`."""
    ceiling: int = MAX_STEPS
    """The engine's bound on `steps`, 0 to 200."""
    concluding: Concluding = "after"
    """Whether the concluding call comes after the last step of the cap (`after`), is that step (`within`), or is
    replaced by a fixed summary (`never`)."""
    tool_calls: int | ToolCallLimits | None = Field(default_factory=ToolCallLimits)
    """Tool calls that the whole turn may run; at least 0. One number, or one for each class of tools."""
    max_calls_per_step: int = MAX_CALLS_PER_STEP
    """Tool calls that one step may run, 1 to 32; the rest of a larger batch is refused."""
    tokens: int | None = None
    """Input and output tokens of the whole turn; at least 1. One reply and the conclusion may exceed it."""
    cost: float | None = None
    """Money of the whole turn, in the prices' currency; above 0. One reply and the conclusion may exceed it."""
    seconds: float | None = None
    """Seconds of driving for the whole turn, above 0. Paused time and the concluding call are not counted."""
    tool_timeout: float | None = TOOL_TIMEOUT
    """Seconds of one call of a tool that sets no `timeout` of its own; above 0. So much time have `deps`, `synthesize`
    and `history_processor` too."""
    doom_threshold: int | None = 3
    """Identical rounds in a row that make a doom loop; at least 2."""
    doom_compare: DoomCompare = "results"
    """Whether rounds are identical if their calls and their results are, or if their calls are."""
    doom_response: DoomResponse = "stop"
    """Whether a doom loop ends the turn or asks a person first."""
    nudges: int = 0
    """Hints to the model before the response to a doom loop; each costs a step."""
    stall_errors: int | None = 4
    """Rounds in a row with the same error alone that make a stall, whatever the arguments; at least 2."""
    stall_rounds: int | None = 6
    """Rounds in a row with nothing new, neither a call nor a result, that make a stall; at least 2."""
    stall_response: StallResponse = "hint"
    """Whether the model gets a hint in each step of a stall, or the stall is a doom loop."""
    idle_steps: int | None = 5
    """Steps in a row whose calls all do not run that end the turn; at least 1. A person's answer or message restarts
    the count."""
    step_notices: StepNotices = "once"
    """Whether the notice about steps comes once, at 80 % of the cap, or again at each later step but the last."""
    max_retries: int = 3
    """Further attempts at one model call, one batch or the concluding call; at least 0."""
    output_retries: int = 2
    """Replies of the whole turn that may be refused: an invalid answer, or a hook's feedback; at least 0."""
    max_compactions: int = 0
    """Compactions of the conversation in the whole turn; at least 0. `Compact` sets it."""
    max_pauses: int = 100
    """Times that a turn may pause for a person; at least 0."""
    conclude_seconds: float = 30.0
    """Seconds that each attempt at the concluding call may take; above 0."""
    conclude_tokens: int = 1024
    """Tokens that the concluding call may write; at least 1."""

    @field_validator(
        "steps", "ceiling", "nudges", "max_retries", "output_retries", "max_compactions", "max_pauses", mode="before"
    )
    @classmethod
    def _count(cls, value: object) -> object:
        return _whole(value, least=0)

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _count_by_class(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return ToolCallLimits.model_validate(value)
        return value if isinstance(value, ToolCallLimits) else _whole(value, least=0)

    @field_validator("tokens", "conclude_tokens", "max_calls_per_step", "idle_steps", mode="before")
    @classmethod
    def _positive_count(cls, value: object) -> object:
        return _whole(value, least=1)

    @field_validator("doom_threshold", "stall_errors", "stall_rounds", mode="before")
    @classmethod
    def _threshold(cls, value: object) -> object:
        return _whole(value, least=2)

    @field_validator("cost", "seconds", "tool_timeout", "conclude_seconds", mode="before")
    @classmethod
    def _positive(cls, value: object) -> object:
        if value is None:
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST
        if not number:
            raise ValueError(f"must be a number above 0, not {_format_value(value)}")
        return value

    @model_validator(mode="after")
    def _ceilings(self) -> Self:
        if self.ceiling > MAX_STEPS:
            raise ValueError(f"ceiling must be at most {MAX_STEPS}, not {self.ceiling}")
        if self.max_calls_per_step > MAX_CALLS_PER_STEP:
            raise ValueError(f"max_calls_per_step must be at most {MAX_CALLS_PER_STEP}, not {self.max_calls_per_step}")
        return self

    @classmethod
    def preset(cls, name: PresetName, **changes: object) -> "Limits":
        """Return the limits of `default`, `coding`, `boocode`, `opencode` or `glm-cli`, with `changes` by name.

        Raises `ValueError` for another name, and for a value that the preset does not allow: opencode refuses a step
        limit of 0.
        """
        if name not in _PRESETS:
            raise ValueError(f"preset must be one of {', '.join(_PRESETS)}, not {name!r}")
        limits = cls.model_validate(_PRESETS[name] | changes)
        if name != "opencode":
            return limits
        if limits.cap < 1:
            raise ValueError(_NO_STEPS)
        return _OpencodeLimits.model_validate(limits.model_dump(exclude_unset=True))

    def for_tools(self, tools: ToolClass) -> "Limits":
        """Return the same limits with one number of tool calls: that of an agent with tools of this class."""
        if not isinstance(self.tool_calls, ToolCallLimits):
            return self
        return self.model_copy(update={"tool_calls": self.tool_calls.of(tools)})

    @property
    def call_limit(self) -> int | None:
        """`tool_calls` as one number. By class it is `default`, because the machine knows no tools."""
        calls = self.tool_calls
        return calls.default if isinstance(calls, ToolCallLimits) else calls

    @property
    def cap(self) -> int:
        """The most steps that the turn may take: `min(steps, ceiling)`, or `ceiling` if `steps` is None."""
        return self.ceiling if self.steps is None else min(self.steps, self.ceiling)

    @property
    def allowance(self) -> int:
        """The steps of the cap that may call tools: one fewer than `cap` if the concluding call is a step."""
        return max(self.cap - 1, 0) if self.concluding == "within" else self.cap

    @property
    def asks_for_conclusion(self) -> bool:
        """Whether a turn that stops asks its model for a last text, in a call of its own."""
        return self.concluding != "never"

    @property
    def watches_stalls(self) -> bool:
        """Whether rounds can make a stall."""
        return self.stall_errors is not None or self.stall_rounds is not None

    @property
    def results_decide(self) -> bool:
        """Whether the results of calls can make a doom loop."""
        compares_results = self.doom_compare == "results" and self.doom_threshold is not None
        return compares_results or (self.stall_response == "loop" and self.watches_stalls)

    @property
    def shortest_loop(self) -> int | None:
        """The fewest rounds that can make a doom loop; None if none can."""
        rounds = [self.doom_threshold]
        if self.stall_response == "loop":  # the first of the rounds that bring nothing new follows one that does
            rounds += [self.stall_errors, None if self.stall_rounds is None else self.stall_rounds + 1]
        return min((count for count in rounds if count is not None), default=None)

    @property
    def model_calls(self) -> int:
        """The most model calls of a turn, with retries, compactions and the concluding call.

        See docs/rules.md#model-calls.
        """
        return (self.allowance + 1) * (1 + self.max_retries) + 2 * self.max_compactions


class _OpencodeLimits(Limits, frozen=True):
    """Limits that refuse 0 steps, also when an agent changes them. A journal does not keep this difference."""

    @model_validator(mode="after")
    def _some_steps(self) -> Self:
        if self.cap < 1:
            raise ValueError(_NO_STEPS)
        return self


#: Thresholds out of reach. Each has the type of the number that it is compared with, because that is faster.
_NEVER: Final = (10**30, 10**30, 10**30, inf, inf)


class LimitThresholds(NamedTuple):
    """Four times each limit that is set and has had no notice; out of reach otherwise.

    A limit is near once five times the usage is as much. This means 80 % without the fraction, which binary numbers
    cannot represent.
    """

    steps: float
    tool_calls: float
    tokens: float
    cost: float
    seconds: float

    @classmethod
    def of(cls, limits: Limits, noticed_limits: Collection[str], steps: int = 0) -> "LimitThresholds":
        """Return the thresholds of these limits without those named in `noticed_limits`. `steps` have begun.

        A notice about steps comes only while another step remains, and once more at each step if `step_notices` is
        `each`.
        """
        # `steps` counts only once steps have had a notice.
        return cls._of(limits, noticed_limits, steps) if noticed_limits else _first_thresholds(limits)

    @classmethod
    def _of(cls, limits: Limits, noticed_limits: Collection[str], steps: int) -> "LimitThresholds":
        cap, budgets = limits.cap, (limits.call_limit, limits.tokens, limits.cost, limits.seconds)
        next_step = -(-4 * cap // 5)
        if "steps" in noticed_limits:
            next_step = max(next_step, steps + 1) if limits.step_notices == "each" else cap
        marks = zip(cls._fields[1:], budgets, _NEVER[1:], strict=True)
        thresholds = (4 * limit if limit and name not in noticed_limits else never for name, limit, never in marks)
        return cls(5 * next_step if next_step < cap else _NEVER[0], *thresholds)


@lru_cache(maxsize=64)
def _first_thresholds(limits: Limits) -> LimitThresholds:
    return LimitThresholds._of(limits, (), 0)  # noqa: SLF001 (turns of equal limits share them)


def _whole(value: object, *, least: int) -> object:
    if value is None:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"must be a whole number of at least {least}, not {_format_value(value)}")
    if value >= COUNTS_BELOW:
        raise ValueError(f"must be below {COUNTS_BELOW}, not {_format_value(value)}: use None for no limit")
    return value


def _format_value(value: object) -> str:
    # Python refuses to print a number of thousands of digits.
    return "a number of many digits" if isinstance(value, int) and abs(value) >= 10**18 else repr(value)
