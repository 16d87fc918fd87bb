"""The contract of summaries: of a store that keeps them, and of those that a process keeps for a store."""

from dataclasses import replace

import pytest

from turnwright.journal.summarize import summarize_turns
from turnwright.store import Claim, Store
from turnwright.store.memory_summaries import summaries_of
from turnwright.store.summaries import (
    MOST_WORDS,
    Grouping,
    Order,
    SummaryStore,
    ToolCalls,
    TurnFilter,
    TurnNames,
    TurnSummary,
)
from turnwright_states import CallSettledInput, CallStartedInput, CallStatus, EndReason, Outcome
from turnwright_testing.store_suite.bench import NOW, Bench, StoreFacts, Written

_ALL = 1_000


def _mask(text: str) -> str:
    return text.replace("hunter2hunter2", "***")


async def _summarize(store: Store, summaries: SummaryStore | None = None) -> SummaryStore:
    summaries = summaries or summaries_of(store)
    while await summarize_turns(store, summaries, _mask, limit=2):
        pass
    return summaries


async def _write_ended(
    store: Store, turn_id: str, *, prompt: str = "hi", answer: str = "done", **draft_options: object
) -> None:
    draft = Written(turn_id, prompt=prompt, **draft_options)  # type: ignore[arg-type]
    claim = await draft.create(store)
    await store.append(claim, draft.calls("look_up"), draft.status)
    (call,) = draft.machine.turn.batch
    start_facts = draft.machine.feed(CallStartedInput(call=call, elapsed=0.5))
    result = CallSettledInput(call=call, status=CallStatus.ERROR, result="wolverine missing", elapsed=0.75)
    await store.append(claim, draft.keep([*start_facts, *draft.machine.feed(result)]), draft.status)
    await store.append(claim, draft.answer(answer), draft.status)
    await store.release(claim)


async def _find(summaries: SummaryStore, **filters: object) -> list[str]:
    entries = await summaries.find(TurnFilter(**filters), limit=_ALL)  # type: ignore[arg-type]
    return [entry.row.id for entry in entries]


