"""Long prompts, results, replies, arguments and reasoning cost in proportion to their length."""

import pytest
from bench.sizes import measure

KIB = (16, 32, 64)
WHOLE = ("prompt", "result", "arguments", "file")
STREAMED = ("reply, streamed", "arguments, streamed", "reasoning, streamed")


async def calls(kind: str, place: str) -> list[int]:
    """The function calls of a turn with a text of each length."""
    return [count for _, count in await measure(kind, place, [kib * 1024 for kib in KIB], repeats=1)]


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["memory", "SQLite", "spans"])
@pytest.mark.parametrize("kind", WHOLE)
async def test_whole_text_of_any_length_takes_the_same_calls(kind: str, place: str) -> None:
    counts = await calls(kind, place)
    assert max(counts) - min(counts) < 50


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["memory", "events"])
@pytest.mark.parametrize("kind", STREAMED)
async def test_streamed_text_takes_calls_in_proportion_to_its_pieces(kind: str, place: str) -> None:
    first, second, third = await calls(kind, place)
    assert (third - second) / (second - first) == pytest.approx(2, rel=0.02)
