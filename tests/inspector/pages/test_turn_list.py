"""The list of turns and the statistics: what is found, page by page, and what is counted."""

import html
import re
from collections.abc import Sequence
from dataclasses import replace

import anyio.lowlevel
import httpx
import pytest
from msgspec import structs
from pydantic import JsonValue
from tests.inspector.conftest import browser
from tests.inspector.turns_made import AGENT, TOOLS

from turnwright import Agent, EndReason, Engine, TurnResult
from turnwright.driver.subagents import agent_tool
from turnwright.errors import TurnNotFoundError
from turnwright.journal.answers import approve
from turnwright.journal.fork import fork_places
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.store import MemoryStore, NewTurn, Status
from turnwright.store.summaries import MOST_WORDS, Order, SummarizedTurn, TurnFilter
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.views.statistics import STANDINGS, Quantiles, group_by_steps, quantile, statistics_of
from turnwright_inspector.views.summaries import Summaries
from turnwright_inspector.views.turn_query import PAGE, Listed, Query, list_turns
from turnwright_states import Cause, Limits, State, Usage
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio

HELPER = Agent(name="Helper", description="It helps.", tools=("Under", "ok"))
UNDER = Agent(name="Under", description="It helps the helper.", tools=("ok",))


async def journal_of_a_turn() -> list[f.Fact]:
    async with Engine(model=ScriptedModel(asks_for(("ok", {"n": 1})), "done"), tools=TOOLS) as engine:
        return [fact for _, fact in await engine.store.facts((await engine.run(AGENT, "hi")).id)]


async def write(store: MemoryStore, name: str, facts: Sequence[f.Fact], *, at: float = 1.0, **fields: str) -> None:
    first = structs.replace(facts[0], prompt=fields.get("prompt", "hi"))
    state = facts[-1].state
    reason = facts[-1].reason if isinstance(facts[-1], f.TurnEnded) else None
    new = NewTurn(name, fields.get("session"), fields.get("agent", "A"), fields.get("model", "m"), at)
    claim = await store.create(new, [first, *facts[1:]], Status(state, 2, 1, reason))
    await store.release(claim)


def names(turns: Sequence[Listed]) -> list[str]:
    return [turn.row.id for turn in turns]


async def test_text_search_covers_every_field_in_any_case() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    await write(store, "IdOne", facts)
    await write(store, "two", facts, agent="Grade")
    await write(store, "three", facts, model="Mistral")
    await write(store, "four", facts, session="Holiday")
    await write(store, "five", facts, prompt="Tidy UTILS.py")
    for text, name in (("idone", "IdOne"), ("RADE", "two"), ("mis", "three"), ("holi", "four"), ("utils", "five")):
        assert names((await list_turns(Summaries(store), Query(text=text))).turns) == [name], text
    nothing = await list_turns(Summaries(store), Query(text="nowhere"))
    assert (nothing.turns, nothing.totals.turns if nothing.totals else None, nothing.following) == ((), 0, None)


