"""One timer for the deadlines of an event loop."""

import asyncio
import math
from typing import Any

from tests.engine.model.jumping import run

from turnwright._base.deadlines import Deadlines, deadlines_of


class Alarm:
    """Notes when it expires, and then has the next of its deadlines."""

    def __init__(self, *deadlines: float) -> None:
        self.deadline, *self.later = deadlines
        self.expiry_times: list[float] = []

    def expire(self) -> None:
        """See `Expiring`."""
        self.expiry_times.append(asyncio.get_running_loop().time())
        self.deadline = self.later.pop(0) if self.later else math.inf


def expire_alarms(seconds: float, *alarms: Alarm, forgotten: Alarm | None = None) -> list[list[float]]:
    """Return when each alarm has expired after so many seconds, from the start; one of them is forgotten at once."""

    async def wait() -> list[list[float]]:
        loop = asyncio.get_running_loop()
        start, deadlines = loop.time(), deadlines_of(loop)
        for alarm in alarms:
            alarm.deadline += start
            alarm.later = [deadline + start for deadline in alarm.later]
            deadlines.watch(alarm)
        if forgotten is not None:
            deadlines.forget(forgotten)
        await asyncio.sleep(seconds)
        return [[round(moment - start, 3) for moment in alarm.expiry_times] for alarm in alarms]

    return run("asyncio", wait)


def test_each_item_expires_at_its_deadline_in_any_order() -> None:
    assert expire_alarms(9, Alarm(5), Alarm(2), Alarm(8), Alarm(10)) == [[5], [2], [8], []]


def test_item_expires_again_at_its_next_deadline() -> None:
    assert expire_alarms(9, Alarm(1, 4, 6), Alarm(5)) == [[1, 4, 6], [5]]


def test_forgotten_item_does_not_expire() -> None:
    alarm = Alarm(2)
    assert expire_alarms(9, alarm, Alarm(3), forgotten=alarm) == [[], [3]]


def test_item_without_a_deadline_does_not_expire() -> None:
    assert expire_alarms(9, Alarm(math.inf)) == [[]]


def test_deadline_that_moved_on_expires_at_the_new_time() -> None:
    async def move_on() -> list[float]:
        loop = asyncio.get_running_loop()
        start, alarm = loop.time(), Alarm(loop.time() + 2)
        deadlines_of(loop).watch(alarm)
        alarm.deadline = start + 7
        await asyncio.sleep(9)
        return [round(moment - start, 3) for moment in alarm.expiry_times]

    assert run("asyncio", move_on) == [7]


class TimerCounter(asyncio.SelectorEventLoop):
    """Counts its timers."""

    timers = 0

    def call_at(self, *args: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]  # noqa: ANN401
        self.timers += 1
        return super().call_at(*args, **options)


def test_later_deadlines_make_no_timer() -> None:
    """Nothing is sorted into the loop's timers for work that ends in time."""
    loop = TimerCounter()

    async def watch() -> None:
        deadlines = deadlines_of(loop)
        for seconds in range(300, 400):
            alarm = Alarm(loop.time() + seconds)
            deadlines.watch(alarm)
            deadlines.forget(alarm)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(watch())
        assert loop.timers == 1


def test_loop_keeps_its_deadlines_while_something_is_watched() -> None:
    async def look_up_twice() -> tuple[Deadlines, Deadlines]:
        loop = asyncio.get_running_loop()
        deadlines_of(loop).watch(Alarm(loop.time() + 5))
        return deadlines_of(loop), deadlines_of(loop)

    first, second = run("asyncio", look_up_twice)
    assert first is second
    assert run("asyncio", look_up_twice)[0] is not first
