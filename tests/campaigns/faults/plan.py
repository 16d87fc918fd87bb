"""One trial of the campaign as a value, from a seed and a number: its turn's work, and the deaths of its processes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Literal, get_args

from turnwright.journal.answers import ANSWERABLE, Answer, settled
from turnwright_states import DECISIONS, Decision, InterruptKind, Limits
from turnwright_states.facts import KINDS
from turnwright_testing.faults.store import KillAt, Write

#: One call: the tool, and the number that it is given.
Planned = tuple[str, int]
#: Tools of `worker_process.py` by how often they are drawn.
TOOLS: Final = {"put": 5, "send": 4, "farm": 3, "pay": 2, "erase": 1, "sign": 1, "ask_user_input": 1, "fail": 1} | {
    "Helper": 4
}
#: Tools of the sub-agent: most of its calls wait for a person or a result.
HELPER_TOOLS: Final = ("put", "farm", "pay", "erase", "sign", "ask_user_input")
#: Kinds of facts at whose append a process dies, by how often they are drawn. Those that most turns have only once, or
#: not at all, would be drawn in vain; the first two are written as a turn is made.
_KINDS: Final = dict.fromkeys((kind for kind in KINDS if kind not in ("turn_started", "step_started")), 2) | {
    "turn_ended": 1,
    "synthesized": 1,
}
_WRITES: Final[tuple[Write, ...]] = ("create", "claim", "release", "post", "post")
#: What a trial's agent may have, besides tools: functions of the app, a typed answer, a conversation that is compacted.
Feature = Literal["before_model", "after_model", "before_tool", "after_tool", "guardrails", "typed", "compaction"]
FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)


@dataclass(frozen=True, slots=True)
class KillIn:
    """A death in the `number`-th execution of a tool, or the `number`-th model call, of the process; from 1."""

    call: Literal["tool", "model"]
    number: int


@dataclass(frozen=True, slots=True)
class KillAfter:
    """A kill from outside so many seconds after the process began, or after it had claimed the turn (`is_driving`)."""

    seconds: float
    is_driving: bool


Kill = KillAt | KillIn | KillAfter


@dataclass(frozen=True, slots=True)
class PlanWord:
    """An abort, a message or a result: before the turn's `drive`-th process begins, or while that runs (`live`)."""

    kind: Literal["abort", "steer", "settle"]
    drive: int
    live: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """One trial.

    `steps` are the calls of each step, of which `max_parallel_tools` run at once; `failures` are the attempts that fail
    before each step's reply, and before the answer. `kills` are those of the trial's processes, in turn. `synthesis` is
    the step whose batch is synthesized. `features` are what its agent has besides tools, and `trips` is the number of
    the step or the call at which its guardrails trip; 0 is none. `answers` is how many pauses are answered before the
    turn is left to rest; None answers all.
    """

    seed: int
    number: int
    steps: tuple[tuple[Planned, ...], ...]
    limits: Limits = field(default_factory=Limits)
    parallel: int = 8
    failures: tuple[int, ...] = ()
    synthesis: int | None = None
    features: frozenset[Feature] = frozenset()
    trips: int = 0
    answers: int | None = None
    words: tuple[PlanWord, ...] = ()
    kills: tuple[Kill, ...] = ()

    @classmethod
    def of(cls, seed: int, number: int) -> "Plan":
        """The trial with this number of the campaign with this seed; always the same one."""
        draw = Random(f"{seed}/{number}")  # noqa: S311 (a trial must be the same again)
        steps = tuple(_batch(draw, step) for step in range(1, draw.randint(2, 6) + 1))
        if _one_in(draw, 7):
            steps = (steps[0],) * len(steps)  # a doom loop
        limits = _limits(draw)
        plan = cls(
            seed=seed,
            number=number,
            limits=limits,
            steps=steps,
            parallel=draw.choice((1, 2, 8)),
            failures=tuple(draw.choices((0, 1, 2), (12, 2, 1), k=len(steps) + 1)),
            synthesis=draw.randint(1, len(steps)) if _one_in(draw, 12) else None,
            answers=draw.randint(0, 1) if _one_in(draw, 10) else None,
            words=_words(draw),
            kills=tuple(_kill(draw) for _ in range(draw.choices((1, 2, 3, 4, 6), (1, 3, 4, 3, 2))[0])),
        )
        if _one_in(draw, 2):
            trips = draw.randint(1, 6) if _one_in(draw, 3) else 0
            plan = replace(plan, features=_features(draw, limits), trips=trips)
        if _one_in(draw, 12):  # with a hook, the first step is not written with the start of the turn
            first = KillAt("create", after=True)
            plan = replace(plan, features=plan.features | {"before_model"}, kills=(first, *plan.kills))
        return plan

    def helper_steps(self, number: int) -> tuple[tuple[Planned, ...], ...]:
        """Return the calls of each step of the sub-agent that is given this number."""
        draw = Random(f"{self.seed}/{self.number}/helper/{number}")  # noqa: S311 (a trial must be the same again)
        return tuple(
            tuple((draw.choice(HELPER_TOOLS), 10 * step + place) for place in range(draw.randint(1, 3)))
            for step in range(1, draw.randint(1, 2) + 1)
        )

    def chosen(self, about: object, below: int) -> int:
        """Return a number below `below` for a hook's decision about this: always the same one."""
        return Random(f"{self.seed}/{self.number}/{about}").randrange(below)  # noqa: S311 (it must be the same again)

    def answer(self, interrupt: str, kind: InterruptKind, pause: int, *, is_other: bool = False) -> Answer:
        """Return a person's answer to this interrupt; with `is_other`, another person's, which may differ.

        Most waits get their result. A wait of a call that runs again is answered anew at its next `pause`.
        """
        draw = Random(f"{self.seed}/{self.number}/{interrupt}/{pause}/{is_other}")  # noqa: S311 (likewise)
        words = f"words-{draw.randint(1, 99)}"
        if Decision.SETTLE in DECISIONS[kind] and not _one_in(draw, 4):
            return settled(words)
        return Answer(draw.choice(ANSWERABLE[kind]), words)


