"""GLM-CLI: the notices begin with the first step that is at least 80 % of the steps, whatever their number."""

from typing import TYPE_CHECKING

import pytest

from turnwright.transcript.wording import notice_text

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (4, None),
        (5, "Step 4/5 - 1 step remaining"),
        (6, "Step 5/6 - 1 step remaining"),
        (24, "Step 20/24 - 4 steps remaining"),
        (25, "Step 20/25 - 5 steps remaining"),
        (26, "Step 21/26 - 5 steps remaining"),
        (199, "Step 160/199 - 39 steps remaining"),
        (200, "Step 160/200 - 40 steps remaining"),
        (201, "Step 160/200 - 40 steps remaining"),
    ],
)
async def test_notice_counts_the_cap(play: "Play", steps: int, expected: str | None) -> None:
    """Of 4 steps the fourth is the summary, so that no step with tools is at 80 %."""
    ran = await play(play.endless(), steps=steps, tool_calls=None)
    notices = await ran.notices()
    texts = [notice_text(notice, ran.engine.setup.limits) for notice in notices]
    assert texts[:1] == ([expected] if expected else [])
    assert not texts or texts[-1].endswith(" - 1 step remaining")
