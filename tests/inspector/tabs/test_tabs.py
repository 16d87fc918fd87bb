"""The tabs of turns of every kind agree with the turn's own figures and with a replay."""

import ast
import html
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.hypothesis_examples import percent_of_examples
from tests.inspector.conftest import browser
from tests.inspector.turns_made import AGENT, TOOLS, kept, look, look_at_each_step, rows_of
from tests.secrets_made import SECRETS
from tests.servers.forked_python import Python

from turnwright import Agent, Engine, Price, StoreError
from turnwright.journal.answers import approve
from turnwright.journal.fork import fork_places
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.privacy.redaction import redactor
from turnwright.store import MemoryStore, SqliteStore
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.http.render import beginning
from turnwright_inspector.tabs import budgets, journal, reproduce, timeline, transcript
from turnwright_inspector.views.pagination import Window
from turnwright_inspector.views.timeline import WIDTH, marks_of
from turnwright_inspector.views.turn_record import TabContext
from turnwright_inspector.views.waterfall import BarKind
from turnwright_states import Cause, Limits
from turnwright_states import facts as f
from turnwright_states.chart import CHART
from turnwright_testing import Driven, FaultyStore, Scenario, play
from turnwright_testing.strategies import scenarios

#: The width of the narrowest bar.
NARROWEST = 2.0
NEVER_WAIT = Backoff(initial=0.0, max_retry_after=0.0)


@settings(max_examples=percent_of_examples(30))
@given(scenarios(TOOLS))
def test_tabs_agree_with_the_journal_of_any_turn(scenario: Scenario) -> None:
    driven = play(scenario, agent=AGENT, tools=TOOLS)
    anyio.run(partial(_check_all, driven))


async def _check_all(driven: Sequence[Driven]) -> None:
    engine, names = await kept(driven)
    for name in names:
        whole, steps = await look(engine, name), await look_at_each_step(engine, name)
        check_budgets(whole, steps)
        check_timeline(whole)
        check_journal(whole, steps)
        check_transcript(whole)
        for looked in steps.values():
            check_places(looked)


def check_budgets(whole: TabContext, steps: Mapping[str, TabContext]) -> None:
    """The gauges are the turn's counters, and what the steps used adds up to them."""
    result, gauges = whole.turn.result, {gauge.name: gauge for gauge in budgets.view(whole).gauges}
    assert gauges["steps"].amount == result.steps
    assert gauges["tool calls"].amount == result.tool_calls
    assert gauges["tokens"].amount == result.usage.tokens
    stops = [fact.elapsed for _, fact in whole.turn.journal if isinstance(fact, f.Stopping)]
    assert gauges["seconds"].amount == (*stops, result.seconds)[0], "no limit counts the concluding call"
    assert all(0 <= gauge.share <= 1 and gauge.by_step is None for gauge in gauges.values())
    summed: dict[str, float] = {}
    for looked in steps.values():
        for gauge in budgets.view(looked).gauges:
            assert gauge.by_step is not None
            summed[gauge.name] = summed.get(gauge.name, 0) + gauge.by_step
    for name, amount in summed.items():
        assert amount == pytest.approx(gauges[name].amount), name
    stopped = [gauge for gauge in gauges.values() if gauge.stopped]
    assert len(stopped) <= 1


def check_timeline(whole: TabContext) -> None:
    """Bars lie on the picture, and those of calls and attempts within their step's, but for the narrowest."""
    processes = timeline.view(whole).processes
    lanes = rows_of(timeline.view, whole, lambda view: view.lanes)
    for lane in (*processes, *lanes):
        for bar in lane.bars:
            assert bar.width > 0
            assert 0 <= bar.x <= bar.x + bar.width <= WIDTH + 1e-6
    for lane in lanes:
        step = next(other_lane for other_lane in lanes if other_lane.step == lane.step and not other_lane.depth).bars[0]
        assert step.kind is BarKind.STEP
        for bar in lane.bars:
            assert step.x - 1e-6 <= bar.x
            assert bar.x + bar.width <= step.x + step.width + NARROWEST + 1e-6
    assert [lane.step for lane in lanes if not lane.depth] == [step.key for step in whole.turn.steps]
    calls = sum(len(step.calls) for step in whole.turn.steps)
    assert sum(lane.depth == 1 for lane in lanes) == calls
    tried = sum(len(call.attempts) for step in whole.turn.steps for call in step.calls)
    assert sum(bar.kind is BarKind.CALL for lane in lanes for bar in lane.bars) == tried


