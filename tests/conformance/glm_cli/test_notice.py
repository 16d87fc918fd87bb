"""GLM-CLI: at 80 % of the steps a notice says how many are left."""

from typing import TYPE_CHECKING

import pytest

from turnwright.transcript.wording import notice_text

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio


async def test_steps_from_20_of_25_name_the_remaining_steps(play: "Play") -> None:
    """While `step < max`: the 25th is the summary, and nobody reads that 0 steps remain."""
    ran = await play(play.endless())
    assert [notice_text(notice, ran.engine.setup.limits) for notice in await ran.notices()] == [
        "Step 20/25 - 5 steps remaining",
        "Step 21/25 - 4 steps remaining",
        "Step 22/25 - 3 steps remaining",
        "Step 23/25 - 2 steps remaining",
        "Step 24/25 - 1 step remaining",
    ]


@pytest.mark.parametrize(("answers_at", "notices"), [(19, 0), (20, 1), (21, 2), (25, 5)])
async def test_notices_begin_with_the_20th_step(play: "Play", answers_at: int, notices: int) -> None:
    ran = await play(play.endless(answers_at=answers_at))
    assert [notice.used for notice in await ran.notices()] == [*range(20, 20 + notices)]
