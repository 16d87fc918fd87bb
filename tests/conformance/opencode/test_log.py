"""opencode: the step count and the limit are logged."""

import logging
from typing import TYPE_CHECKING

import pytest

from turnwright import Agent

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio


async def test_each_step_and_the_limit_are_logged(play: "Play", caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="turnwright"):
        ran = await play(play.endless(), Agent(name="build", steps=3))
    records = [record for record in caplog.records if "tep " in record.getMessage()]
    assert [(record.levelname, record.getMessage().split(": ", 1)) for record in records] == [
        ("INFO", [f"turn {ran.turn.id}", message])
        for message in ("step 1 of at most 3", "step 2 of at most 3", "Stopped at the step limit (3 of 3)")
    ]


async def test_unwatched_turn_logs_nothing(play: "Play", caplog: pytest.LogCaptureFixture) -> None:
    await play(play.endless(), Agent(name="build", steps=3))
    assert not caplog.records