def check_journal(whole: TabContext, steps: Mapping[str, TabContext]) -> None:
    """Every fact once, in order, with its event; the facts of the steps are all of them."""
    entries = rows_of(journal.view, whole, lambda view: view.entries)
    assert [entry.seq for entry in entries] == [seq for seq, _ in whole.turn.journal]
    assert journal.view(whole).verdict == "holds"
    assert all(entry.event for entry in entries)
    groups = whole.turn.replayed.groups
    assert sum(entry.first for entry in entries) == sum(entry.last for entry in entries) == len(groups)
    assert [row for entry in entries for row in entry.rows] == [row.name for group in groups for row in group.rows]
    if steps:
        parts = [rows_of(journal.view, looked, lambda view: view.entries) for looked in steps.values()]
        assert [entry.seq for part in parts for entry in part] == [entry.seq for entry in entries]


def check_transcript(whole: TabContext) -> None:
    """Every part of every message once, each result in the row of its call, at the fact that it came from."""
    lines = transcript.view(whole).lines
    messages = whole.turn.result.messages
    parts_shown = [part for line in lines for part in line.parts]
    rows = [part.row for part in parts_shown if part.row is not None]
    parts = [*(part.part for part in parts_shown), *(row.result for row in rows if row.result is not None)]
    message_parts = [part for message in messages for part in message.parts if not part.type.startswith("step_")]
    assert sorted(parts, key=lambda part: part.seq) == sorted(message_parts, key=lambda part: part.seq)
    assert all(row.result.call == row.id and row.status == row.result.status for row in rows if row.result)
    assert [line.number for line in lines] == sorted({line.number for line in lines})
    assert len({line.id for line in lines}) == len(lines)
    assert all(1 <= part.fact <= whole.turn.length for part in parts_shown)


def check_places(looked: TabContext) -> None:
    """Each fork that is offered begins at a place where the turn can be forked."""
    places = {group.last for group in fork_places(looked.turn.row.id, looked.turn.journal)}
    for command in reproduce.commands_of(looked):
        words = shlex.split(command.line)
        if words[1] == "fork":
            assert int(words[words.index("--at") + 1]) in places


pytestmark = pytest.mark.anyio


async def test_step_can_be_repeated_from_the_model_call() -> None:
    """The fork that is offered for a step calls the model with what that step was sent."""
    model = ScriptedModel(asks_for(("ok", {"n": 1})), asks_for(("ok", {"n": 2})), "done", repeat=True)
    async with Engine(model=model, tools=TOOLS) as engine:
        turn = await engine.run(AGENT, "hi")
        for number, (_key, looked) in enumerate((await look_at_each_step(engine, turn.id)).items()):
            (again,) = [command for command in reproduce.commands_of(looked) if command.does.startswith("Repeat")]
            at = int(shlex.split(again.line)[4])
            fork = await engine.fork(turn.id, at=at)
            before = len(model.requests)
            await engine.resume(fork)
            assert model.requests[before].messages == model.requests[number].messages


async def test_turn_that_asks_for_no_conclusion_shows_only_the_calls_made() -> None:
    model = ScriptedModel(asks_for(("ok", {})))
    async with Engine(model=model, tools=TOOLS) as engine:
        turn = await engine.run(Agent(name="A", steps=1, concluding="never"), "hi")
        whole = await look(engine, turn.id)
    gauges = {gauge.name: gauge.amount for gauge in budgets.view(whole).gauges}
    assert gauges["model calls"] == len(model.requests) == 1


async def a_capped_turn(file: Path) -> str:
    lines = (
        asks_for(("ok", {"n": 1}), ("fail", {}), text=f"I use {SECRETS[0]}, and \N{SNOWMAN} \x00 too"),
        ModelError("busy", cause=Cause.OVERLOADED),
        asks_for(("ok", {"n": 2})),
        "Capped.",
    )
    async with Engine(
        model=ScriptedModel(*lines), tools=TOOLS, store=f"sqlite:///{file}", backoff=NEVER_WAIT
    ) as engine:
        return (await engine.run(Agent(name="A", steps=2, budget=Limits(tokens=500)), f"hi, {SECRETS[1]}")).id


