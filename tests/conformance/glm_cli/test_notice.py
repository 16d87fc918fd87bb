"""GLM-CLI: at 80 % of the steps a notice says how many are left."""

from typing import TYPE_CHECKING

import pytest

from turnwright.notices import notice_text

if TYPE_CHECKING:
    from tests.conformance.glm_cli.conftest import Play

pytestmark = pytest.mark.anyio


async def test_at_step_20_of_25_a_notice_says_that_5_remain(play: "Play") -> None:
    ran = await play(play.endless())
    (notice,) = await ran.notices()
    assert notice_text(notice, ran.engine.setup.limits) == "Step 20/25 - 5 steps remaining"


@pytest.mark.parametrize(("answers_at", "notices"), [(19, 0), (20, 1), (21, 1), (25, 1)])
async def test_it_comes_with_the_20th_step_and_once(play: "Play", answers_at: int, notices: int) -> None:
    ran = await play(play.endless(answers_at=answers_at))
    assert [(notice.used, notice_text(notice, ran.engine.setup.limits)) for notice in await ran.notices()] == [
        (20, "Step 20/25 - 5 steps remaining")
    ] * notices
