"""Runs that were recorded elsewhere have pages: what was recorded, what was not, and nothing that was not there."""

import json
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from tests.inspector.conftest import browser, engine_on

from turnwright import Agent, ConfigError, Engine
from turnwright.model import asks_for
from turnwright.store import MemoryStore
from turnwright_audit.transfer import export_turn
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.views.run_library import RunLibrary

pytestmark = pytest.mark.anyio

SECRET = {"password": "hunter22hunter22"}
EVIL = "<script>document.title='owned'</script> \u202e password=hunter22hunter22"


def call(name: str, number: int, **arguments: object) -> dict[str, object]:
    return {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def conversation(*more: dict[str, object]) -> str:
    """A conversation in the form of chat completions, with a call that has a result and one that has none."""
    return json.dumps(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"Look up alpha {EVIL}"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [call("look_up", 1, word="alpha"), call("lost", 2)],
            },
            {"role": "tool", "tool_call_id": "c1", "content": f"nothing {EVIL}"},
            {"role": "assistant", "content": "Nothing was found."},
            *more,
        ]
    )


async def pages(addresses: Iterable[str], *paths: Path) -> list[httpx.Response]:
    """Open pages of an inspector of these files."""
    async with serving(*paths) as (client, _):
        return [await client.get(path, follow_redirects=True) for path in addresses]


@asynccontextmanager
async def serving(*paths: Path) -> AsyncIterator[tuple[httpx.AsyncClient, RunLibrary]]:
    """An inspector of the runs at these paths, which are read."""
    with RunLibrary(paths) as runs:
        async with Engine(store=MemoryStore()) as engine:
            await runs.take_turns(engine.store)
            await anyio.to_thread.run_sync(runs.read)
            async with browser(inspector_app(engine, access=Open(), runs=runs)) as client:
                yield client, runs


