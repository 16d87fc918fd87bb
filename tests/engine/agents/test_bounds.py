"""The limit that would have stopped a turn next."""

import pytest

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel
from turnwright_states import Limits

pytestmark = pytest.mark.anyio


async def test_limit_of_zero_is_never_the_nearest() -> None:
    """Nothing of it can be used; where it stopped the turn, that has been said already."""
    async with Engine(model=ScriptedModel("Hello.", repeat=True)) as engine:
        without_steps = await engine.run(Agent(name="A", steps=0), "hi")
        assert "(0 of 0)" not in without_steps.next_limit
        assert without_steps.next_limit_used < 1
        without_calls = await engine.run(Agent(name="A", steps=4, budget=Limits(tool_calls=0)), "hi")
        assert (without_calls.next_limit, without_calls.next_limit_used) == ("the step limit (0 of 4)", 0.0)