class SummaryFacts(StoreFacts):
    async def test_an_ended_turn_has_its_totals(self, bench: Bench, store: Store) -> None:
        """Also for another process, and once for all."""
        await _write_ended(store, "t1", prompt="Find  the\nanimal", answer="None is there.")
        await _summarize(store)
        other_store = await bench.open()
        summaries = await _summarize(other_store)
        assert await summaries.unsummarized(limit=_ALL) == []
        (entry,) = await summaries.find(TurnFilter(), limit=_ALL)
        assert entry.row == await store.get("t1")
        assert entry.summarized
        assert (entry.usage.tokens, entry.usage.cost, entry.seconds) == (3, 0.1, 1.25)
        assert (entry.prompt, entry.answer, entry.fault) == ("Find the animal", "None is there.", "")
        assert await summaries.find(TurnFilter(), limit=_ALL, texts=False) == [replace(entry, prompt="", answer="")]
        totals = await summaries.totals(TurnFilter())
        assert (totals.turns, totals.outcomes) == (1, {Outcome.FINISHED: 1})
        assert (totals.steps, totals.tool_calls, totals.tokens, totals.cost, totals.seconds) == (2, 1, 3, 0.1, 1.25)

    async def test_new_turn_is_listed_without_totals(self, store: Store) -> None:
        """It counts as a turn. It is not summarized while it runs."""
        await Written("t1").create(store)
        summaries = await _summarize(store)
        (entry,) = await summaries.find(TurnFilter(), limit=_ALL)
        assert (entry.row.id, entry.summarized, entry.usage.tokens) == ("t1", False, 0)
        assert await _find(summaries, outcome="unfinished") == ["t1"]
        assert await _find(summaries, outcome="paused") == []
        assert (await summaries.totals(TurnFilter())).turns == 1
        assert (await summaries.agents(TurnFilter())).agents == []

    async def test_paused_turn_is_summarized_again_at_its_end(self, store: Store, draft: Written, claim: Claim) -> None:
        await store.append(claim, draft.pause(), draft.status)
        summaries = await _summarize(store)
        (summary,) = await summaries.find(TurnFilter(), limit=_ALL)
        assert summary.summarized
        assert (await summaries.totals(TurnFilter())).outcomes == {}
        assert await _find(summaries, outcome="paused") == ["t1"]
        assert await _find(summaries, outcome="unfinished") == []
        await store.append(claim, draft.abort(), draft.status)
        assert [entry.ended for entry in await summaries.unsummarized(limit=_ALL)] == [True]
        await _summarize(store, summaries)
        assert (await summaries.totals(TurnFilter())).outcomes == {Outcome.ABORTED: 1}

    async def test_a_search_finds_words_of_prompts_answers_tools_and_results(self, store: Store) -> None:
        """Whole words or their beginnings, in any order and either case; and parts of ids and names."""
        await _write_ended(store, "t1", prompt="Find the Zebra", answer="It is a horse, it's striped.")
        await _write_ended(store, "other%2", prompt="Sing")
        summaries = await _summarize(store)
        for text in ("zebra find", "zeb", "HORSE", "striped. it's", "zebra, horse"):
            assert await _find(summaries, text=text) == ["t1"], text
        for text in ("look_up", "wolverine", "idie", "CRIPT"):
            assert await _find(summaries, text=text) == ["other%2", "t1"], text
        for text in ("er%2", "sing"):
            assert await _find(summaries, text=text) == ["other%2"], text
        for text in ("ebra", "up_look", "%", "_", '"', "'", "zebra AND sing", "NOT", "*", "!", "\\", "a:b", "(", "- -"):
            assert "t1" not in await _find(summaries, text=text), text

    async def test_a_search_has_at_most_so_many_words(self, store: Store) -> None:
        """More are not compared, nor is the end of a very long part of a name."""
        words = [f"word{number}" for number in range(MOST_WORDS)]
        await _write_ended(store, "t1", prompt=" ".join(words))
        summaries = await _summarize(store)
        assert await _find(summaries, text=" ".join([*words, "nowhere"])) == ["t1"]
        assert await _find(summaries, text=" ".join(["nowhere", *words])) == []
        assert await _find(summaries, agent="x" * 100_000) == await _find(summaries, text="% " * 100_000) == []

    async def test_a_search_finds_no_hidden_secret(self, store: Store) -> None:
        """Also not by its beginning. The list does not show it."""
        await _write_ended(store, "t1", prompt="The password is hunter2hunter2, use it", answer="hunter2hunter2 works")
        summaries = await _summarize(store)
        assert await _find(summaries, text="password works") == ["t1"]
        assert await _find(summaries, text="hunter2hunter2") == await _find(summaries, text="hunt") == []
        (entry,) = await summaries.find(TurnFilter(), limit=_ALL)
        assert "hunter" not in entry.prompt + entry.answer

    async def test_names_are_compared_without_their_secrets(self, store: Store) -> None:
        """Also those of a turn that runs, and that of a session, which is compared whole."""
        await _write_ended(store, "t1-hunter2hunter2", session="of hunter2hunter2")
        await Written("t2-hunter2hunter2", session="now hunter2hunter2").create(store)
        assert await _find(summaries_of(store), text="hunter") == []  # before they have names
        summaries = await _summarize(store)
        for text in ("hunter2hunter2", "hunt", "2"):
            assert await _find(summaries, text=text) == (["t2-hunter2hunter2"] if text == "2" else []), text
        assert await _find(summaries, session="of hunter2hunter2") == []
        assert await _find(summaries, session="of ***") == await _find(summaries, text="t1-***")
        assert await _find(summaries, session="now ***") == await _find(summaries, text="t2") == ["t2-hunter2hunter2"]
        entries = await summaries.find(TurnFilter(text="T1-***"), limit=_ALL)
        assert [entry.row for entry in entries] == [await store.get("t1-hunter2hunter2")]

    async def test_names_of_any_length_are_compared_by_their_beginnings(
        self, store: Store, draft: Written, claim: Claim
    ) -> None:
        await store.append(claim, draft.abort(), draft.status)
        summaries = summaries_of(store)
        (turn,) = await summaries.unsummarized(limit=_ALL)
        # No compression makes them short.
        long = [f"{place}-" + "".join(chr(0x10000 + 7919 * n**2 % 50_000) for n in range(9_999)) for place in range(4)]
        names = TurnNames(*long)
        await summaries.summarize([(turn, TurnSummary(outcome=Outcome.ABORTED, names=names))])
        for name in long:
            assert await _find(summaries, text=name[:40]) == ["t1"]
            assert await _find(summaries, text=name[-40:]) == []
        assert await _find(summaries, agent=names.agent[:40], model=names.model[:40], session=long[3]) == ["t1"]
        assert [agent.agent for agent in (await summaries.agents(TurnFilter())).agents] == [names.agent[:51]]

    async def test_filters_match_parts_of_names_sessions_endings_and_times(self, store: Store) -> None:
        await _write_ended(store, "t1", session="s1", age=10)
        await _write_ended(store, "t2", session="s2")
        draft = Written("t3", session="s3", age=5)
        claim = await draft.create(store)
        await store.append(claim, draft.abort(), draft.status)
        await store.release(claim)
        summaries = await _summarize(store)
        assert await _find(summaries, agent="IDI", model="crip") == ["t3", "t2", "t1"]
        assert await _find(summaries, agent="x") == await _find(summaries, agent="T_dier") == []
        assert await _find(summaries, session="s1") == ["t1"]
        assert await _find(summaries, session="s") == []
        assert await _find(summaries, outcome=str(Outcome.FINISHED)) == ["t2", "t1"]
        assert await _find(summaries, reason=str(EndReason.ABORTED)) == ["t3"]
        assert await _find(summaries, since=NOW - 5) == ["t3", "t2"]
        assert await _find(summaries, until=NOW - 5) == ["t1"]
        assert (await summaries.totals(TurnFilter(since=NOW - 5))).turns == 2

    async def test_sub_turns_are_not_listed(self, store: Store) -> None:
        """Their usage is part of their callers'."""
        await _write_ended(store, "t1")
        await _write_ended(store, "t1:c1")
        summaries = await _summarize(store)
        assert await _find(summaries) == ["t1"]
        assert await _find(summaries, family="t1") == ["t1:c1"]
        assert await _find(summaries, family="t") == []
        assert (await summaries.totals(TurnFilter())).turns == 1
        assert [agent.turns for agent in (await summaries.agents(TurnFilter())).agents] == [1]

    async def test_lists_are_sorted_and_paged(self, store: Store) -> None:
        """Turns with the same value are in the order of creation."""
        for turn_id in ("t1", "t2", "t3"):
            await _write_ended(store, turn_id)
        await Written("t4").create(store)
        summaries = await _summarize(store)
        for order in Order:
            pages = [await summaries.find(TurnFilter(), order=order, limit=2)]
            while pages[-1]:
                pages += [await summaries.find(TurnFilter(), order=order, limit=2, after=pages[-1][-1].row.number)]
            expected = ["t4", "t3", "t2", "t1"] if order is Order.NEWEST else ["t3", "t2", "t1", "t4"]
            assert [entry.row.id for page in pages for entry in page] == expected, order
            back = await summaries.find(TurnFilter(), order=order, ascending=True, limit=_ALL)
            assert [entry.row.id for entry in back] == expected[::-1], order
            later_page = await summaries.find(
                TurnFilter(), order=order, ascending=True, limit=_ALL, after=back[1].row.number
            )
            assert later_page == back[2:], order

    async def test_agents_have_quantiles_endings_and_failures(self, store: Store) -> None:
        """Of ended turns. The median of an even number is the smaller value."""
        for turn_id in ("t1", "t2", "t3"):
            await _write_ended(store, turn_id)
        draft = Written("t4")
        claim = await draft.create(store)
        await store.append(claim, draft.abort(), draft.status)
        await Written("t5").create(store)
        (agent,) = (await (await _summarize(store)).agents(TurnFilter())).agents
        assert (agent.agent, agent.model, agent.turns) == ("Tidier", "scripted", 4)
        assert agent.outcomes == {Outcome.FINISHED: 3, Outcome.ABORTED: 1}
        assert agent.reasons == [(EndReason.ANSWERED, 3), (EndReason.ABORTED, 1)]
        assert (agent.steps.p50, agent.steps.p90) == (2, 2)
        assert (agent.tokens.p50, agent.tokens.p90, agent.total_tokens) == (3, 3, 9)
        assert (agent.cost.p50, agent.seconds.p50, agent.seconds.p90) == (0.1, 1.25, 2)
        assert agent.total_cost == pytest.approx(0.3)
        assert agent.failures == [("look_up", 3)]

    async def test_an_agent_is_added_up_over_its_models_and_a_model_over_its_agents(self, store: Store) -> None:
        """Its quantiles are those of all of its turns."""
        for turn_id in ("t1", "t2"):
            await _write_ended(store, turn_id)
        summaries = await _summarize(store)
        for by, names in ((Grouping.AGENT, ("Tidier", "")), (Grouping.MODEL, ("", "scripted"))):
            totals = await summaries.agents(TurnFilter(), by=by)
            (agent,) = totals.agents
            assert (agent.agent, agent.model, agent.others) == (*names, 1)
            assert (agent.turns, agent.steps.p90, agent.failures) == (2, 2, [("look_up", 2)])
            assert {(spending.agent, spending.model) for spending in totals.spending} == {names}

    async def test_tools_have_their_calls_and_times(self, store: Store) -> None:
        """Of the newest turns that match. A turn that runs has none yet, and one that was deleted none any more."""
        for turn_id in ("t1", "t2", "t3"):
            await _write_ended(store, turn_id)
        await Written("t4").create(store)
        summaries = await _summarize(store)
        assert await summaries.tools(TurnFilter(), limit=1) == {}
        (tool_totals,) = (await summaries.tools(TurnFilter(), limit=2)).items()
        assert tool_totals == ("look_up", ToolCalls(calls=1, failed=1, seconds=[0.25]))
        assert (await summaries.tools(TurnFilter(), limit=_ALL))["look_up"].calls == 3
        assert await summaries.tools(TurnFilter(agent="nobody"), limit=_ALL) == {}
        await store.delete("t3")
        assert await _find(summaries) == ["t4", "t2", "t1"]
        assert (await summaries.tools(TurnFilter(), limit=_ALL))["look_up"].calls == 2

    async def test_spending_is_counted_by_spans_of_time(self, store: Store) -> None:
        """Of a minute, an hour, a day: so many that there are few. No span is before the time of computers."""
        day = 86_400.0
        for turn_id, age in (("t1", 2 * day), ("t2", 0.0), ("t3", 0.0), ("t4", NOW - 60)):
            await _write_ended(store, turn_id, age=age)
        summaries = await _summarize(store)
        totals = await summaries.agents(TurnFilter())
        begins = NOW // day * day
        assert (totals.width, totals.agents[0].turns) == (day, 4)
        assert [
            (interval.began, interval.agent, interval.model, interval.turns, interval.tokens)
            for interval in totals.spending
        ] == [
            (begins - 2 * day, "Tidier", "scripted", 1, 3),
            (begins, "Tidier", "scripted", 2, 6),
        ]
        assert totals.spending[1].cost == pytest.approx(0.2)
        newest = await summaries.agents(TurnFilter(since=NOW - day))
        assert (newest.width, [interval.began for interval in newest.spending]) == (60, [NOW // 60 * 60])

    async def test_a_deleted_turn_is_found_no_more(self, store: Store) -> None:
        """Nor are those of its sub-agents. A new turn with its id is another one."""
        for turn_id in ("t1", "t1:c1", "t2"):
            await _write_ended(store, turn_id, prompt="zebra")
        summaries = await _summarize(store)
        await store.delete("t1")
        assert await _find(summaries, text="zebra") == ["t2"]
        assert (await summaries.totals(TurnFilter())).turns == 1
        await _write_ended(store, "t1", prompt="lion")
        await _summarize(store, summaries)
        assert await _find(summaries, text="lion") == ["t1"]
        assert await _find(summaries, text="zebra") == ["t2"]
