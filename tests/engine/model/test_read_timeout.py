"""The end of a read that takes too long: the same on every event loop."""

import asyncio

import anyio
import pytest
from tests.engine.model.jumping import LOOPS, Loop, run

from turnwright.model.read_timeout import AsyncioReadTimeout, ReadTimedOutError, ReadTimeout, read_timeout


async def waited(seconds: float, *, at_most: float) -> bool:
    """Read for so many seconds with a new alarm: whether it came."""
    return await read(read_timeout(), seconds, at_most=at_most)


async def read(bell: ReadTimeout, seconds: float, *, at_most: float) -> bool:
    """Read for so many seconds, at most for so many: whether it came."""
    start = bell.now()
    try:
        with bell.until(start + at_most):
            await anyio.sleep(seconds)
    except ReadTimedOutError:
        assert bell.now() - start == pytest.approx(at_most)
        return False
    assert bell.now() - start == pytest.approx(seconds)
    return True


def test_asyncio_has_a_special_alarm_and_trio_the_plain_alarm() -> None:
    async def made() -> ReadTimeout:
        return read_timeout()

    assert type(run("asyncio", made)) is AsyncioReadTimeout
    assert type(run("trio", made)) is ReadTimeout


@LOOPS
class TestAlarm:
    def test_each_read_has_an_independent_timeout(self, loop: Loop) -> None:
        async def reads() -> list[bool]:
            bell = read_timeout()
            times = [(1, 5), (8, 10), (4, 3), (1, 300), (59, 60), (61, 60), (1, 2), (3, 2), (299, 300), (301, 300)]
            return [await read(bell, seconds, at_most=most) for seconds, most in times]

        assert run(loop, reads) == [True, True, False, True, True, False, True, False, True, False]

    def test_read_without_a_wait_is_in_time(self, loop: Loop) -> None:
        async def at_once() -> str:
            bell = read_timeout()
            with bell.until(bell.now()):
                return "came"

        assert run(loop, at_once) == "came"

    def test_zero_timeout_is_over_at_once(self, loop: Loop) -> None:
        async def reads() -> tuple[bool, bool]:
            return await waited(1, at_most=0), await waited(1, at_most=1)

        assert run(loop, reads)[0] is False

    def test_time_between_two_reads_is_not_counted(self, loop: Loop) -> None:
        async def reads() -> list[bool]:
            bell = read_timeout()
            results = [await read(bell, 1, at_most=5)]
            await anyio.sleep(1000)
            results.append(await read(bell, 4, at_most=5))
            await anyio.sleep(3)
            return [*results, await read(bell, 6, at_most=5)]

        assert run(loop, reads) == [True, True, False]

    def test_a_read_without_a_bound_is_not_ended(self, loop: Loop) -> None:
        async def reads() -> bool:
            return await waited(1e6, at_most=float("inf"))

        assert run(loop, reads)

    def test_disabled_alarm_does_not_ring(self, loop: Loop) -> None:
        async def off() -> None:
            bell = read_timeout()
            assert await read(bell, 1, at_most=5)
            bell.off()
            await anyio.sleep(10)

        run(loop, off)

    @pytest.mark.parametrize("after", [1, 5, 5.000001])
    def test_outside_cancellation_is_not_mistaken_for_a_timeout(self, loop: Loop, after: float) -> None:
        """The outer scope ends too, in any order of the two, and when both come at once."""

        async def outer() -> tuple[bool, float]:
            start = anyio.current_time()
            with anyio.move_on_after(after) as scope:
                await waited(100, at_most=5)
                await anyio.sleep(100)
            return scope.cancelled_caught, anyio.current_time() - start

        caught, seconds = run(loop, outer)
        assert caught
        assert seconds == pytest.approx(after)

    def test_error_of_the_read_is_raised(self, loop: Loop) -> None:
        async def broken() -> None:
            bell = read_timeout()
            with bell.until(bell.now() + 5):
                await anyio.sleep(1)
                raise OSError("broken")

        with pytest.raises(OSError, match="broken"):
            run(loop, broken)

    def test_read_ending_on_cancellation_still_times_out(self, loop: Loop) -> None:
        """A library that closes the connection before it gives the cancellation on, which may take a moment."""

        async def closing() -> None:
            bell = read_timeout()
            with bell.until(bell.now() + 5):
                try:
                    await anyio.sleep(100)
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(1)

        with pytest.raises(ReadTimedOutError):
            run(loop, closing)


@pytest.mark.parametrize("seconds", [1, 9])
def test_alarm_works_across_tasks(seconds: float) -> None:
    """`asyncio.wait_for` asked a generator for each of its items in a task of its own until Python 3.12."""

    async def reads() -> list[bool]:
        bell = read_timeout()
        return [await asyncio.create_task(read(bell, duration, at_most=5)) for duration in (1, seconds, 2)]

    assert run("asyncio", reads) == [True, seconds < 5, True]


@pytest.mark.parametrize("after", [4, 5])
def test_task_cancelled_elsewhere_stays_cancelled_at_a_timeout(after: float) -> None:
    async def outer() -> bool:
        task = asyncio.create_task(waited(100, at_most=5))
        asyncio.get_running_loop().call_later(after, task.cancel)
        await asyncio.wait([task])
        return task.cancelled()

    assert run("asyncio", outer)
