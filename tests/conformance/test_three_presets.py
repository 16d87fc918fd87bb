"""The three presets side by side: every cell of the tables in `docs/presets.md` is what a turn really does."""

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.message import SentinelPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.transcript.wording import notice_text
from turnwright_states import Limits
from turnwright_states import facts as f
from turnwright_states.limits import PresetName

pytestmark = pytest.mark.anyio

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = (DOCS / "presets.md").read_text(encoding="utf-8")
PRESETS: Final[tuple[PresetName, ...]] = ("boocode", "opencode", "glm-cli")
AGENT: Final = Agent(name="Tidier")
SAME: Final = asks_for(("note", {"n": 1}))
OTHER: Final = asks_for(("note", {"n": 2}))
COUNTED: Final = asks_for(("count", {}))


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool(read_only=True)
async def look() -> str:
    return "seen"


@tool(read_only=False)
async def write() -> str:
    return "written"


def missing() -> Line:
    """Asks for a tool that does not exist, with new arguments each time."""
    step = 0

    def line(request: ModelRequest) -> ModelResponse | str:
        nonlocal step
        step += 1
        return "That was it." if request.tool_choice == "none" else asks_for(("nowhere", {"n": step}))

    return line


def wanting(calls: int, *, answer_at: int = 0) -> Line:
    """Asks for so many different calls, one per step, and then for the same one for ever. Answers without tools."""
    step = 0

    def line(request: ModelRequest) -> ModelResponse | str:
        nonlocal step
        step += 1
        if request.tool_choice == "none" or step == answer_at:
            return "That was it."
        return asks_for(("note", {"n": step if step <= calls else 0}))

    return line


class Ran:
    """A turn under a preset, with changes to it."""

    def __init__(self, preset: PresetName, *script: Line, **changes: object) -> None:
        self.limits = Limits.preset(preset, **changes)
        self.model = ScriptedModel(*script, repeat=True)
        counted = itertools.count()

        @tool
        async def count() -> str:
            return f"{next(counted)} so far"

        self.engine = Engine(model=self.model, tools=[note, count], limits=self.limits)

    async def turn(self) -> TurnResult:
        return await self.engine.run(AGENT, "Tidy utils.py")

    async def outcome(self) -> str:
        turn = await self.turn()
        return f"`paused: {turn.interrupts[0].kind}`" if turn.paused else f"`{turn.outcome}: {turn.reason}`"

    async def calls(self) -> str:
        outcome = await self.outcome()
        choices = [request.tool_choice for request in self.model.requests]
        return f"{choices.count('auto')} + {choices.count('none')}, {outcome}"

    async def figures(self) -> str:
        """The figures that the sentinel begins with, or what the person is asked."""
        turn = await self.turn()
        if turn.paused:
            return turn.interrupts[0].question
        (part,) = (part for part in turn.messages[-1].parts if isinstance(part, SentinelPart))
        return part.text.split(". ")[0]


async def never_stops(preset: PresetName, steps: int) -> str:
    try:
        return await Ran(preset, wanting(1000), steps=steps).calls()
    except ValueError:
        return "a mistake"


async def answers(preset: PresetName, step: int) -> str:
    return await Ran(preset, wanting(1000, answer_at=step), steps=5).calls()


async def steps_unset(preset: PresetName) -> str:
    ran = Ran(preset, wanting(1000), tool_calls=None)
    await ran.turn()
    assert len(ran.model.requests) == ran.limits.allowance + 1
    return str(ran.limits.cap)


async def notice(preset: PresetName) -> str:
    ran = Ran(preset, wanting(1000), steps=25)
    facts = await ran.engine.store.facts((await ran.turn()).id)
    texts = [notice_text(fact, ran.limits) for _, fact in facts if isinstance(fact, f.Notice) and fact.limit == "steps"]
    return texts[0] if len(texts) == 1 else f"{texts[0]}, then at each step to {texts[-1]}"


async def tool_calls(preset: PresetName) -> str:
    """The budgets that the turns of three agents begin with."""
    engine = Engine(model=ScriptedModel("Tidy.", repeat=True), tools=[look, write, note], limits=Limits.preset(preset))
    budgets: list[str] = []
    for name in ("look", "write", "note"):
        turn = await engine.run(Agent(name="Tidier", tools=(name,)), "Tidy utils.py")
        (_, started), *_ = await engine.store.facts(turn.id)
        assert isinstance(started, f.TurnStarted)
        budgets.append(str(started.limits.tool_calls))
    return ", ".join(budgets)


