"""What a turn may use: one frozen object, on by default."""

from collections.abc import Collection, Mapping
from math import inf
from typing import Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

MAX_STEPS: Final = 200
MAX_DEPTH: Final = 3
MAX_CALLS_PER_STEP: Final = 32
#: The most calls of one reply. A step runs far fewer, but each call that it refuses is answered by a message of its
#: own: thousands of them would cost more than a turn is worth.
MAX_CALLS_PER_REPLY: Final = 512
#: The most money and the most seconds; what is above is no number that anybody means.
LARGEST: Final = 1e15
#: Counts are below this, so that whatever stores or reads them can hold them. Only None means "no limit".
COUNTS_BELOW: Final = 2**31 - 1

Concluding = Literal["after", "within"]
DoomResponse = Literal["stop", "ask"]
StepNotices = Literal["once", "each"]
PresetName = Literal["default", "boocode", "opencode", "glm-cli"]
ToolClass = Literal["read_only", "writing", "default"]

_PRESETS: Final[dict[PresetName, dict[str, object]]] = {
    "default": {},
    "boocode": {
        "concluding": "after",
        "doom_threshold": 3,
        "doom_response": "stop",
        "tool_calls": {"read_only": 50, "writing": 10, "default": 50},
    },
    "opencode": {"concluding": "within", "doom_response": "ask"},
    "glm-cli": {"concluding": "within", "steps": 25, "step_notices": "each"},
}

_NO_STEPS: Final = "steps must be at least 1 under the preset opencode, not 0"


class _Checked(BaseModel):
    """Limits under names that are all known. A mistake names the field that was probably meant."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: object) -> object:
        if not isinstance(data, dict) or data.keys() <= cls.model_fields.keys():
            return data
        from .meant import unknown  # noqa: PLC0415 (only for who made a mistake)

        raise ValidationError.from_exception_data(
            cls.__name__,
            [
                InitErrorDetails(
                    type=PydanticCustomError("extra_forbidden", "{why}", {"why": unknown(name, cls.model_fields)}),
                    loc=(name,),
                    input=value,
                )
                for name, value in data.items()
                if name not in cls.model_fields
            ],
        )


class ToolCallLimits(_Checked):
    """Tool calls that a turn may run, by what its agent's tools do. `None` is no limit; 0 is the number zero."""

    read_only: int | None = 50
    """For an agent all of whose tools only read, or that has none."""
    writing: int | None = 10
    """For an agent with a tool that writes: what it does wrong is not undone by stopping it later."""
    default: int | None = 50
    """For every other agent: none of its tools is known to write, and of some it is not known what they do."""

    @field_validator("*", mode="before")
    @classmethod
    def _count(cls, value: object) -> object:
        return _whole(value, least=0)

    def of(self, tools: ToolClass) -> int | None:
        """The limit of an agent whose tools are of this class."""
        limit: int | None = getattr(self, tools)
        return limit


