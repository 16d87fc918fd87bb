"""The contract of a store for facts: each is kept, in order, all of an append or nothing."""

from dataclasses import replace
from typing import cast

import anyio
import pytest

from turnwright.errors import StoreError
from turnwright.store import Claim, InboxItem, InboxKind, Status, Store
from turnwright_states import EndReason, Outcome, State, fold
from turnwright_states.facts import Fact, Notice

from .bench import NOW, StoreFacts, Written


class JournalFacts(StoreFacts):
    async def test_facts_are_read_as_written(self, store: Store, draft: Written, claim: Claim) -> None:
        """Facts come back oldest first, numbered from 1, and equal field by field, with their hashes."""
        await store.append(claim, draft.calls("read_file", "read_file"), draft.status)
        await store.append(claim, draft.abort(), draft.status)
        assert await store.facts("t1") == list(enumerate(draft.facts, start=1))
        for after in range(len(draft.facts) + 1):  # also within an append
            assert await store.facts("t1", after=after) == list(enumerate(draft.facts, start=1))[after:]

    async def test_any_text_comes_back(self, store: Store) -> None:
        """Quotes, control characters, every plane of Unicode, and a megabyte."""
        text = "'\"\\ \x00\x1f\u2028 é 漢 🙂\U0010ffff" + "x" * 2**20
        draft = Written(prompt=text)
        claim = await draft.create(store)
        await store.append(claim, draft.answer(text), draft.status)
        assert await store.facts("t1") == list(enumerate(draft.facts, start=1))

    async def test_an_append_moves_the_claim_and_the_status(self, store: Store, draft: Written, claim: Claim) -> None:
        """Both move in one step: a query agrees with the journal."""
        facts = draft.answer()
        await store.append(claim, facts, draft.status)
        assert claim.seq == len(draft.facts)
        status = (await store.get("t1")).status
        assert (status.state, status.reason, status.steps) == (State.FINISHED, EndReason.ANSWERED, 1)
        assert status.outcome is Outcome.FINISHED

    async def test_append_has_its_time(self, store: Store, draft: Written, claim: Claim) -> None:
        """`updated_at` is the time of the last append; `created_at` stays."""
        await store.append(claim, draft.answer(), draft.status)
        row = await store.get("t1")
        assert row.created_at == NOW < row.updated_at

    async def test_the_status_can_be_rebuilt_from_the_facts(self, store: Store, draft: Written, claim: Claim) -> None:
        """The status is a copy: folding the stored facts gives the same one."""
        for facts in (draft.calls("read_file"), draft.abort()):
            await store.append(claim, facts, draft.status)
        turn = fold(fact for _, fact in await store.facts("t1"))
        assert (await store.get("t1")).status == Status.of(turn)

    async def test_turns_do_not_meet(self, store: Store) -> None:
        """Each turn has its own numbering, its own epoch and its own inbox."""
        first_draft, two = Written("t1"), Written("t2", prompt="other")
        first, second = await first_draft.create(store), await two.create(store)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await store.append(second, two.answer(), two.status, ("abort",))
        await store.append(first, first_draft.calls("read_file"), first_draft.status)
        assert await store.facts("t1") == list(enumerate(first_draft.facts, start=1))
        assert await store.facts("t2") == list(enumerate(two.facts, start=1))
        assert [item.id for item in await store.inbox("t1")] == ["abort"]
        assert await store.inbox("t2") == []

    async def test_another_process_reads_appended_facts(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """The facts are visible at once, and without a claim."""
        await store.append(claim, draft.calls("read_file"), draft.status)
        assert await other_store.facts("t1") == list(enumerate(draft.facts, start=1))
        assert (await other_store.get("t1")).status == draft.status

    async def test_a_failed_append_writes_nothing(self, store: Store, draft: Written, claim: Claim) -> None:
        """An append after an outdated fact writes no facts and no status, and consumes nothing; its error names it."""
        stale_claim = replace(claim)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await store.append(claim, draft.calls("read_file"), draft.status)
        before, status = list(draft.facts), draft.status
        with pytest.raises(StoreError, match=rf"t1.* {stale_claim.seq + 1}\b"):
            await store.append(stale_claim, draft.abort(), draft.status, ("abort",))
        assert await store.facts("t1") == list(enumerate(before, start=1))
        assert (await store.get("t1")).status == status
        assert [item.id for item in await store.inbox("t1")] == ["abort"]
        await store.append(claim, draft.facts[len(before) :], draft.status)
        assert claim.seq == len(draft.facts)

    async def test_an_append_is_written_completely_or_not_at_all(
        self, store: Store, draft: Written, claim: Claim
    ) -> None:
        """An append that fails in the middle writes nothing: here, at its last fact, in a store that encodes facts."""
        before, status = list(draft.facts), draft.status
        unwritable = Notice(elapsed=1, state=State.TOOL_EXEC, limit=cast("str", object()))
        facts: list[Fact] = [*draft.calls("read_file"), unwritable]
        try:
            await store.append(claim, facts, draft.status)
        except (StoreError, TypeError):
            expected = before
            assert (await store.get("t1")).status == status
        else:
            expected = before + facts
        assert await store.facts("t1") == list(enumerate(expected, start=1))
        assert claim.seq == len(expected)
        await store.append(claim, draft.abort(), draft.status)

    async def test_a_status_may_be_written_alone(self, store: Store, draft: Written, claim: Claim) -> None:
        """An append of no facts moves nothing but the status."""
        status = Status(State.TOOL_EXEC, steps=7, tool_calls=9)
        await store.append(claim, (), status)
        assert claim.seq == len(draft.facts)
        assert (await store.get("t1")).status == status
        assert await store.facts("t1") == list(enumerate(draft.facts, start=1))

    async def test_follower_sees_every_fact_once(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """Reading what comes after the last fact, while another process appends: no gap, nothing twice."""
        rows: list[tuple[int, Fact]] = []

        async def write() -> None:
            notices = [Notice(elapsed=n, state=State.STREAM, limit="steps", used=n) for n in range(40)]
            for n in range(0, len(notices), 2):
                draft.facts += notices[n : n + 2]
                await store.append(claim, notices[n : n + 2], draft.status)
                await anyio.lowlevel.checkpoint()
            await store.append(claim, draft.answer(), draft.status)

        async def follow() -> None:
            while (await other_store.get("t1")).status.outcome is None:
                rows.extend(await other_store.facts("t1", after=len(rows)))
                await anyio.lowlevel.checkpoint()
            rows.extend(await other_store.facts("t1", after=len(rows)))

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            group.start_soon(follow)
        assert rows == list(enumerate(draft.facts, start=1))