Cell = Callable[[PresetName], Awaitable[str]]

SIDE_BY_SIDE: Final[dict[str, Cell]] = {
    "steps, where nobody sets them": steps_unset,
    "`steps: 5`, model never stops": lambda preset: never_stops(preset, 5),
    "`steps: 2`, model never stops": lambda preset: never_stops(preset, 2),
    "`steps: 1`, model never stops": lambda preset: never_stops(preset, 1),
    "`steps: 0`": lambda preset: never_stops(preset, 0),
    "an answer in call 5 of `steps: 5`": lambda preset: answers(preset, 5),
    "the notice of `steps: 25`": notice,
    "three identical rounds": lambda preset: Ran(preset, SAME, SAME, SAME, "Done.").outcome(),
    "three equal calls with other results": lambda preset: Ran(preset, COUNTED, COUNTED, COUNTED, "Done.").outcome(),
    "a cycle of two rounds, three times": lambda preset: Ran(preset, *[SAME, OTHER] * 3, "Done.").outcome(),
    "`steps: 9`, a missing tool each time": lambda preset: Ran(preset, missing(), steps=9).calls(),
}


#: What all presets do alike, which the page does not list.
ALIKE: Final[dict[str, tuple[Cell, str]]] = {
    "an answer in call 4 of `steps: 5`": (lambda preset: answers(preset, 4), "4 + 0, `finished: answered`"),
    "the sentinel of `steps: 5`": (
        lambda preset: Ran(preset, wanting(1000), steps=5).figures(),
        "Stopped at the step limit (5 of 5)",
    ),
    "two identical rounds": (lambda preset: Ran(preset, SAME, SAME, "Done.").outcome(), "`finished: answered`"),
    "three identical calls in one round": (
        lambda preset: Ran(preset, asks_for(*[("note", {"n": 1})] * 3), "Done.").outcome(),
        "`finished: answered`",
    ),
    "tool calls: a reader, a writer, another": (tool_calls, "50, 10, 50"),
}


async def taken(preset: PresetName) -> str:
    return str((await Ran(preset, wanting(30)).turn()).steps)


async def sent(preset: PresetName) -> str:
    ran = Ran(preset, wanting(30))
    await ran.turn()
    return str(len(ran.model.requests))


#: Thirty different calls, and then the same one again and again: the outcome, the steps and the model calls.
ONE_SCRIPT: Final[dict[PresetName, tuple[str, str, str]]] = {
    "boocode": ("`doom_loop: doom_loop`", "33", "34"),
    "opencode": ("`paused: doom_loop`", "33", "33"),
    "glm-cli": ("`cap_hit: step_cap`", "25", "25"),
}


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by their first cell."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert tuple(rows[0][1:]) == PRESETS
    return {row[0]: row[1:] for row in rows[2:]}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("row", SIDE_BY_SIDE)
async def test_presets_behave_as_in_the_comparison_table(row: str, preset: PresetName) -> None:
    assert await SIDE_BY_SIDE[row](preset) == table("Side by side")[row][PRESETS.index(preset)]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("row", ALIKE)
async def test_common_behavior_is_equal_in_every_preset(row: str, preset: PresetName) -> None:
    cell, expected = ALIKE[row]
    assert await cell(preset) == expected


@pytest.mark.parametrize("preset", PRESETS)
async def test_same_script_has_three_outcomes(preset: PresetName) -> None:
    ran = await Ran(preset, wanting(30)).outcome(), await taken(preset), await sent(preset)
    assert ran == ONE_SCRIPT[preset]


def test_every_row_of_the_tables_is_tested() -> None:
    assert table("Side by side").keys() == SIDE_BY_SIDE.keys()


async def test_stop_answer_ends_the_opencode_turn_like_boocode() -> None:
    ran = Ran("opencode", wanting(30))
    paused = await ran.turn()
    turn = await ran.engine.resume(paused.id, {"doom-1": "stop"})
    assert f"`{turn.outcome}: {turn.reason}`" == await Ran("boocode", wanting(30)).outcome()


def test_explicit_settings_win_over_a_preset() -> None:
    assert Limits.preset("glm-cli", steps=5).cap == 5
    assert Limits.preset("opencode", doom_response="stop").doom_response == "stop"
    assert Agent(name="Architect", steps=20).limits_for(Limits.preset("glm-cli")).cap == 20
