"""The contract of a store for facts: each is kept, in order, all of an append or nothing."""

from dataclasses import replace
from typing import cast

import anyio
import pytest

from turnwright.errors import StoreError
from turnwright.store import InboxItem, InboxKind, Status
from turnwright_states import EndReason, Outcome, State, fold
from turnwright_states.facts import Fact, Notice

from .bench import NOW, Bench, Written


class JournalFacts:
    async def test_facts_come_back_as_they_were_written(self, bench: Bench) -> None:
        """Facts come back oldest first, numbered from 1, and equal field by field, with their hashes."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        await store.append(claim, written.calls("read_file", "read_file"), written.status)
        await store.append(claim, written.abort(), written.status)
        assert await store.facts("t1") == list(enumerate(written.facts, start=1))
        for after in range(len(written.facts) + 1):  # also within an append
            assert await store.facts("t1", after=after) == list(enumerate(written.facts, start=1))[after:]

    async def test_any_text_comes_back(self, bench: Bench) -> None:
        """Quotes, control characters, every plane of Unicode, and a megabyte."""
        text = "'\"\\ \x00\x1f\u2028 é 漢 🙂\U0010ffff" + "x" * 2**20
        store, written = await bench.open(), Written(prompt=text)
        claim = await written.create(store)
        await store.append(claim, written.answer(text), written.status)
        assert await store.facts("t1") == list(enumerate(written.facts, start=1))

    async def test_an_append_moves_the_claim_and_the_status(self, bench: Bench) -> None:
        """Both move in one step: a query agrees with the journal."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        facts = written.answer()
        await store.append(claim, facts, written.status)
        assert claim.seq == len(written.facts)
        status = (await store.get("t1")).status
        assert (status.state, status.reason, status.steps) == (State.FINISHED, EndReason.ANSWERED, 1)
        assert status.outcome is Outcome.FINISHED

    async def test_an_append_says_when_it_was(self, bench: Bench) -> None:
        """`updated_at` is the time of the last append; `created_at` stays."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        await store.append(claim, written.answer(), written.status)
        row = await store.get("t1")
        assert row.created_at == NOW < row.updated_at

    async def test_the_status_can_be_rebuilt_from_the_facts(self, bench: Bench) -> None:
        """The status is a copy: folding the stored facts gives the same one."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        for facts in (written.calls("read_file"), written.abort()):
            await store.append(claim, facts, written.status)
        stored = fold(fact for _, fact in await store.facts("t1"))
        assert (await store.get("t1")).status == Status.of(stored)

    async def test_turns_do_not_meet(self, bench: Bench) -> None:
        """Each turn has its own numbering, its own epoch and its own inbox."""
        store, one, two = await bench.open(), Written("t1"), Written("t2", prompt="other")
        first, second = await one.create(store), await two.create(store)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await store.append(second, two.answer(), two.status, ("abort",))
        await store.append(first, one.calls("read_file"), one.status)
        assert await store.facts("t1") == list(enumerate(one.facts, start=1))
        assert await store.facts("t2") == list(enumerate(two.facts, start=1))
        assert [item.id for item in await store.inbox("t1")] == ["abort"]
        assert await store.inbox("t2") == []

    async def test_another_process_reads_what_was_appended(self, bench: Bench) -> None:
        """The facts are visible at once, and without a claim."""
        store, other, written = await bench.open(), await bench.open(), Written()
        claim = await written.create(store)
        await store.append(claim, written.calls("read_file"), written.status)
        assert await other.facts("t1") == list(enumerate(written.facts, start=1))
        assert (await other.get("t1")).status == written.status

    async def test_a_failed_append_writes_nothing(self, bench: Bench) -> None:
        """An append after an outdated fact writes no facts and no status, and consumes nothing; its error names it."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        stale = replace(claim)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await store.append(claim, written.calls("read_file"), written.status)
        before, status = list(written.facts), written.status
        with pytest.raises(StoreError, match=rf"t1.* {stale.seq + 1}\b"):
            await store.append(stale, written.abort(), written.status, ("abort",))
        assert await store.facts("t1") == list(enumerate(before, start=1))
        assert (await store.get("t1")).status == status
        assert [item.id for item in await store.inbox("t1")] == ["abort"]
        await store.append(claim, written.facts[len(before) :], written.status)
        assert claim.seq == len(written.facts)

    async def test_an_append_is_written_completely_or_not_at_all(self, bench: Bench) -> None:
        """An append that fails in the middle writes nothing: here, at its last fact, in a store that encodes facts."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        before, status = list(written.facts), written.status
        unwritable = Notice(elapsed=1, state=State.TOOL_EXEC, limit=cast("str", object()))
        facts: list[Fact] = [*written.calls("read_file"), unwritable]
        try:
            await store.append(claim, facts, written.status)
        except (StoreError, TypeError):
            expected = before
            assert (await store.get("t1")).status == status
        else:
            expected = before + facts
        assert await store.facts("t1") == list(enumerate(expected, start=1))
        assert claim.seq == len(expected)
        await store.append(claim, written.abort(), written.status)

    async def test_a_status_may_be_written_alone(self, bench: Bench) -> None:
        """An append of no facts moves nothing but the status."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        status = Status(State.TOOL_EXEC, steps=7, tool_calls=9)
        await store.append(claim, (), status)
        assert claim.seq == len(written.facts)
        assert (await store.get("t1")).status == status
        assert await store.facts("t1") == list(enumerate(written.facts, start=1))

    async def test_who_follows_a_turn_sees_every_fact_once(self, bench: Bench) -> None:
        """Reading what comes after the last fact, while another process appends: no gap, nothing twice."""
        store, other, written = await bench.open(), await bench.open(), Written()
        claim = await written.create(store)
        seen: list[tuple[int, Fact]] = []

        async def write() -> None:
            notices = [Notice(elapsed=n, state=State.STREAM, limit="steps", used=n) for n in range(40)]
            for n in range(0, len(notices), 2):
                written.facts += notices[n : n + 2]
                await store.append(claim, notices[n : n + 2], written.status)
                await anyio.lowlevel.checkpoint()
            await store.append(claim, written.answer(), written.status)

        async def follow() -> None:
            while (await other.get("t1")).status.outcome is None:
                seen.extend(await other.facts("t1", after=len(seen)))
                await anyio.lowlevel.checkpoint()
            seen.extend(await other.facts("t1", after=len(seen)))

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            group.start_soon(follow)
        assert seen == list(enumerate(written.facts, start=1))