def test_each_generated_test_passes_unchanged(tmp_path: Path) -> None:
    """Of the whole turn and of each of its steps; and no secret is in it, not even in pieces."""
    file = tmp_path / "turns.db"
    name = anyio.run(a_capped_turn, file)

    async def views() -> list[reproduce.ReproduceView]:
        async with Engine(tools=TOOLS, store=SqliteStore(file)) as engine:
            whole = await look(engine, name)
            return [
                await to_thread.run_sync(reproduce.view, looked)
                for looked in (whole, *(await look_at_each_step(engine, name)).values())
            ]

    test_views = anyio.run(views)
    assert len({view.file for view in test_views}) == len(test_views) == 4
    for view in test_views:
        assert view.missing == ""
        constants = (node.value for node in ast.walk(ast.parse(view.test)) if isinstance(node, ast.Constant))
        words = "".join(map(str, constants))
        assert all(secret not in words for secret in SECRETS[:2])
        scope: dict[str, object] = {}
        exec(compile(view.test, view.file, "exec"), scope)  # noqa: S102 (it is what is tested)
        (test,) = [value for name, value in scope.items() if name.startswith("test_")]
        assert callable(test)
        test()


@pytest.mark.slow
def test_displayed_read_only_commands_work(tmp_path: Path, python: Python) -> None:
    file = tmp_path / "turns.db"
    name = anyio.run(a_capped_turn, file)

    async def commands() -> list[reproduce.Command]:
        async with Engine(tools=TOOLS, store=SqliteStore(file)) as engine:
            steps = (await look_at_each_step(engine, name)).values()
            looks = [await look(engine, name), *steps]
            return [
                command for looked in looks for command in (await to_thread.run_sync(reproduce.view, looked)).commands
            ]

    ran: set[str] = set()
    for command in anyio.run(commands):
        words = shlex.split(command.line.replace("sqlite:///turns.db", f"sqlite:///{file}"))[1:]
        if words[0] == "run":
            assert words[:3] == ["run", "--continue", name]
        elif (
            kind := f"{words[0]}{'--as-test' in words}"
        ) not in ran:  # the places of the other forks are checked above
            ran.add(kind)
            words += ["--no-run"] if command.runs else []
            done = python.run("-m", "turnwright", *words)
            assert done.returncode == 0, (words, done.stderr)
    assert ran == {"showFalse", "showTrue", "replayFalse", "forkFalse"}


async def test_turn_resumed_by_another_process_has_two_process_lanes(tmp_path: Path) -> None:
    """The second one's lane is hatched as far as it only read, and a call that ran again has two bars."""
    file, model = tmp_path / "turns.db", ScriptedModel(asks_for(("again", {"n": 1})), "done")
    async with Engine(model=model, tools=TOOLS, store=FaultyStore(SqliteStore(file), at=f.CallSettled)) as engine:
        with pytest.raises(StoreError):
            await engine.run(AGENT, "hi")
    async with Engine(model=model, tools=TOOLS, store=SqliteStore(file), backoff=NEVER_WAIT) as engine:
        name = (await engine.store.turns())[0].id
        await engine.resume(name)
        view = timeline.view(await look(engine, name))
        facts = [fact for _, fact in await engine.store.facts(name)]
    assert [[bar.kind for bar in lane.bars] for lane in view.processes] == [
        [BarKind.DRIVEN],
        [BarKind.READ, BarKind.DRIVEN],
    ]
    assert len(view.boundaries) == 1
    starts = sum(isinstance(fact, f.CallStarted) for fact in facts)
    (call,) = [lane for lane in view.lanes if lane.depth]
    assert len(call.bars) == starts