async def test_secrets_in_names_are_not_found_but_hidden_name_links_work() -> None:
    """The searched text is hidden too, so a whole name finds its turn."""
    facts, store, secret = await journal_of_a_turn(), MemoryStore(), "hunter22hunter22"
    names_with_secrets = {name: f"{name} password={secret}" for name in ("agent", "model", "session")}
    await write(
        store,
        "named",
        facts,
        agent=names_with_secrets["agent"],
        model=names_with_secrets["model"],
        session=names_with_secrets["session"],
    )
    await write(store, "other", facts, session="other")
    summaries = Summaries(store)
    for name, value in names_with_secrets.items():
        for part in (secret, secret[:6]):
            for field in (name, "q"):
                assert names((await list_turns(summaries, Query.of({field: part}))).turns) == [], (field, part)
        for whole in (value, f"{name} password=***"):
            assert names((await list_turns(summaries, Query.of({name: whole}))).turns) == ["named"], whole
    async with (
        Engine(model=ScriptedModel(), store=store) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        pages = [(await client.get(path)).text for path in ("/sessions", "/agents")]
        links = [
            html.unescape(link)
            for page in pages
            for link in re.findall(r'href="([^"]*\*\*\*[^"]*|[^"]*%2A[^"]*)"', page)
        ]
        assert any(link.startswith("/session?") for link in links)
        assert any("agent=" in link for link in links)
        for link in links:
            response = await client.get(link)
            assert response.status_code == httpx.codes.OK, link
            assert "named" in response.text, link
            assert secret not in response.text, link
        assert (
            await client.get("/session", params={"session": names_with_secrets["session"]})
        ).status_code == httpx.codes.OK


async def test_page_shows_the_number_of_ignored_search_words() -> None:
    async with (
        Engine(model=ScriptedModel("Done."), store=MemoryStore()) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        turn = await engine.run(Agent(name="A"), "word")
        page = (await client.get("/", params={"q": "word " * 3_000})).text
        assert "The first words of the search are compared. 2,950 more are left out." in page
        assert f'id="row-{turn.id}"' in page
        assert "are left out" not in (await client.get("/", params={"q": "word " * MOST_WORDS})).text


async def test_turns_are_found_by_outcome_reason_agent_and_session() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    await write(store, "ended", facts, session="s")
    await write(store, "left", facts[:3], agent="Bee")
    async with Engine(model=ScriptedModel(asks_for(("ask", {"n": 1}))), tools=TOOLS, store=store) as engine:
        paused = (await engine.run(AGENT, "hi")).id
        for query, expected in (
            (Query(standing="finished"), ["ended"]),
            (Query(standing="paused"), [paused]),
            (Query(standing="unfinished"), ["left"]),
            (Query(standing="crashed"), []),
            (Query(reason="answered"), ["ended"]),
            (Query(reason="budget"), []),
            (Query(agent="EE"), ["left"]),
            (Query(model="M", standing="finished"), ["ended"]),
            (Query(session="s"), ["ended"]),
        ):
            assert names((await list_turns(Summaries(store), query)).turns) == expected, query


async def test_sorted_list_pages_contain_every_turn_once() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for number in range(PAGE + 3):
        await write(store, f"t{number:03}", facts, at=1e9 + 86_400 * number)
    query, seen_names = Query.of({"sort": "tokens", "way": "up"}), list[str]()
    for following in ({"before": str(PAGE)}, None):
        listing = await list_turns(Summaries(store), query)
        seen_names += names(listing.turns)
        assert listing.following == following
        query = replace(query, before=PAGE)
    assert seen_names == [f"t{number:03}" for number in range(PAGE + 3)]
    assert query.sorted_by(Order.TOKENS) == {"sort": "tokens"}
    assert Query().sorted_by(Order.NEWEST) == {"way": "up"}
    assert Query(text="a").sorted_by(Order.COST) == {"q": "a", "sort": "cost"}


async def test_turns_are_filtered_by_start_time() -> None:
    """A day ends at midnight, UTC."""
    facts, store = await journal_of_a_turn(), MemoryStore()
    day = 1_000_080_000  # 2001-09-10
    for number, at in enumerate((day - 1, day, day + 86_399, day + 86_400)):
        await write(store, f"t{number}", facts, at=at)
    for query, expected in (
        ({"since": "2001-09-10", "until": "2001-09-10"}, ["t2", "t1"]),
        ({"since": str(day + 1)}, ["t3", "t2"]),
        ({"until": "2001-09-09"}, ["t0"]),
        ({"range": "24h"}, []),
        ({"since": "yesterday", "until": "2001-13-01"}, ["t3", "t2", "t1", "t0"]),
    ):
        assert names((await list_turns(Summaries(store), Query.of(query))).turns) == expected, query


async def test_totals_cover_all_pages() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for number in range(PAGE + 3):
        await write(store, f"t{number}", facts)
    async with (
        Engine(model=ScriptedModel(), store=store) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        # A page waits for the summaries for a moment only.
        while "the totals grow" in (page := (await client.get("/?agent=A")).text):
            await anyio.lowlevel.checkpoint()
        assert f"<dt>Turns</dt><dd>{PAGE + 3}</dd>" in page
        assert f'<dt>finished</dt><dd>{PAGE + 3} <span class="quiet">100 %</span>' in page
        assert 'aria-sort="descending"><a class="sorts" href="/?agent=A&amp;way=up">Began' in page


async def test_turns_are_listed_before_the_background_summary() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for number in range(PAGE):
        await write(store, f"t{number}", facts)
    summaries = Summaries(store)
    listing = await list_turns(summaries, Query())
    assert (len(listing.turns), listing.current) == (PAGE, False)
    assert all(row.turn.prompt == "hi" for row in listing.turns)
    await summaries.catch_up()
    assert (await list_turns(summaries, Query())).current


async def test_disabled_search_keeps_no_text_but_finds_names() -> None:
    async with (
        Engine(model=ScriptedModel("done"), tools=TOOLS, store=MemoryStore()) as engine,
        browser(inspector_app(engine, access=Open(), search=False)) as client,
    ):
        turn = await engine.run(AGENT, "zebra")
        for text, count in (("zebra", 0), ("done", 0), (turn.id, 1), ("nybod", 1)):
            assert (await client.get("/", params={"q": text})).text.count('id="row-') == count, text


async def test_search_does_not_reveal_a_secret_of_a_turn() -> None:
    """Neither as a word of a search, nor by what it begins with."""
    facts, store = await journal_of_a_turn(), MemoryStore()
    secret = "sk-" + "abcdefgh1234" * 3
    await write(store, "t", facts, prompt=f"The key {secret} works")
    for text, expected in (("works", ["t"]), (secret, []), (secret[:12], []), ("abcdefgh1234", [])):
        listing = await list_turns(Summaries(store), Query(text=text))
        assert names(listing.turns) == expected, text


async def test_turn_with_a_dead_driver_is_crashed() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    claim = await store.create(NewTurn("dead", None, "A", "m", 1.0), facts[:3], Status(State.STREAM, 1))
    await store.release(claim, crashed=True)
    await write(store, "left", facts[:3])
    listing = await list_turns(Summaries(store), Query(standing="crashed"))
    assert names(listing.turns) == ["dead"]


def test_meaningless_address_asks_for_everything() -> None:
    address = {"q": " a\0b ", "outcome": "nonsense", "reason": "x", "before": "-1", "agent": "", "other": "1"}
    assert Query.of(address) == Query(text="ab")
    assert Query.of({"before": "9" * 40}).before is None
    query = Query.of({"q": "a", "outcome": "paused", "reason": "budget", "session": "s&t"})
    assert Query.of(query.address) == query


async def test_pages_contain_every_turn_once_during_changes() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    total = 2 * PAGE + 7
    for number in range(total):
        await write(store, f"t{number:03}", facts)
    seen_names, before = list[str](), None
    for page in range(3):
        listing = await list_turns(Summaries(store), Query(before=before))
        seen_names += names(listing.turns)
        before = int(listing.following["before"]) if listing.following else None
        await write(store, f"new{page}", facts)
        if page == 0:
            await store.delete("t010")
    assert before is None
    assert seen_names == [f"t{number:03}" for number in reversed(range(total)) if number != 10]


async def test_exactly_full_page_is_the_last() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for number in range(PAGE):
        await write(store, f"t{number:03}", facts)
    assert (await list_turns(Summaries(store), Query())).following is None


async def test_sub_agents_are_listed_below_callers_at_every_depth() -> None:
    models = {
        "": ScriptedModel(
            asks_for(("Helper", {"prompt": "a"}), ("ok", {})),
            asks_for(("Under", {"prompt": "b"})),
            asks_for(("ok", {"n": 3})),
            "under",
            "helped",
            "done",
        )
    }
    tools = [*TOOLS, agent_tool(HELPER), agent_tool(UNDER)]
    async with Engine(model=models[""], tools=tools, limits=Limits(tool_calls=40)) as engine:
        turn = await engine.run(AGENT, "hi")
        (listed,) = (await list_turns(Summaries(engine.store), Query())).turns
        (helper,) = listed.children
        (under,) = helper.children
        assert [row.row.agent for row in (listed, helper, under)] == ["Anybody", "Helper", "Under"]
        assert under.row.id.startswith(f"{helper.row.id}:")
        counted = await statistics_of(Summaries(engine.store))
        assert counted.turns == 1
        assert {tool.tool: tool.calls for tool in counted.tools} == {"Helper": 1, "Under": 1, "ok": 2}
        assert counted.usage == (await engine.get(turn.id)).usage


async def test_cost_column_is_shown_if_a_turn_has_a_cost() -> None:
    priced = structs.replace(asks_for(text="done"), usage=Usage(input_tokens=10, output_tokens=1, cost=0.5))
    async with (
        Engine(model=ScriptedModel("done", priced), tools=TOOLS, store=MemoryStore()) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        for heading in (False, True):
            await engine.run(AGENT, "hi")
            page = (await client.get("/")).text
            assert (">Cost</a>" in page) is heading
            assert page.count('data-label="Cost"') == 2 * heading


async def test_facts_copied_by_a_fork_count_once() -> None:
    def line(text: str, *calls: tuple[str, dict[str, JsonValue]]) -> ModelResponse:
        return structs.replace(asks_for(*calls, text=text), usage=Usage(input_tokens=10, output_tokens=1, cost=0.5))

    model = ScriptedModel(
        ModelError("busy", cause=Cause.OVERLOADED), line("", ("ok", {}), ("ask", {})), line("one"), line("other")
    )
    never = Backoff(initial=0.0, max_retry_after=0.0)
    async with Engine(model=model, tools=TOOLS, backoff=never, store=MemoryStore()) as engine:
        turn: TurnResult = await engine.run(AGENT, "hi")
        turn = await engine.resume(turn.id, {interrupt.id: approve() for interrupt in turn.interrupts})
        before = await statistics_of(Summaries(engine.store))
        assert {tool.tool: tool.calls for tool in before.tools} == {"ok": 1, "ask": 1}
        assert (before.retries, before.pauses, before.usage) == (1, 1, turn.usage)
        place = fork_places(turn.id, await engine.store.facts(turn.id))[-1].last
        fork = await engine.fork(turn.id, at=place)
        copied = await statistics_of(Summaries(engine.store))
        assert (copied.turns, copied.tools, copied.usage) == (2, before.tools, before.usage)
        assert (copied.retries, copied.pauses, copied.seconds.p50) == (1, 1, 0.0)
        went_on = await engine.resume(fork)
        after = await statistics_of(Summaries(engine.store))
        assert after.tools == before.tools
        assert after.usage == before.usage + Usage(input_tokens=10, output_tokens=1, cost=0.5)
        # The fork's own page has the copied part too.
        assert went_on.usage == turn.usage


@pytest.mark.parametrize("place", [-5, 0, 3, 10**6, 10**400])
async def test_fork_with_any_starting_place_is_counted(place: int) -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    await write(store, "t", [structs.replace(facts[0], forked_from="other", forked_at=place), *facts[1:]])
    counted = await statistics_of(Summaries(store))
    assert counted.turns == 1
    assert sum(tool.calls for tool in counted.tools) == (place < len(facts))


class Deleting(MemoryStore):
    """A store where somebody deletes a turn right before its journal is read."""

    gone = ""

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
        if turn_id == self.gone:
            await self.delete(turn_id)
        return await super().facts(turn_id, after)


async def test_turn_deleted_during_listing_is_left_out() -> None:
    facts, store = await journal_of_a_turn(), Deleting()
    for name in ("a", "b", "c"):
        await write(store, name, facts)
    store.gone = "b"
    assert names((await list_turns(Summaries(store), Query())).turns) == ["c", "a"]
    await write(store, "b", facts)
    assert (await statistics_of(Summaries(store))).turns == 2
    await write(store, "b", facts, prompt="found")
    assert (await list_turns(Summaries(store), Query(text="found"))).turns == ()


async def test_totals_are_never_older_than_the_turn() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    claim = await store.create(NewTurn("t", None, "A", "m", 1.0), facts[:1], Status(State.STREAM, 1))
    summaries, turn = Summaries(store), SummarizedTurn(await store.get("t"))
    for place, fact in enumerate(facts[1:], start=1):
        assert (await summaries.read_totals(turn)).seconds == facts[place - 1].elapsed
        await store.append(claim, [fact], Status(State.STREAM, 1))
    # The row is the old one: only the store has the new facts.
    assert (await summaries.read_totals(turn)).seconds == facts[-1].elapsed
    await store.release(claim)
    await store.delete("t")
    await write(store, "t", facts, prompt="another", at=2.0)
    assert (await summaries.read_totals(SummarizedTurn(await store.get("t")))).prompt == "another"
    with pytest.raises(TurnNotFoundError):
        await Summaries(store).read_totals(SummarizedTurn(replace(turn.row, id="deleted")))


async def test_journals_and_summaries_give_the_same_totals() -> None:
    """For turns that ended, paused, were forked, have sub-agents, or are damaged."""
    model = ScriptedModel(
        ModelError("busy", cause=Cause.OVERLOADED),
        structs.replace(asks_for(("ok", {}), ("ask", {})), usage=Usage(input_tokens=10, output_tokens=1, cost=0.5)),
        "done",
        asks_for(("Helper", {"prompt": "a"})),
        "helped",
        asks_for(("ask", {})),
    )
    never, tools = Backoff(initial=0.0, max_retry_after=0.0), [*TOOLS, agent_tool(HELPER), agent_tool(UNDER)]
    store = MemoryStore()
    async with Engine(model=model, tools=tools, backoff=never, store=store) as engine:
        turn = await engine.run(AGENT, "Say\n hi with password=hunter22hunter22.")
        await engine.resume(turn.id, {waiting.id: approve() for waiting in turn.interrupts})
        fork = await engine.fork(turn.id, at=fork_places(turn.id, await store.facts(turn.id))[-1].last)
        caller = await engine.run(AGENT, "Call the helper.")
        facts = [fact for _, fact in await store.facts(turn.id)]
        await write(store, "damaged", [facts[0], *facts[2:]])
        summaries = Summaries(store)
        from_journals = {row.id: await summaries.read_totals(SummarizedTurn(row)) for row in await store.turns()}
        await summaries.catch_up()
        stored = [
            *await summaries.read.find(TurnFilter(), limit=PAGE),
            *await summaries.read.find(TurnFilter(family=caller.id), limit=PAGE),
        ]
        assert {totals.row.id for totals in stored} == set(from_journals)
        assert [totals.summarized for totals in stored].count(False) == 1
        for totals in stored:
            if totals.summarized:
                assert replace(totals, answer="") == from_journals[totals.row.id]
        listed = {turn.row.id: turn for turn in (await list_turns(summaries, Query())).turns}
        assert listed[caller.id].turn.usage == caller.usage
        # The fork has run nothing of its own.
        assert listed[fork].turn == from_journals[fork]
        assert (listed[fork].turn.usage, listed[fork].turn.seconds) == (Usage(), 0.0)


async def test_outcomes_are_counted_over_time_and_every_turn_is_in_a_column() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for hour in range(100):
        await write(store, f"t{hour}", facts if hour % 3 else facts[:3], at=1e9 + 3600 * hour)
    counted = await statistics_of(Summaries(store))
    assert counted.turns == 100
    assert counted.all_seen
    assert counted.standings == {**dict.fromkeys(STANDINGS, 0), "finished": 66, "unfinished": 34}
    assert counted.plot is not None
    assert counted.plot.names == ("finished", "unfinished")
    assert sum(row.total for row in counted.plot.rows) == 100
    assert counted.plot.width == 4 * 3600
    assert sum(group.count for group in counted.steps) == 100
    assert counted.reasons == ((EndReason.ANSWERED, 66),)
    assert counted.limits == ()
    assert [group.label for group in counted.steps] == ["2"]


async def test_statistics_count_only_the_newest_turns() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for number in range(6):
        await write(store, f"t{number}", facts, agent="B" if number % 2 else "A")
        await write(store, f"t{number}:call00001", facts)
    counted = await statistics_of(Summaries(store), last=4)
    assert (counted.turns, counted.all_seen) == (4, False)
    assert (await statistics_of(Summaries(store), last=6)).all_seen
    assert (await statistics_of(Summaries(store), last=4, agent="B")).turns == 3
    nothing = await statistics_of(Summaries(MemoryStore()))
    assert (nothing.turns, nothing.plot, nothing.steps) == (0, None, ())


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0.0), ([3.0], 0.9, 3.0), ([4, 1, 3, 2], 0.5, 2), ([4, 1, 3, 2, 5], 0.5, 3), (range(1, 11), 0.9, 9)],
)
def test_quantile_bounds_the_given_share_of_values(values: Sequence[float], share: float, expected: float) -> None:
    assert quantile(values, share) == expected


def test_impossible_step_counts_are_in_the_last_group() -> None:
    """A recorded run may have them."""
    assert [(group.label, group.count) for group in group_by_steps([150, 201, 9_000])] == [
        ("101-200", 1),
        ("over 200", 2),
    ]


async def test_page_has_quantiles_and_omits_all_zero_columns() -> None:
    async with (
        Engine(model=ScriptedModel("done", repeat=True), tools=TOOLS, store=MemoryStore()) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        for _ in range(3):
            await engine.run(AGENT, "hi")
        page = (await client.get("/statistics")).text
    for heading in ("p50", "p90", "p99"):
        assert f'<th scope="col" class="num">{heading}</th>' in page
    for word in ("Errors", "Retries", "Cost"):
        assert word not in page
    assert "(UTC)</text>" in page
    assert Quantiles.of([1.0, 2.0, 3.0]) == Quantiles(2.0, 3.0, 3.0, 3.0)


async def test_cost_of_a_turn_has_a_currency() -> None:
    answer = ModelResponse(text="done", usage=Usage(input_tokens=1, output_tokens=1, cost=0.25))
    async with (
        Engine(model=ScriptedModel(answer), store=MemoryStore()) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        await engine.run(AGENT, "hi")
        page = (await client.get("/statistics")).text
    assert page.count('<td class="num">$0.2500</td>') == 4


async def test_reading_many_journals_lets_other_tasks_run() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for number in range(20):
        await write(store, f"t{number}", facts)
    turns = 0
    done = False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await statistics_of(Summaries(store))
        done = True
    assert turns >= 20


async def test_text_search_in_known_turns_lets_other_tasks_run() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for number in range(320):
        await write(store, f"t{number}", facts)
    await list_turns(Summaries(store), Query(text="nowhere"))
    turns, searched, done = 0, 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await list_turns(Summaries(store), Query(text="nowhere"))
        searched, turns = turns, 0
        await statistics_of(Summaries(store))
        done = True
    assert searched >= 20
    assert turns >= 20


async def test_turn_without_a_valid_time_is_counted_outside_the_plot() -> None:
    facts, store = await journal_of_a_turn(), MemoryStore()
    for minute in range(10):
        await write(store, f"t{minute}", facts, at=1.7e9 + 60 * minute)
    for number, at in enumerate((0.0, 946_684_800.0, 9e9, -5.0, 1e11)):
        await write(store, f"odd{number}", facts, at=at)
    counted = await statistics_of(Summaries(store))
    assert counted.plot is not None
    assert (counted.turns, counted.untimed, len(counted.plot.rows), counted.plot.width) == (15, 5, 10, 15)
    async with (
        Engine(model=ScriptedModel(), store=store) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        assert "5 turns are in no column" in (await client.get("/statistics")).text
        for minute in range(10):
            await store.delete(f"t{minute}")
        assert "5 turns are in no column" in (await client.get("/statistics")).text
