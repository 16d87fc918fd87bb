"""The context that does nothing, for blocks that usually need no other."""

import sys

import pytest

from turnwright._base.background_task import NO_CONTEXT


@pytest.mark.anyio
async def test_no_context_yields_none_and_passes_errors_on() -> None:
    with NO_CONTEXT as entered, NO_CONTEXT as again:
        assert (entered, again) == (None, None)
    async with NO_CONTEXT as entered:
        assert entered is None
    with pytest.raises(KeyError), NO_CONTEXT:
        raise KeyError
    with pytest.raises(KeyError):
        async with NO_CONTEXT:
            raise KeyError


def test_no_context_block_keeps_no_reference() -> None:
    before = sys.getrefcount(NO_CONTEXT)
    with NO_CONTEXT:
        assert sys.getrefcount(NO_CONTEXT) == before