async def test_facts_copied_by_a_fork_are_distinguished() -> None:
    model = ScriptedModel(asks_for(("ok", {"n": 1})), "done", "other")
    async with Engine(model=model, tools=TOOLS) as engine:
        turn = await engine.run(AGENT, "hi")
        fork = await engine.fork(turn.id, at=fork_places(turn.id, await engine.store.facts(turn.id))[1].last)
        copied = timeline.view(await look(engine, fork))
        assert [[bar.kind for bar in lane.bars] for lane in copied.processes] == [[BarKind.COPIED]]
        await engine.resume(fork)
        went_on = timeline.view(await look(engine, fork))
        assert [bar.kind for lane in went_on.processes for bar in lane.bars] == [
            BarKind.COPIED,
            BarKind.READ,
            BarKind.DRIVEN,
        ]
        assert [lane.label for lane in went_on.processes] == ["Process 1", "Process 1 again"]


async def test_pause_does_not_count_as_another_process() -> None:
    async with Engine(model=ScriptedModel(asks_for(("ask", {"n": 1})), "done"), tools=TOOLS) as engine:
        turn = await engine.run(AGENT, "hi")
        await engine.resume(turn.id, {interrupt.id: approve() for interrupt in turn.interrupts})
        view = timeline.view(await look(engine, turn.id))
        assert [boundary.is_other_owner for boundary in view.boundaries] == [False]


@pytest.mark.parametrize("total", [0.0, 1e-320, 1e-5, 0.3, 1.0, 7.0, 3599.0, 1e6, 1e300])
def test_scale_has_few_marks_inside_the_range(total: float) -> None:
    marks = marks_of(total)
    assert 1 <= len(marks) <= 9
    assert all(0 <= mark <= max(total, 0) * (1 + 1e-9) for mark in marks)


