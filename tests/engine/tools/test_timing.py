"""The time of a call, and what of it does not count. The event loop skips it."""

import anyio
import pytest

from turnwright.tools.timing import clock_stopped, limit_block
from turnwright_testing import clock


@pytest.mark.parametrize(("before", "waiting", "after", "ends"), [(4, 100, 4, 108), (4, 100, 7, 110), (11, 0, 0, 10)])
def test_uncounted_time_is_added_to_the_limit(before: float, waiting: float, after: float, ends: float) -> None:
    """Of ten seconds."""

    async def scene() -> None:
        with limit_block(10):
            await anyio.sleep(before)
            with clock_stopped():
                await anyio.sleep(waiting)
            await anyio.sleep(after)
        assert anyio.current_time() == pytest.approx(ends)

    clock.run(scene)


def test_time_outside_a_bounded_call_is_not_counted() -> None:
    async def scene() -> None:
        with clock_stopped():
            await anyio.sleep(1)
        with limit_block(None), clock_stopped():
            await anyio.sleep(1)
        assert anyio.current_time() == pytest.approx(2)

    clock.run(scene)


def test_stopped_clock_does_not_stop_a_cancellation() -> None:
    async def scene() -> None:
        with anyio.move_on_after(5), limit_block(10), clock_stopped():
            await anyio.sleep_forever()
        assert anyio.current_time() == pytest.approx(5)

    clock.run(scene)