class Limits(_Checked):
    """What a turn may use. `None` switches a limit off; `0` is the number zero.

    Raises pydantic's `ValidationError` (a `ValueError`) for a value outside its range; the message names the
    field and the value. Source: DESIGN 1 and 4.
    """

    steps: int | None = None
    """Steps that a turn may take; at least 0. None means `ceiling`."""
    ceiling: int = MAX_STEPS
    """The ceiling of `steps`: an engine may lower it, nobody can raise it above 200."""
    concluding: Concluding = "after"
    """Whether the concluding call comes after the cap (`after`) or is the cap-th call (`within`)."""
    tool_calls: int | ToolCallLimits | None = Field(default_factory=ToolCallLimits)
    """Tool calls that the whole turn may run; at least 0. One number, or one by what the agent's tools do."""
    max_calls_per_step: int = MAX_CALLS_PER_STEP
    """Tool calls that one step may run, 1 to 32; the rest of a larger batch is refused."""
    tokens: int | None = None
    """Input and output tokens of the whole turn; at least 1. One reply and the conclusion may overshoot it."""
    cost: float | None = None
    """Money of the whole turn, in the prices' currency; above 0. One reply and the conclusion may overshoot it."""
    seconds: float | None = None
    """Seconds of driving for the whole turn, above 0. Paused time and the concluding call are not counted."""
    doom_threshold: int | None = 3
    """Identical rounds in a row that make a doom loop; at least 2."""
    doom_response: DoomResponse = "stop"
    """Whether a doom loop ends the turn or asks a person first."""
    nudges: int = 0
    """Hints to the model before the response to a doom loop; each costs a step."""
    step_notices: StepNotices = "once"
    """Whether a notice of the steps comes once, at 80 % of the cap, or at each step from there to the last but one."""
    max_retries: int = 3
    """Further attempts at one model call, one batch or the concluding call; at least 0."""
    max_pauses: int = 100
    """Times that a turn may pause for a person; at least 0."""
    conclude_seconds: float = 30.0
    """Seconds that each attempt at the concluding call may take; above 0."""
    conclude_tokens: int = 1024
    """Tokens that the concluding call may write; at least 1."""

    @field_validator("steps", "ceiling", "nudges", "max_retries", "max_pauses", mode="before")
    @classmethod
    def _count(cls, value: object) -> object:
        return _whole(value, least=0)

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _count_by_class(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return ToolCallLimits.model_validate(value)
        return value if isinstance(value, ToolCallLimits) else _whole(value, least=0)

    @field_validator("tokens", "conclude_tokens", "max_calls_per_step", mode="before")
    @classmethod
    def _positive_count(cls, value: object) -> object:
        return _whole(value, least=1)

    @field_validator("doom_threshold", mode="before")
    @classmethod
    def _threshold(cls, value: object) -> object:
        return _whole(value, least=2)

    @field_validator("cost", "seconds", "conclude_seconds", mode="before")
    @classmethod
    def _positive(cls, value: object) -> object:
        if value is None:
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST
        if not number:
            raise ValueError(f"must be a number above 0, not {_shown(value)}")
        return value

    @model_validator(mode="after")
    def _ceilings(self) -> Self:
        if self.ceiling > MAX_STEPS:
            raise ValueError(f"ceiling must be at most {MAX_STEPS}, not {self.ceiling}: MAX_STEPS is fixed")
        if self.max_calls_per_step > MAX_CALLS_PER_STEP:
            raise ValueError(f"max_calls_per_step must be at most {MAX_CALLS_PER_STEP}, not {self.max_calls_per_step}")
        return self

    @classmethod
    def preset(cls, name: PresetName, **changes: object) -> "Limits":
        """The limits of `default` or of one of three systems (`boocode`, `opencode`, `glm-cli`), with changes by name.

        Raises `ValueError` for another name, and for a value that the preset does not allow: opencode has no
        step limit of 0.
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
        """The same limits with one number of tool calls: that of an agent whose tools are of this class."""
        if not isinstance(self.tool_calls, ToolCallLimits):
            return self
        return self.model_copy(update={"tool_calls": self.tool_calls.of(tools)})

    @property
    def call_limit(self) -> int | None:
        """`tool_calls` as one number: by class it is that of `default`, since the machine knows no tools."""
        calls = self.tool_calls
        return calls.default if isinstance(calls, ToolCallLimits) else calls

    @property
    def cap(self) -> int:
        """`min(steps, ceiling)`, where None means `ceiling`."""
        return self.ceiling if self.steps is None else min(self.steps, self.ceiling)

    @property
    def allowance(self) -> int:
        """The steps that may call tools: `cap`, or one fewer when the concluding call counts as a step."""
        return self.cap if self.concluding == "after" else max(self.cap - 1, 0)

    @property
    def model_calls(self) -> int:
        """The most model calls that a turn can make, retries and the concluding call included (rule 1)."""
        return (self.allowance + 1) * (1 + self.max_retries)


class _OpencodeLimits(Limits):
    """The preset's: no steps are a mistake, also of whatever is laid over it. No journal keeps the difference."""

    @model_validator(mode="after")
    def _some_steps(self) -> Self:
        if self.cap < 1:
            raise ValueError(_NO_STEPS)
        return self


#: Thresholds out of reach, each of the kind of number that it is compared with, which is quicker.
_NEVER: Final = (10**30, 10**30, 10**30, inf, inf)


class LimitThresholds(NamedTuple):
    """Four times each limit that is set and was not noticed yet; out of reach where there is none.

    A limit is near once five times what is used is as much. Four fifths without fractions: 0.8 is no binary number.
    """

    steps: float
    tool_calls: float
    tokens: float
    cost: float
    seconds: float

    @classmethod
    def of(cls, limits: Limits, noticed: Collection[str], steps: int = 0) -> "LimitThresholds":
        """Return the thresholds of these limits, but for those whose names are in `noticed`. `steps` have begun.

        Steps are noticed while at least one more remains, and again at each of them where the limits say so.
        """
        cap, budgets = limits.cap, (limits.call_limit, limits.tokens, limits.cost, limits.seconds)
        due = -(-4 * cap // 5)
        if "steps" in noticed:
            due = max(due, steps + 1) if limits.step_notices == "each" else cap
        marks = zip(cls._fields[1:], budgets, _NEVER[1:], strict=True)
        rest = (4 * one if one and name not in noticed else never for name, one, never in marks)
        return cls(5 * due if due < cap else _NEVER[0], *rest)


def _whole(value: object, *, least: int) -> object:
    if value is None:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"must be a whole number of at least {least}, not {_shown(value)}")
    if value >= COUNTS_BELOW:
        raise ValueError(f"must be below {COUNTS_BELOW}, not {_shown(value)}: use None for no limit")
    return value


def _shown(value: object) -> str:
    # A number of thousands of digits cannot even be printed.
    return "a number of many digits" if isinstance(value, int) and abs(value) >= 10**18 else repr(value)
