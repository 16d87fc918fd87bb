"""Limits on the concurrent calls and the starts of a tool, over all of its callers."""

import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.errors import ConfigError
from turnwright.tools import Rate, tool
from turnwright.tools.rate_limiter import RateLimiter, Slot
from turnwright_testing import clock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("calls", [0, -1, 1.0, True, None, "2"])
@pytest.mark.parametrize("per", [1, 0.5])
def test_a_rate_of_no_whole_number_of_calls_is_refused(calls: int, per: float) -> None:
    with pytest.raises(ConfigError, match="rate: calls must be a whole number, at least 1"):
        Rate(calls, per)


@pytest.mark.parametrize("per", [0, -1, float("nan"), float("inf"), True, None, "1"])
def test_a_rate_in_no_time_is_refused(per: float) -> None:
    with pytest.raises(ConfigError, match="rate: per must be a number of seconds above 0"):
        Rate(1, per)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "2"])
def test_concurrency_below_1_is_refused(concurrency: int) -> None:
    with pytest.raises(ConfigError, match=r"tool act: concurrency must be a whole number, at least 1"):

        @tool(concurrency=concurrency)
        async def act() -> None: ...


def test_a_tool_with_a_rate_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tool act: rate must be a Rate\(calls=..., per=...\), not \(1, 2\)"):

        @tool(rate=(1, 2))  # type: ignore[call-overload, untyped-decorator]
        async def act() -> None: ...


def test_tool_exposes_the_set_limits() -> None:
    @tool(sequential=True, concurrency=2, rate=Rate(3, 60))
    async def act() -> None: ...

    @tool
    async def plain() -> None: ...

    assert (act.sequential, act.concurrency, act.rate) == (True, 2, Rate(3, 60))
    assert (plain.sequential, plain.concurrency, plain.rate, plain.limiter) == (False, None, None, None)


def skipping(scene: Callable[[], Awaitable[None]]) -> None:
    """Play a scene in an event loop that skips all waiting; nothing in it takes longer than a minute."""

    async def bounded() -> None:
        with anyio.fail_after(3600):
            await scene()

    clock.run(bounded)


@asynccontextmanager
async def place_of(pace: RateLimiter) -> AsyncIterator[Slot]:
    place = await pace.wait()
    try:
        yield place
    finally:
        place.release()


async def use(pace: RateLimiter, starts: list[float], seconds: float = 0.0) -> None:
    """One call of a tool: it takes so long."""
    async with place_of(pace) as place:
        place.start()
        starts.append(anyio.current_time())
        await anyio.sleep(seconds)


@given(st.integers(1, 4), st.sampled_from([0.1, 1.0, 7.3]), st.lists(st.floats(0, 20), max_size=12))
def test_no_stretch_of_time_sees_more_starts_than_the_rate(calls: int, per: float, arrivals: Sequence[float]) -> None:
    starts: list[float] = []

    async def scene() -> None:
        pace = RateLimiter(None, Rate(calls, per))

        async def arrive(after: float) -> None:
            await anyio.sleep(after)
            await use(pace, starts)

        async with anyio.create_task_group() as group:
            for after in arrivals:
                group.start_soon(arrive, after)

    skipping(scene)
    assert len(starts) == len(arrivals)
    for first, beyond in zip(starts, starts[calls:], strict=False):
        assert beyond - first >= per - 1e-9
    if len(starts) <= calls:
        assert sorted(starts) == pytest.approx(sorted(arrivals)), "nobody waited for nothing"


@given(st.integers(1, 3), st.lists(st.floats(0.1, 5), max_size=10))
def test_concurrent_calls_stay_within_the_limit(concurrency: int, seconds: Sequence[float]) -> None:
    running, most = 0, 0

    async def scene() -> None:
        pace = RateLimiter(concurrency, None)

        async def work(long: float) -> None:
            nonlocal running, most
            async with place_of(pace):
                running += 1
                most = max(most, running)
                await anyio.sleep(long)
                running -= 1

        async with anyio.create_task_group() as group:
            for long in seconds:
                group.start_soon(work, long)

    skipping(scene)
    assert most == min(concurrency, len(seconds))


def test_waiting_calls_are_served_in_order() -> None:
    order: list[int] = []

    async def scene() -> None:
        pace = RateLimiter(1, Rate(2, 10))

        async def work(number: int) -> None:
            async with place_of(pace) as place:
                place.start()
                order.append(number)
                await anyio.sleep(1)

        async with anyio.create_task_group() as group:
            for number in range(7):
                group.start_soon(work, number)
                await anyio.lowlevel.checkpoint()

    skipping(scene)
    assert order == list(range(7))


