"""The time of a call, and what of it does not count. The event loop skips it."""

import anyio
import pytest

from turnwright.tools.timing import clock_stopped, limited
from turnwright_testing import clock


@pytest.mark.parametrize(("before", "waiting", "after", "ends"), [(4, 100, 4, 108), (4, 100, 7, 110), (11, 0, 0, 10)])
def test_what_does_not_count_is_had_on_top(before: float, waiting: float, after: float, ends: float) -> None:
    """Of ten seconds."""

    async def scene() -> None:
        with limited(10):
            await anyio.sleep(before)
            with clock_stopped():
                await anyio.sleep(waiting)
            await anyio.sleep(after)
        assert anyio.current_time() == pytest.approx(ends)

    clock.run(scene)


def test_outside_of_a_call_and_in_one_without_bound_nothing_is_counted() -> None:
    async def scene() -> None:
        with clock_stopped():
            await anyio.sleep(1)
        with limited(None), clock_stopped():
            await anyio.sleep(1)
        assert anyio.current_time() == pytest.approx(2)

    clock.run(scene)


def test_a_clock_that_stands_still_does_not_stop_a_cancellation() -> None:
    async def scene() -> None:
        with anyio.move_on_after(5), limited(10), clock_stopped():
            await anyio.sleep_forever()
        assert anyio.current_time() == pytest.approx(5)

    clock.run(scene)