async def test_run_shows_calls_and_unrecorded_parts(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(conversation())
    (tmp_path / "two.json").write_text(conversation({"role": "user", "content": "And beta?"}))
    addresses = ("/", "/runs/1", "/runs/2?step=2", "/runs/1/atif.json")
    first, run, chosen, file = await pages(addresses, tmp_path)
    assert first.url.path == "/runs"
    assert "one.json" in first.text
    assert "two.json" in first.text
    text = run.text
    assert "look_up(word=&#34;alpha&#34;)" in text
    assert "no result recorded" in text
    for lack in ("Times were", "Tokens were", "Costs were", "Limits were"):
        assert f"{lack} not recorded." in text
    assert "1 call has no recorded result." in text
    assert "Instructions were not recorded." not in text
    assert "journal or replay" in text
    assert 'aria-current="step"' in chosen.text
    assert "chosen" in chosen.text
    assert json.loads(file.text)["schema_version"].startswith("ATIF")
    for page in (first, run, chosen, file):
        assert page.status_code == 200
        assert "hunter22" not in page.text
        assert "<script>document" not in page.text or page is file
        assert "\u202e" not in page.text or page is file


async def test_runs_are_found_by_name_and_page(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"run-{number:02}.json").write_text(conversation())
    addresses = ("/runs", "/runs?start=50", "/runs?q=RUN-07", "/runs?q=nothing-like")
    listed, later, some, none = await pages(addresses, tmp_path)
    assert rows(listed) == [*range(1, 51)]
    assert "start=50" in listed.text
    assert rows(later) == [*range(51, 61)]
    assert "start=" not in later.text
    assert rows(some) == [8]
    assert "No matches in 60 runs." in none.text


def rows(page: httpx.Response) -> list[int]:
    """The numbers of the runs in a list."""
    return [int(number) for number in re.findall(r'class="cover cut" dir="auto" href="/runs/(\d+)"', page.text)]


def atif(name: str, *messages: Mapping[str, object], **run: object) -> str:
    """A run in the Agent Trajectory Interchange Format."""
    agent = {"name": name, "version": "1", "model_name": f"{name}-model"}
    steps = [{"step_id": number, **fields} for number, fields in enumerate(messages, start=1)]
    return json.dumps({"schema_version": "ATIF-v1.8", "session_id": name, "agent": agent, "steps": steps, **run})


def replies(number: int, tokens: int, day: str = "2026-01-01") -> list[dict[str, object]]:
    """A question and replies with their tokens, a minute each."""
    first: dict[str, object] = {"source": "user", "message": "How many?", "timestamp": f"{day}T10:00:00Z"}
    metrics = {"prompt_tokens": tokens, "completion_tokens": 0, "cost_usd": tokens / 1000}
    return [first] + [
        {"source": "agent", "message": f"Reply {minute}", "timestamp": f"{day}T10:{minute:02}:00Z", "metrics": metrics}
        for minute in range(1, number + 1)
    ]


async def test_runs_are_sorted_filtered_and_added_up(tmp_path: Path) -> None:
    labels = {"extra": {"turnwright": {"success": False, "ending": "cap"}}}
    (tmp_path / "a.json").write_text(atif("cheap", *replies(3, 10)))
    (tmp_path / "b.json").write_text(atif("dear", *replies(2, 500, day="2026-02-01"), **labels))
    (tmp_path / "c.json").write_text(conversation())
    by_tokens, by_steps, by_time, failed, by_name, ending, several = await pages(
        (
            "/runs?sort=tokens",
            "/runs?sort=steps&way=up",
            "/runs?sort=began",
            "/runs?result=failed",
            "/runs?agent=CHE&model=cheap-",
            "/runs?ending=cap&sort=time",
            "/runs?format=ATIF&result=nonsense&sort=nonsense",
        ),
        tmp_path,
    )
    assert rows(by_tokens) == [2, 1, 3]
    assert rows(by_steps) == [2, 3, 1]
    assert rows(by_time) == [2, 1, 3]  # what has no time is the last
    assert rows(failed) == rows(ending) == [2]
    assert rows(by_name) == [1]
    assert rows(several) == [1, 2]
    totals = re.sub(r"<[^>]+>|\s+", " ", by_tokens.text.split('aria-label="Totals of these runs"')[1].split("</dl>")[0])
    totals = " ".join(totals.split())
    assert "Runs 3 Succeeded 0 0 % of 1 that say" in totals
    assert "Steps 7" in totals
    assert "Tokens 1,030" in totals
    assert "$1.0300" in totals
    assert "3 min 0 s" in by_name.text
    assert 'aria-sort="descending"' in by_tokens.text


async def test_search_covers_texts_calls_and_results_without_secrets(tmp_path: Path) -> None:
    call_message: dict[str, object] = {
        "role": "assistant",
        "content": "",
        "tool_calls": [call("write", 3, path="notes.md", **SECRET)],
    }
    (tmp_path / "a.json").write_text(conversation())
    (tmp_path / "b.json").write_text(conversation({"role": "user", "content": "And then?"}, call_message))
    words = ("alpha", "LOOK_UP", "was+found", "then%3F", "write+notes.md", "hunter22hunter22", '"*')
    alpha, tool, answer, then, argument, secret, odd = await pages((f"/runs?q={word}" for word in words), tmp_path)
    assert rows(alpha) == rows(tool) == rows(answer) == [1, 2]
    assert rows(then) == rows(argument) == [2]
    assert rows(secret) == rows(odd) == []


async def test_exported_turn_has_the_pages_of_a_turn(tmp_path: Path, file: Path) -> None:
    async with engine_on(file, "Done.") as engine:
        turn = await engine.run(Agent(name="Cleaner"), "Clean up")
        lines = await export_turn(engine.store, turn.id)
    (tmp_path / "turn.jsonl").write_text("\n".join(lines))
    (tmp_path / "broken.jsonl").write_text("\n".join([lines[0], "{}"]))
    addresses = ("/", f"/turns/{turn.id}?tab=chart", "/runs")
    listed, page, run_list = await pages(addresses, tmp_path / "turn.jsonl", tmp_path / "broken.jsonl")
    assert "Clean up" in listed.text
    assert page.status_code == 200
    assert "FINISHED" in page.text
    assert "No file holds a recorded run." in run_list.text
    assert "line 2: it is not a fact of an exported turn" in run_list.text


async def test_conclusion_of_a_turn_is_none_of_its_steps(file: Path) -> None:
    async with engine_on(file, asks_for(("look", {})), "I looked once.") as engine:
        turn = await engine.run(Agent(name="Cleaner", steps=1), "Clean up")
    assert (turn.steps, turn.reason) == (1, "step_cap")
    [page] = await pages(("/runs/1",), file)
    assert re.findall(r'<span class="(?:step-title|small)">([^<]+)<', page.text) == ["Step 1", "Conclusion"] * 2


async def test_missing_run_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Nothing of the kind.")
    listed, missing, odd = await pages(("/runs", "/runs/1", "/runs/x"), tmp_path / "notes.txt")
    assert "notes.txt" in listed.text
    assert (missing.status_code, odd.status_code) == (404, 404)
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        RunLibrary([tmp_path / "nowhere"])


async def test_search_does_not_find_a_secret_in_a_run_name(tmp_path: Path) -> None:
    (tmp_path / "password=hunter22hunter22.json").write_text(conversation())
    secret, listed = await pages(("/runs?q=hunter22", "/runs?q=PASSWORD"), tmp_path)
    assert "No matches in 1 run" in secret.text
    assert 'href="/runs/1"' in listed.text
    assert "hunter22hunter22" not in listed.text


async def test_two_runs_are_compared_step_by_step(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(conversation({"role": "user", "content": "And beta?"}))
    (tmp_path / "b.json").write_text(conversation({"role": "assistant", "content": "Once more: none."}))
    (tmp_path / "c.json").write_text(atif("other", *replies(1, 5)))
    comparison = "/runs/compare?left=1&right=2"
    addresses = (
        comparison,
        f"{comparison}&pair=2",
        "/runs/compare?left=1",
        "/runs/compare",
        "/runs/compare?left=1&right=x",
    )
    whole, second, offered, empty, unknown = await pages(addresses, tmp_path)
    pairs = [row.split("</tr>")[0] for row in whole.text.split('<tr id="pair-')[1:]]
    assert ["nothing" in row for row in pairs] == [True, True, False]
    assert "only in one" in pairs[2]
    assert "message without a reply" in whole.text
    assert "Once more: none." in whole.text
    assert "The same was sent." in second.text
    assert re.findall(r'right=(\d+)"', offered.text) == ["2"]
    assert "Enter the numbers of two runs" in empty.text
    assert unknown.status_code == 404
    for page in (whole, second, offered):
        assert page.status_code == 200
        assert "hunter22" not in page.text
        assert "<script>document" not in page.text
        assert "\u202e" not in page.text


async def test_request_and_calls_of_a_step_pair_are_compared(tmp_path: Path) -> None:
    for name, word in (("a", "alpha"), ("b", "beta")):
        messages = json.loads(conversation())
        messages[2]["tool_calls"] = [call("look_up", 1, word=word, **SECRET)]
        (tmp_path / f"{name}.json").write_text(json.dumps(messages))
    first, second = await pages((f"/runs/compare?left=1&right=2&pair={pair}" for pair in "12"), tmp_path)
    assert "&#34;word&#34;: &#34;beta&#34;" in first.text
    assert "The same was sent." in first.text
    request = second.text.split('aria-label="Difference of: request"')[1].split("</pre>")[0]
    assert "look_up({&#34;word&#34;: &#34;alpha&#34;" in request
    assert "hunter22" not in first.text + second.text


async def test_timeline_has_the_recorded_times(tmp_path: Path) -> None:
    steps = replies(3, 10)
    steps[1]["tool_calls"] = [{"tool_call_id": "a", "function_name": "look_up", "arguments": {}}]
    times = {"turnwright": {"started_at": "2026-01-01T10:01:10Z", "ended_at": "2026-01-01T10:01:40Z"}}
    steps[1]["observation"] = {"results": [{"source_call_id": "a", "content": "nothing", "extra": times}]}
    (tmp_path / "a.json").write_text(atif("timed", *steps))
    (tmp_path / "b.json").write_text(conversation())
    addresses = (
        "/runs/1?tab=timeline",
        "/runs/1?tab=timeline&step=2&zoom=60-120",
        "/runs/1?call=call-2-1",
        "/runs/2?tab=timeline",
    )
    whole, zoomed, opened, untimed = await pages(addresses, tmp_path)
    assert "look_up call-2-1, attempt 1: recorded, 30.000 s" in whole.text
    assert "model call: 10.000 s" in whole.text
    assert "Step 1: 60.000 s" in whole.text
    assert 'href="/runs/1?step=1&amp;call=call-2-1#call-2-1"' in whole.text
    assert "Whole run" in zoomed.text
    assert 'href="/runs/1?tab=timeline&amp;step=2"' in zoomed.text
    assert 'id="call-2-1" open' in opened.text
    assert "3 min 0 s" in opened.text
    assert "Timeline" not in untimed.text
    assert "Times were not recorded." in untimed.text


@pytest.mark.slow
async def test_very_long_run_is_shown_and_compared_in_parts(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(atif("long", *({"source": "agent", "message": f"Reply {n}"} for n in range(700))))
    (tmp_path / "b.json").write_text(atif("other", *({"source": "agent", "message": f"Word {n}"} for n in range(1500))))
    addresses = (
        "/runs/1",
        "/runs/1?step=400",
        "/runs/compare?left=1&right=2",
        "/runs/compare?left=1&right=2&pair=1400",
    )
    first, middle, compared, last = await pages(addresses, tmp_path)
    assert steps_in(first) == [*range(1, 301), 301]  # and a link to later ones
    assert steps_in(middle) == [249, *range(250, 550), 550]
    pairs = [[int(number) for number in re.findall(r'<tr id="pair-(\d+)"', page.text)] for page in (compared, last)]
    assert pairs == [[*range(1, 301)], [*range(1201, 1501)]]
    assert "pair=301#steps-title" in compared.text
    assert "pair=1200#steps-title" in last.text


def steps_in(page: httpx.Response) -> list[int]:
    """The numbers of the steps that the list beside a run leads to."""
    listed = page.text.split('id="steps"')[1].split("</ol>")[0]
    return [int(number) for number in re.findall(r"step=(\d+)", listed)]


async def test_agents_and_models_are_compared_by_runs(tmp_path: Path) -> None:
    def labeled(success: bool, ending: str) -> dict[str, object]:
        return {"extra": {"turnwright": {"success": success, "ending": ending}}}

    (tmp_path / "a.json").write_text(atif("steady", *replies(3, 10), **labeled(True, "end_turn")))
    (tmp_path / "b.json").write_text(atif("hasty", *replies(2, 500), **labeled(False, "max turns")))
    (tmp_path / "c.json").write_text(atif("hasty", *replies(9, 500), **labeled(True, "end_turn")))
    (tmp_path / "d.json").write_text(conversation())
    addresses = ("/runs/agents", "/runs/agents?sort=success", "/runs/agents?agent=steady&sort=nonsense")
    by_runs, by_failures, some = await pages(addresses, tmp_path)
    agent_names = [
        re.findall(r'class="cover cut" href="[^"]+">([^<]+)<', page.text) for page in (by_runs, by_failures, some)
    ]
    assert agent_names[0][0] == "hasty"
    assert agent_names[1][:2] == ["hasty", "steady"]  # what does not say is the last
    assert agent_names[2] == ["steady"]
    hasty = " ".join(re.sub(r"<[^>]+>", " ", by_failures.text.split("<tbody>")[1].split("</tr>")[0]).split())
    assert hasty == "hasty hasty-model 2 50 % 50 % max turns 1 2 / 9 1,000 / 4,500 $5.5000"
    assert "agent=hasty&amp;model=hasty-model&amp;ending=max+turns" in by_failures.text


async def test_agent_of_runs_is_summed_over_models(tmp_path: Path) -> None:
    for name, model in (("a", "small"), ("b", "large")):
        agent = {"name": "Steady", "version": "1", "model_name": model}
        (tmp_path / f"{name}.json").write_text(atif("x", *replies(1, 10), agent=agent))
    by_agent, by_model = await pages(("/runs/agents?by=agent", "/runs/agents?by=model&sort=cost"), tmp_path)
    assert by_agent.text.count('class="cover cut"') == 1
    assert "2 models" in by_agent.text
    assert "agent=Steady&amp;model=&amp;" in by_agent.text
    assert by_model.text.count(">1 agent</span>") == 2
    assert "sort=steps&amp;by=model" in by_model.text


async def test_runs_have_the_statistics_page_of_turns(tmp_path: Path) -> None:
    steps = replies(3, 10)
    steps[1]["tool_calls"] = [{"tool_call_id": "a", "function_name": "look_up", "arguments": {}}]
    times = {"turnwright": {"ended_at": "2026-01-01T10:01:40Z", "status": "error"}}
    steps[1]["observation"] = {"results": [{"source_call_id": "a", "content": "nothing", "extra": times}]}
    (tmp_path / "a.json").write_text(
        atif("cheap", *steps, extra={"turnwright": {"success": True, "ending": "end_turn"}})
    )
    (tmp_path / "b.json").write_text(atif("dear", *replies(59, 500, day="2026-02-01")))
    (tmp_path / "c.json").write_text(conversation())
    addresses = ("/runs/statistics", "/runs/statistics?by=model&agent=dear", "/runs/statistics?agent=nobody", "/runs")
    every, some, none, listed = await pages(addresses, tmp_path)
    words = " ".join(re.sub(r"<[^>]+>", " ", every.text.split("<main")[1]).split())
    assert "Runs 3 Ended by themselves 100 % Succeeded 100 % Tokens 29,530" in words
    assert "1 run is in no column: when it began is not known." in words
    assert "First to last entry 3 min 0 s 59 min 0 s 59 min 0 s 59 min 0 s" in words
    assert "Steps 3 59 59 59" in words
    assert "Tokens 30 29,500 29,500 29,500" in words
    assert "look_up 2 1 40.0 s" in words
    assert "Cost over time by agent" in words
    assert "Tokens over time by agent" in words
    assert 'href="/runs?ending=end_turn"' in every.text
    assert "limit" not in words
    assert "dear-model" in some.text
    assert ">30,000</text>" in some.text
    assert "look_up" not in some.text
    assert "No run matches." in none.text
    assert "/runs/statistics" in listed.text


async def test_large_numbers_have_room_beside_an_axis(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(atif("large", *replies(1, 30_000_000)))
    (page,) = await pages(["/runs/statistics"], tmp_path)
    assert ">30 M</text>" in page.text
    assert "30,000,000" in page.text


async def test_hostile_names_and_times_are_inert_on_every_page(tmp_path: Path) -> None:
    call = {"tool_call_id": EVIL, "function_name": EVIL, "arguments": {EVIL: EVIL}}
    times = {"turnwright": {"ended_at": "9999-12-31T23:59:59Z", "status": "error"}}
    reply: dict[str, object] = {
        "source": "agent",
        "message": EVIL,
        "reasoning_content": EVIL,
        "timestamp": "2026-01-01T10:00:00Z",
        "tool_calls": [call],
        "observation": {"results": [{"source_call_id": EVIL, "content": EVIL, "extra": times}]},
        "metrics": {"prompt_tokens": 10**17, "cost_usd": 1e300},
    }
    question = {"source": "user", "message": EVIL, "timestamp": "0001-01-01T00:00:00Z"}
    labels = {"extra": {"turnwright": {"ending": EVIL, "limits": {EVIL: EVIL}}}}
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(atif(f"{name} {EVIL}", question, reply, **labels))
    addresses = (
        *(
            "/runs",
            "/runs?q=script",
            "/runs/agents",
            "/runs/statistics",
            "/runs/1",
            "/runs/1?tab=timeline",
            "/runs/1?step=1&call=call-2-1",
        ),
        *(
            "/runs/compare?left=1",
            "/runs/compare?left=1&right=2",
            f"/runs?agent={EVIL}&sort=time",
            f"/runs/1?zoom={EVIL}",
        ),
    )
    for page in await pages(addresses, tmp_path):
        assert page.status_code == 200
        assert "<script>document" not in page.text
        assert "hunter22" not in page.text
        assert "\u202e" not in page.text


async def test_new_changed_and_removed_files_show_on_the_next_page(tmp_path: Path) -> None:
    """A file whose size and time are the same is not read again."""
    for name in "bcd":
        (tmp_path / f"{name}.json").write_text(conversation())
    async with serving(tmp_path) as (client, _):
        assert rows(await client.get("/runs")) == [1, 2, 3]
        (tmp_path / "a.json").write_text(conversation())
        (tmp_path / "b.json").write_text(conversation({"role": "user", "content": "And beta?"}))
        (tmp_path / "c.json").unlink()
        was = (tmp_path / "d.json").stat()
        (tmp_path / "d.json").write_text(conversation().replace("Nothing was found", "Anything is found"))
        os.utime(tmp_path / "d.json", ns=(was.st_atime_ns, was.st_mtime_ns))
        changed, gone, same = [await client.get(f"/runs/{number}") for number in (1, 2, 3)]
        assert "And beta?" in changed.text
        assert gone.status_code == 404
        assert "Nothing was found" in same.text
        assert rows(await client.get("/runs")) == [4, 1, 3]
        assert rows(await client.get("/runs?q=beta")) == [1]
        (tmp_path / "c.json").write_text(conversation())
        assert rows(await client.get("/runs")) == [4, 1, 2, 3]
        assert "Nothing was found" in (await client.get("/runs/2")).text


async def test_growing_file_is_read_again(tmp_path: Path) -> None:
    whole = atif("grows", *replies(3, 10))
    file = tmp_path / "a.json"
    file.write_text("")
    async with serving(tmp_path) as (client, _):
        assert "No file holds a recorded run." in (await client.get("/runs")).text
        file.write_text(whole[: whole.index("Reply 3")])
        assert "Reply 2" in (await client.get("/runs/1")).text
        file.write_text(whole)
        page = await client.get("/runs/1")
        assert "Reply 3" in page.text
        assert "The recording ends inside the run." not in page.text
        assert rows(await client.get("/runs")) == [1]


@pytest.mark.parametrize("is_named", [True, False], ids=["file", "folder"])
async def test_growing_store_is_read_again(file: Path, is_named: bool) -> None:
    """Its new turns are in SQLite's log first."""
    async with engine_on(file, "Done.", "Twice.") as engine:
        await engine.run(Agent(name="Cleaner"), "Clean up")
        async with serving(file if is_named else file.parent) as (client, _):
            assert rows(await client.get("/runs")) == [1]
            turn = (await engine.run(Agent(name="Cleaner"), "Once more", session="s")).id
            assert rows(await client.get("/runs")) == [1, 2]
            assert "Once more" in (await client.get("/runs/2")).text
            await engine.run(Agent(name="Cleaner"), "And again", session="s")
            await engine.delete(turn)
            assert "And again" in (await client.get("/runs/2")).text


async def test_new_large_file_is_read_while_pages_report_progress(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, runs):
        messages = json.dumps([{"role": "user", "content": "x" * 17_000_000}, {"role": "assistant", "content": "Yes."}])
        (tmp_path / "a.json").write_text(messages)
        await client.get("/runs")
        while runs.reading:  # noqa: ASYNC110 (a thread reads)
            await anyio.sleep(0.01)
        assert rows(await client.get("/runs")) == [1]


async def test_new_changed_and_removed_turn_exports_show_on_the_next_page(tmp_path: Path, file: Path) -> None:
    async with engine_on(file, "Done.", "Twice.") as engine:
        ids = [(await engine.run(Agent(name="Cleaner"), prompt)).id for prompt in ("Clean up", "Once more")]
        first, second = [await export_turn(engine.store, turn) for turn in ids]
    async with serving(tmp_path) as (client, _):
        assert (await client.get("/")).headers["location"] == "/runs"
        (tmp_path / "turn.jsonl").write_text("\n".join(first))
        assert "Clean up" in (await client.get("/")).text
        (tmp_path / "turn.jsonl").write_text("\n".join([*first, *second]))
        listed = (await client.get("/")).text
        assert "Clean up" in listed
        assert "Once more" in listed
        (tmp_path / "turn.jsonl").unlink()
        assert (await client.get("/")).headers["location"] == "/runs"
        assert (await client.get(f"/turns/{ids[0]}")).status_code == 404