def test_rate_counts_from_the_actual_start() -> None:
    """Between the two lies a write to the journal, however long it takes."""
    starts: list[float] = []

    async def scene() -> None:
        pace = RateLimiter(None, Rate(1, 10))

        async def slow() -> None:
            async with place_of(pace) as place:
                await anyio.sleep(25)
                place.start()
                starts.append(anyio.current_time())

        async with anyio.create_task_group() as group:
            group.start_soon(slow)
            await anyio.lowlevel.checkpoint()
            group.start_soon(use, pace, starts)

    skipping(scene)
    assert starts == [25, 35]


def test_unstarted_call_does_not_count() -> None:
    starts: list[float] = []

    async def scene() -> None:
        pace = RateLimiter(1, Rate(1, 10))

        async def thinks_better_of_it() -> None:
            async with place_of(pace):
                await anyio.sleep(3)

        async with anyio.create_task_group() as group:
            group.start_soon(thinks_better_of_it)
            await anyio.lowlevel.checkpoint()
            group.start_soon(use, pace, starts)

    skipping(scene)
    assert starts == [3]


@pytest.mark.parametrize("after", [0.5, 5])
def test_cancelled_waiter_leaves_no_trace(after: float) -> None:
    """At the head of the queue as well as behind it."""
    starts: list[float] = []

    async def scene() -> None:
        pace = RateLimiter(1, Rate(1, 10))
        async with anyio.create_task_group() as group:
            group.start_soon(use, pace, starts, 1)
            await anyio.lowlevel.checkpoint()
            with anyio.move_on_after(after):
                async with anyio.create_task_group() as impatient:
                    for _ in range(3):
                        impatient.start_soon(use, pace, starts)
            assert pace.take_now() is None
            group.start_soon(use, pace, starts)

    skipping(scene)
    assert starts == [0, 10]


async def test_take_now_gives_a_slot_only_without_waiters() -> None:
    pace = RateLimiter(1, None)
    first = pace.take_now()
    assert first is not None
    assert pace.take_now() is None
    times: list[float] = []
    async with anyio.create_task_group() as group:
        group.start_soon(use, pace, times)
        await anyio.wait_all_tasks_blocked()
        first.release()
        assert pace.take_now() is None, "the one who waits comes first"
    assert len(times) == 1
    again = pace.take_now()
    assert again is not None
    again.release()


def test_each_event_loop_has_separate_slots() -> None:
    pace = RateLimiter(1, None)

    async def hold() -> None:
        assert pace.take_now() is not None  # and this loop ends with it

    for _ in range(2):
        clock.run(hold)


def test_rate_holds_across_event_loops() -> None:
    """Of one clock, as those of asyncio are."""
    pace = RateLimiter(None, Rate(2, 1000))

    async def start() -> bool:
        place = pace.take_now()
        if place is not None:
            place.start()
            place.release()
        return place is not None

    assert [anyio.run(start) for _ in range(3)] == [True, True, False]


def test_loop_with_another_clock_blocks_no_call() -> None:
    pace = RateLimiter(None, Rate(1, 10))

    async def start(skip: float) -> bool:
        await anyio.sleep(skip)
        place = pace.take_now()
        if place is not None:
            place.start()
            place.release()
        return place is not None

    assert clock.run(lambda: start(1e6))
    assert clock.run(lambda: start(0))
    assert not clock.run(lambda: start(0))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_loops_of_two_threads_share_a_rate(backend: str) -> None:
    """A place that one of them gives back without a start is had by the other at once, and not after an hour."""
    pace = RateLimiter(None, Rate(1, 3600))
    entered, awaited, order = threading.Event(), threading.Event(), list[str]()

    async def first() -> None:
        async with place_of(pace):
            entered.set()
            assert await anyio.to_thread.run_sync(awaited.wait, 5)
            order.append("first")

    async def second() -> None:
        async def work() -> None:
            async with place_of(pace):
                order.append("second")

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                await anyio.wait_all_tasks_blocked()
                awaited.set()

    thread = threading.Thread(target=anyio.run, args=(first,))
    thread.start()
    assert entered.wait(60)
    anyio.run(second, backend=backend)
    thread.join(60)
    assert order == ["first", "second"]


def test_slot_returned_during_a_concurrent_search_is_not_lost() -> None:
    pace = RateLimiter(None, Rate(1, 0.0005))
    had: list[int] = []

    async def work() -> None:
        for number in range(2000):
            async with place_of(pace):
                await anyio.lowlevel.checkpoint()
                had.append(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=anyio.run, args=(work,), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert len(had) == 6000
