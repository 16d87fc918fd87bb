"""Two tasks at the same time: their results, and the error of either."""

import anyio
import pytest

from turnwright._base.background_task import run_both

pytestmark = pytest.mark.anyio


async def test_both_tasks_run_at_once_and_return_results() -> None:
    here, there = anyio.Event(), anyio.Event()

    async def first() -> int:
        here.set()
        await there.wait()
        return 1

    async def second() -> str:
        await here.wait()
        there.set()
        return "two"

    assert await run_both(first(), second) == (1, "two")


@pytest.mark.parametrize("fails", ["first", "second"])
async def test_error_of_either_task_cancels_the_other_and_is_raised_alone(fails: str) -> None:
    start, ended = anyio.Event(), set[str]()

    async def task(name: str) -> None:
        try:
            if name == fails:
                await start.wait()
                raise ValueError(name)
            start.set()
            await anyio.sleep_forever()
        finally:
            ended.add(name)

    with pytest.raises(ValueError, match=fails):
        await run_both(task("first"), lambda: task("second"))
    assert ended == {"first", "second"}
