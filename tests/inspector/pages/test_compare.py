"""The page that compares two turns: the figures, the steps in pairs, and what differs in one."""

import re
from pathlib import Path

import httpx
import pytest
from tests.inspector.conftest import browser, engine_on

from turnwright import Agent, Engine
from turnwright.model import asks_for
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright_inspector import Open, inspector_app
from turnwright_states import Usage

pytestmark = pytest.mark.anyio


def looks_up(word: str, text: str = "") -> ModelResponse:
    return ModelResponse(text=text, calls=(ResponseToolCall("look_up", {"word": word}),))


async def page_of(engine: Engine, **query: str) -> httpx.Response:
    async with browser(inspector_app(engine, access=Open())) as client:
        return await client.get("/compare", params=query)


async def test_fork_and_origin_are_compared_step_by_step(file: Path) -> None:
    replies = (looks_up("alpha"), looks_up("beta"), "Both.", looks_up("gamma"), "Another one.")
    async with engine_on(file, *replies) as engine:
        origin = await engine.run(Agent(name="Reader", steps=5), "Look up two words")
        place = (await engine.fork_places(origin.id))[3].last
        fork = await engine.resume(await engine.fork(origin.id, at=place))
        assert fork.text == "Another one."
        text = (await page_of(engine, right=fork.id)).text
    assert f"fork of the left one after fact {place}" in text
    assert f'value="{origin.id}"' in text
    pairs = [row.split("</tr>")[0] for row in text.split('<tr id="pair-')[1:]]
    assert ["nothing" in row for row in pairs] == [True, False, False]
    assert 'aria-current="true"' in pairs[1]  # the first that differs is shown
    assert "-   &#34;word&#34;: &#34;beta&#34;" in _plain(text)
    assert "+   &#34;word&#34;: &#34;gamma&#34;" in _plain(text)
    assert "- Both." in _plain(text)
    assert "+ Another one." in _plain(text)


def _plain(text: str) -> str:
    """The page's text with the marks of a difference, which are for the eye."""
    for mark in ("- ", "+ "):
        text = text.replace(f'<span aria-hidden="true">{mark}</span>', mark)
    return text


async def test_requests_of_a_chosen_pair_are_compared(file: Path) -> None:
    async with engine_on(file, looks_up("alpha"), "A.", looks_up("beta"), "A.") as engine:
        first = await engine.run(Agent(name="Reader"), "Look up")
        second = await engine.run(Agent(name="Reader", steps=3), "Look up")
        text = _plain((await page_of(engine, left=first.id, right=second.id, pair="2")).text)
    assert "Limit steps" in text
    assert "- look_up({&#34;word&#34;: &#34;alpha&#34;})" in text
    assert "+ look_up({&#34;word&#34;: &#34;beta&#34;})" in text


async def test_step_without_a_counterpart_stands_alone(file: Path) -> None:
    priced = ModelResponse(text="At once.", usage=Usage(input_tokens=1, output_tokens=1, cost=0.25))
    async with engine_on(file, looks_up("alpha"), "Done.", priced) as engine:
        first = await engine.run(Agent(name="Reader"), "Look up")
        second = await engine.run(Agent(name="Reader"), "Look up")
        text = (await page_of(engine, left=first.id, right=second.id)).text
        same = (await page_of(engine, left=first.id, right=first.id)).text
    assert "only in one" in text
    assert '<td class="wrap">$0.2500</td>' in text
    assert "No step differs" in same


async def test_missing_ids_show_a_form_and_unknown_ids_are_not_found(file: Path) -> None:
    async with engine_on(file, asks_for(("delete_file", {"path": "a"}))) as engine:
        turn = await engine.run(Agent(name="Cleaner"), "Delete a")
        form = await page_of(engine, right=turn.id)
        same = await page_of(engine, left=turn.id, right=turn.id)
        missing = await page_of(engine, left="none", right=turn.id)
    assert form.status_code == 200
    assert f'value="{turn.id}"' in form.text
    assert "Enter the ids" in form.text
    assert same.text.count('<td class="wrap">paused</td>') == 2
    assert missing.status_code == 404


async def test_page_offers_turns_for_comparison(file: Path) -> None:
    async with engine_on(file, "A.", "B.", "C.", "D.") as engine:
        first = await engine.run(Agent(name="Reader"), "Look up")
        same = await engine.run(Agent(name="Reader"), "Look up")
        later = await engine.run(Agent(name="Reader"), "Look <down>")
        second = await engine.run(Agent(name="Reader of others"), "Look up")
        async with browser(inspector_app(engine, access=Open())) as client:
            page = (await client.get("/compare", params={"left": first.id})).text
            assert re.findall(r'right=(\w+)"', page) == [same.id, later.id]
            assert "Look &lt;down&gt;" in page
            assert second.id not in page
            assert "Choose a turn" not in (await client.get("/compare")).text
            page = (await client.get("/compare", params={"left": first.id, "right": same.id})).text
    assert "- A." in _plain(page)


async def test_turn_is_compared_with_the_newest_earlier_turn_of_equal_prompt(file: Path) -> None:
    async with engine_on(file, "A.", "B.", "C.", "D.", "E.") as engine:
        first = await engine.run(Agent(name="Reader"), "Look up")
        newest = await engine.run(Agent(name="Reader"), "Look up")
        another = await engine.run(Agent(name="Reader"), "Look down")
        turn = await engine.run(Agent(name="Reader"), "Look up")
        await engine.run(Agent(name="Reader"), "Look up")
        page, none = (await page_of(engine, right=turn.id)).text, (await page_of(engine, right=another.id)).text
    assert f'value="{newest.id}"' in page
    assert "- B." in _plain(page)
    assert re.findall(r'left=(\w+)&amp;right=(\w+)"', page) == [(first.id, turn.id), (another.id, turn.id)]
    assert "Choose a turn of the same agent" in none


async def test_unpaired_step_is_labeled(file: Path) -> None:
    async with engine_on(file, looks_up("alpha"), looks_up("beta"), "Done.", looks_up("alpha"), "Done.") as engine:
        first = await engine.run(Agent(name="Reader"), "Look up")
        second = await engine.run(Agent(name="Reader"), "Look up")
        page = (await page_of(engine, left=first.id, right=second.id, pair="2")).text
    assert '<h2 id="pair-title">Step 2, only left</h2>' in page


async def test_long_stretch_of_equal_steps_is_folded_and_opens_by_link(file: Path) -> None:
    looks = [looks_up(f"word-{number}") for number in range(6)]
    async with engine_on(file, *looks, "A.", *looks, "B.") as engine:
        first = await engine.run(Agent(name="Reader"), "Look up")
        second = await engine.run(Agent(name="Reader"), "Look up")
        page = (await page_of(engine, left=first.id, right=second.id)).text
        chosen = (await page_of(engine, left=first.id, right=second.id, pair="2")).text
    assert '<a class="cover" href="#same-1">6 pairs do not differ: show them</a>' in page
    assert page.count('<tr id="pair-') == 7
    assert "pairs do not differ" not in chosen