async def long_turn(file: Path, *, steps: int = 25, calls: int = 8) -> str:
    numbers = iter(range(10_000))

    def say(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return "Enough."
        return asks_for(*[("ok", {"n": next(numbers)}) for _ in range(calls)])

    limits = Limits(tool_calls=10_000)
    model = ScriptedModel(say, repeat=True)
    async with Engine(model=model, tools=TOOLS, store=SqliteStore(file), limits=limits) as engine:
        return (await engine.run(Agent(name="A", steps=steps), "hi")).id


#: What a row of each tab has in its page, alone.
ROWS = {
    "journal": r'id="fact-(\d+)"',
    "transcript": r'data-call="call(\d+)"',
    "timeline": r'aria-label="ok: ok call(\d+)',
    "request": r'<span class="quiet small">(\d+) · |<span class="label">(\d+) · ',
    "chart": r'<h3 class="way-step"><a [^>]*>([^<]*)</a>',
}


@pytest.mark.slow
@pytest.mark.parametrize("tab", ROWS)
async def test_page_shows_a_part_of_a_long_turn_and_links_to_the_rest(tab: str, file: Path) -> None:
    name = await long_turn(file)
    async with (
        Engine(tools=TOOLS, store=SqliteStore(file)) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        pages: list[str] = []
        address = f"/turns/{name}?tab={tab}"
        while address:
            response = await client.get(address)
            assert response.status_code == 200
            pages.append(response.text)
            link = re.search(r'href="([^"]*)" rel="prev"', response.text)
            address = html.unescape(link[1]) if link else ""
            assert not address or f"tab={tab}" in address
        page_rows = [["".join(groups) for groups in re.findall(ROWS[tab], page)] for page in pages]
        assert len(pages) > 1
        assert 'rel="next"' not in pages[0]
        rows = {row for part in page_rows for row in part}
        assert all(part for part in page_rows)
        # Only the oldest page may repeat some of the one after it, to be as full as the others.
        assert sum(map(len, map(set, page_rows[:-1]))) == len({row for part in page_rows[:-1] for row in part})
        whole = (await look(engine, name)).turn
        calls = sum(len(step.calls) for step in whole.steps)
        many = {"journal": whole.length, "transcript": calls, "timeline": calls, "chart": len(whole.steps)}
        assert len(rows) >= many.get(tab, 50)
        assert max(map(len, pages)) < 400_000
        # The first part, and on from there with the links that lead there.
        first = await client.get(f"/turns/{name}?tab={tab}&until=1")
        later = re.search(r'href="([^"]*)" rel="next"', first.text)
        assert later is not None
        assert set(re.findall(ROWS[tab], first.text)) == set(re.findall(ROWS[tab], pages[-1]))
        after = (await client.get(html.unescape(later[1]))).text
        assert not set(re.findall(ROWS[tab], after)) <= set(re.findall(ROWS[tab], first.text))


@pytest.mark.slow
async def test_chart_folds_untaken_rows_and_links_to_the_full_chart(file: Path) -> None:
    name = await long_turn(file, calls=1, steps=2)
    async with (
        Engine(tools=TOOLS, store=SqliteStore(file)) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        main = (await client.get(f"/turns/{name}?tab=chart&step=1")).text
        link = re.search(r'id="chart-view" href="([^"]*)"', main)
        assert link is not None
        assert main.count('class="line-of-card') == main.count('class="line-of-card taken') < 10
        full = (await client.get(html.unescape(link[1]))).text
        assert full.count('class="line-of-card') == len(CHART.rows)
        back = re.search(r'id="chart-view" href="([^"]*)"', full)
        assert back is not None
        assert html.unescape(back[1]) == f"/turns/{name}?step=1&tab=chart"


async def test_chart_state_opens_facts_linking_to_the_journal() -> None:
    async with (
        Engine(model=ScriptedModel(asks_for(("ok", {"n": 1})), "done"), tools=TOOLS, store=MemoryStore()) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        name = (await engine.run(AGENT, "hi")).id
        page = (await client.get(f"/turns/{name}?tab=chart")).text
        links = dict(re.findall(r'data-state="(\w+)"[^>]* href="([^"]*)"', page))
        assert set(links) == {"CHECK", "STREAM", "TOOL_EXEC", "CONTINUE", "FINISHED"}
        facts = (await client.get(html.unescape(links["TOOL_EXEC"]))).text
        assert "Facts in TOOL_EXEC" in facts
        fact_links = re.findall(r'href="([^"]*)#fact-(\d+)">(\w+)</a>', facts)
        assert {"model_replied", "call_settled"} <= {kind for _, _, kind in fact_links}
        for address, seq, _ in fact_links:
            assert f'id="fact-{seq}"' in (await client.get(html.unescape(address))).text
        assert 'id="way-back"' not in (await client.get(f"/turns/{name}?tab=chart&state=nowhere")).text


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["journal", "transcript", "timeline"])
async def test_chosen_step_of_a_long_turn_is_shown_and_kept_by_links(tab: str, file: Path) -> None:
    name = await long_turn(file, calls=90, steps=4)
    async with (
        Engine(tools=TOOLS, store=SqliteStore(file)) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        whole = (await look(engine, name)).turn
        step = whole.steps[1]
        page = (await client.get(f"/turns/{name}?tab={tab}&step=2&at={whole.length - 5}")).text
        first_call = f"call{int(step.calls[0].made.id.removeprefix('call')):05}"
        assert first_call in page if tab != "journal" else f'id="fact-{step.last}"' in page
        links = re.findall(r'href="([^"]*)" rel="(?:prev|next)"', page)
        assert links
        for link in map(html.unescape, links):
            assert "step=2" in link
            assert f"tab={tab}" in link
            assert "at=" in link


@given(st.integers(1, 400), st.integers(1, 60))
def test_windows_are_full_and_cover_all_rows(total: int, size: int) -> None:
    window = Window.of(total, size, None)
    assert window.last == total
    covered = set(range(window.first, window.last + 1))
    while window.earlier is not None:
        window = Window.of(total, size, window.earlier)
        assert len(range(total)[window.part]) == size
        assert window.later is not None
        covered |= set(range(window.first, window.last + 1))
    assert covered == set(range(1, total + 1))


@given(
    st.integers(0, 400), st.integers(1, 60), st.none() | st.integers(0, 10**14), st.integers(1, 400), st.integers(0, 99)
)
def test_window_covers_the_chosen_rows_for_any_request(
    total: int, size: int, until: int | None, chosen: int, more: int
) -> None:
    first = min(chosen, total)
    within = (first, min(first + more, total)) if total else None
    window = Window.of(total, size, until, within)
    assert 0 <= window.first - 1 <= window.last <= total
    assert window.last - window.first + 1 == (total if total <= size + size // 10 else size)
    if until is None and within:
        assert window.first <= within[0] <= window.last


async def test_overlong_texts_in_the_journal_are_cut_with_a_notice() -> None:
    async with Engine(model=ScriptedModel("x" * 100_000), stop_repetition=False) as engine:
        turn = await engine.run(AGENT, "hi")
        view = journal.view(await look(engine, turn.id))
        assert max(len(entry.payload) for entry in view.entries) < 10_000
        assert any("92,000 more characters" in entry.payload for entry in view.entries)


#: Entries that no page may stumble over, as a forged journal may have them.
ODD_DETAILS: list[dict[str, JsonValue]] = [
    {"order": ["item", 5]},
    {"shown": {"type": "custom_tool_call"}},
    {"item": "text"},
    {"item": {"type": ["list"]}},
    {"item": {}, "shown": None, "annotations": 5},
    {"type": None},
    {},
]


async def test_items_of_hosted_tools_are_shown_with_the_reasoning() -> None:
    search: dict[str, JsonValue] = {"type": "web_search_call", "action": {"query": "weather in Paris"}}
    sealed: dict[str, JsonValue] = {"type": "reasoning", "encrypted_content": "gAAAA"}
    items: list[dict[str, JsonValue]] = [{"type": "openai_response", "item": item} for item in (sealed, search)]
    items += [{"type": "openai_response", **odd} for odd in ODD_DETAILS]
    items.append({"type": "openai_response", "annotations": [{"url": "https://meteo.example"}]})
    items.append({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"title": "A forecast"}]})
    reply = ModelResponse(text="Rain.", reasoning_details=tuple(items))
    async with Engine(model=ScriptedModel(reply)) as engine:
        turn = await engine.run(AGENT, "hi")
        async with browser(inspector_app(engine, access=Open())) as client:
            page = (await client.get(f"/turns/{turn.id}?tab=transcript")).text
    assert "weather in Paris" in page
    assert "run by the provider" in page
    assert "https://meteo.example" in page
    assert "gAAAA" not in page


async def test_very_large_turn_shows_a_command_instead_of_a_test() -> None:
    async with Engine(model=ScriptedModel("x" * 1_100_000), stop_repetition=False) as engine:
        turn = await engine.run(AGENT, "hi")
        view = await to_thread.run_sync(reproduce.view, await look(engine, turn.id))
        assert view.test == ""
        assert "too large" in view.missing
        assert any("--as-test" in command.line for command in view.commands)


async def test_beginning_of_a_long_text_contains_no_partial_secret() -> None:
    secret = SECRETS[0]
    for before in (19_990, 19_999, 20_001):
        text = "x " * (before // 2) + secret + " y" * 50_000
        text_beginning = beginning(text, 20_000, redactor().hide)
        assert "more characters" in text_beginning
        assert secret[:8] not in text_beginning
        assert len(text_beginning) < 20_100


@pytest.mark.parametrize(("calls", "warned"), [(8, False), (9, True)])
async def test_limit_warns_from_90_percent(calls: int, warned: bool) -> None:
    numbers = iter(range(calls))
    model = ScriptedModel(asks_for(*[("ok", {"n": number}) for number in numbers]), "done")
    async with Engine(model=model, tools=TOOLS, limits=Limits(tool_calls=10)) as engine:
        turn = await engine.run(AGENT, "hi")
        async with browser(inspector_app(engine, access=Open())) as client:
            page = (await client.get(f"/turns/{turn.id}?tab=budgets")).text
    assert ("near its limit" in page) is warned
    assert ("stop-warns" in page) is warned
    assert f"The nearest limit is the tool-call limit ({calls} of 10)." in page


@pytest.mark.parametrize(
    ("prices", "expected"), [({}, "none recorded"), ({"scripted": Price(input=1e6, output=0)}, "$1.0000")]
)
async def test_unpriced_cost_is_not_zero(prices: dict[str, Price], expected: str) -> None:
    async with Engine(model=ScriptedModel("done"), prices=prices) as engine:
        turn = await engine.run(AGENT, "hi")
        async with browser(inspector_app(engine, access=Open())) as client:
            budgets = (await client.get(f"/turns/{turn.id}?tab=budgets")).text
            compared = (await client.get("/compare", params={"left": turn.id, "right": turn.id})).text
    for page in (budgets, compared):
        assert expected in page
        assert "$0.0000" not in page