def _batch(draw: Random, step: int) -> tuple[Planned, ...]:
    names = draw.choices(list(TOOLS), list(TOOLS.values()), k=draw.choices((1, 2, 3, 4), (4, 3, 2, 1))[0])
    return tuple((name, 10 * step + place) for place, name in enumerate(names))


def _limits(draw: Random) -> Limits:
    tight = draw.choices(("", "steps", "tool_calls", "tokens", "seconds", "none"), (12, 3, 3, 3, 2, 1))[0]
    return Limits(
        steps={"steps": draw.randint(1, 3), "none": 0}.get(tight),
        tool_calls=draw.randint(1, 5) if tight == "tool_calls" else 50,
        tokens=draw.randint(30, 120) if tight == "tokens" else None,
        seconds=draw.uniform(0.02, 0.2) if tight == "seconds" else None,
        concluding=draw.choice(("after", "within", "never")),
        doom_response=draw.choice(("stop", "ask")),
        nudges=draw.randint(0, 1),
    )


def _features(draw: Random, limits: Limits) -> frozenset[Feature]:
    """Some features. A typed answer needs a step."""
    features = frozenset(draw.sample(FEATURES, k=draw.randint(1, len(FEATURES))))
    return features if limits.allowance else features - {"typed"}


def _words(draw: Random) -> tuple[PlanWord, ...]:
    drawn: list[PlanWord] = []
    if _one_in(draw, 12):
        drawn.append(PlanWord("abort", draw.randint(1, 3), live=_one_in(draw, 2)))
    if _one_in(draw, 6):
        drawn.append(PlanWord("steer", draw.randint(1, 3), live=_one_in(draw, 2)))
    drawn += (PlanWord("settle", drive, live=not _one_in(draw, 3)) for drive in range(1, 4) if _one_in(draw, 2))
    return tuple(drawn)


def _one_in(draw: Random, number: int) -> bool:
    return draw.randrange(number) == 0


def _after(draw: Random) -> Kill:
    is_driving = not _one_in(draw, 5)
    return KillAfter(draw.uniform(0.0, 0.05 if is_driving else 0.08), is_driving=is_driving)


#: Each way to die, by how often it is drawn.
_KILLS: Final[tuple[tuple[int, Callable[[Random], Kill]], ...]] = (
    (8, lambda draw: KillAt(number=draw.randint(1, 6), after=_one_in(draw, 2))),
    (4, lambda draw: KillAt(fact=draw.choices(list(_KINDS), list(_KINDS.values()))[0], after=_one_in(draw, 2))),
    (2, lambda draw: KillAt(seq=draw.randint(3, 20), after=_one_in(draw, 2))),
    (1, lambda draw: KillAt(draw.choice(_WRITES), after=_one_in(draw, 2))),
    (4, lambda draw: KillIn("tool", draw.randint(1, 3))),
    (2, lambda draw: KillIn("model", draw.randint(1, 3))),
    (6, _after),
)


def _kill(draw: Random) -> Kill:
    (make,) = draw.choices([make for _, make in _KILLS], [weight for weight, _ in _KILLS])
    return make(draw)
