"""Bodies that are built on what was kept of earlier ones are those that are built of nothing."""

import cProfile
import gc
import itertools
import json
import pstats
import weakref
from collections.abc import Callable, Iterator
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.engine.model.conversations import conversations, turn
from tests.engine.model.plain_bodies import Body, chat_body, fitted, messages_body, responses_body

from turnwright.model.anthropic import request as anthropic_wire
from turnwright.model.capabilities import Capabilities
from turnwright.model.fit import fit
from turnwright.model.http.text_buffer import mend
from turnwright.model.openai_chat import request as openai_wire
from turnwright.model.openai_responses import request as responses_wire
from turnwright.model.protocol import ModelRequest

ALL = tuple(
    Capabilities(
        supports_tool_choice_none=none,
        needs_tools_if_history_has_tools=needs,
        strict_alternation=strict,
        allows_prefill=prefill,
        parallel_tool_calls=parallel,
    )
    for none, needs, strict, prefill, parallel in itertools.product((False, True), repeat=5)
)
#: Those that say how messages are put together. What the others do, they do to a request, and not to its body.
PUT_TOGETHER = [
    capabilities
    for capabilities in ALL
    if capabilities.supports_tool_choice_none and not capabilities.needs_tools_if_history_has_tools
]
THINKING: tuple[dict[str, JsonValue] | None, ...] = (
    None,
    {"type": "adaptive"},
    {"type": "enabled", "budget_tokens": 4000},
)


@given(conversations())
def test_incremental_fit_equals_a_fresh_fit(model_requests: list[ModelRequest]) -> None:
    for capabilities in ALL:
        for request in model_requests:
            assert fit(request, capabilities) == fitted(request, capabilities)


@given(conversations())
def test_incremental_chat_body_equals_a_fresh_body(model_requests: list[ModelRequest]) -> None:
    for capabilities in PUT_TOGETHER:
        encoder = openai_wire.OpenAIEncoder("m", capabilities=capabilities)
        for request in model_requests:
            body = json.loads(encoder.encode(fit(request, capabilities)))
            assert body == mended(chat_body(fitted(request, capabilities), capabilities))


@given(conversations(), st.sampled_from(THINKING), st.booleans())
def test_incremental_messages_body_equals_a_fresh_body(
    model_requests: list[ModelRequest], thinking: dict[str, JsonValue] | None, cache: bool
) -> None:
    for capabilities in PUT_TOGETHER:
        encoder = anthropic_wire.AnthropicEncoder("m", capabilities=capabilities, thinking=thinking, cache=cache)
        for request in model_requests:
            body = json.loads(encoder.encode(fit(request, capabilities)))
            plain = messages_body(fitted(request, capabilities), capabilities, cache=cache, thinking=thinking)
            assert body == mended(plain)


@given(conversations())
def test_incremental_responses_body_equals_a_fresh_body(model_requests: list[ModelRequest]) -> None:
    for capabilities in PUT_TOGETHER:
        encoder = responses_wire.ResponsesEncoder("m", capabilities=capabilities)
        for request in model_requests:
            body = json.loads(encoder.encode(fit(request, capabilities)))
            assert body == mended(responses_body(fitted(request, capabilities), capabilities))


def mended(body: Body) -> Body:
    """A body without halves of surrogate pairs."""
    mended_body: Body = json.loads(mend(json.dumps(body, ensure_ascii=False)))
    return mended_body


# What a step costs. Of the time there is nothing to assert, but of what is done.

Build = Callable[[ModelRequest], bytes]


def chat(capabilities: Capabilities) -> Build:
    encoder = openai_wire.OpenAIEncoder("m", capabilities=capabilities)
    return lambda request: encoder.encode(fit(request, capabilities))


def messages_api(capabilities: Capabilities) -> Build:
    encoder = anthropic_wire.AnthropicEncoder("m", capabilities=capabilities)
    return lambda request: encoder.encode(fit(request, capabilities))


def responses_api(capabilities: Capabilities) -> Build:
    encoder = responses_wire.ResponsesEncoder("m", capabilities=capabilities)
    return lambda request: encoder.encode(fit(request, capabilities))


WIRES = pytest.mark.parametrize("wire", [chat, messages_api, responses_api])
SETTINGS = pytest.mark.parametrize("capabilities", PUT_TOGETHER, ids=range(len(PUT_TOGETHER)))


@pytest.fixture
def _no_garbage() -> Iterator[None]:
    """Keep the garbage collector off: its calls are not part of the measured work."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_garbage")
@pytest.mark.parametrize("hinted", [False, True])
@WIRES
@SETTINGS
def test_body_of_a_late_step_costs_no_more_than_an_early_body(
    wire: Callable[[Capabilities], Build], capabilities: Capabilities, *, hinted: bool
) -> None:
    build, calls = wire(capabilities), list[int]()
    for request in turn(30, hinted=hinted):
        profile = cProfile.Profile()
        profile.runcall(build, request)
        calls.append(int(getattr(pstats.Stats(profile), "total_calls", 0)))
    # From Python 3.12 on, a profile also counts what other threads call meanwhile.
    assert median(calls[-10:]) <= median(calls[5:15])


@WIRES
@SETTINGS
def test_no_cached_data_outlives_the_turn(wire: Callable[[Capabilities], Build], capabilities: Capabilities) -> None:
    """Without the help of the garbage collector: a turn may hold pictures."""
    build, turn_requests = wire(capabilities), turn(10)
    references = [weakref.ref(message) for message in turn_requests[-1].messages]
    while turn_requests:
        build(turn_requests.pop(0))
    assert {ref() for ref in references} == {None}
