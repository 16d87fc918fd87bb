"""The cost of a reply, by a price of your own or by one that `genai-prices` publishes."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic_ai.models.test import TestModel

from turnwright import Agent, ConfigError, Engine, Limits, Price, Usage
from turnwright.model import (
    AnthropicMessages,
    ModelResponse,
    OpenAIChat,
    ResponseInfo,
    ScriptedModel,
    pydantic_ai_model,
)
from turnwright.model.prices import price_data, price_usage, published_price

COUNT = st.integers(0, 10_000)
READ = Usage(input_tokens=1000, output_tokens=10, cached_tokens=400)
CLAUDE = AnthropicMessages("claude-sonnet-4-5", base_url="https://api.anthropic.com", api_key="k")
#: In millionths: 500 tokens at 3, 400 cached at 0.3, 100 written to a cache at 3.75, and 10 of the reply at 15.
CLAUDES = (500 * 3 + 400 * 0.3 + 100 * 3.75 + 10 * 15) / 1e6


class Served(TestModel):
    """A model of pydantic-ai that says where it is served."""

    @property
    def base_url(self) -> str:
        return "https://api.anthropic.com/v1"


def cost(price: Price, usage: Usage, cache_writes: int = 0) -> float:
    return price.of(usage, cache_writes).cost * 1e6


def test_cached_tokens_have_the_full_price_by_default() -> None:
    assert cost(Price(2, 5), READ, 100) == pytest.approx(1000 * 2 + 10 * 5)
    assert cost(Price(2, 5, cached=0.2), READ, 100) == pytest.approx(600 * 2 + 400 * 0.2 + 10 * 5)
    assert cost(Price(2, 5, cached=0.2, cache_write=2.5), READ, 100) == pytest.approx(
        500 * 2 + 400 * 0.2 + 100 * 2.5 + 10 * 5
    )


@given(COUNT, COUNT, COUNT, COUNT)
def test_no_token_is_paid_twice(read: int, output: int, cached: int, writes: int) -> None:
    usage = Usage(input_tokens=read, output_tokens=output, cached_tokens=cached)
    priced = Price(1, 1, cached=0, cache_write=1).of(usage, writes)
    assert priced.cost * 1e6 == pytest.approx(max(read - cached, 0) + output)
    assert replace(priced, cost=0.0) == usage


def test_reply_is_priced_with_cache_writes() -> None:
    price = Price(2, 5, cached=0.2, cache_write=2.5)
    reply = ModelResponse(usage=READ, response=ResponseInfo(cache_creation_input_tokens=100))
    assert price_usage(price, reply) == price.of(READ, 100)
    assert price_usage(price, ModelResponse(usage=READ)) == price.of(READ)
    assert price_usage(None, reply) == READ
    assert price_usage(price, ModelResponse()) is price_usage(price, None) is None


class TestPublished:
    @pytest.mark.parametrize(
        "model", [CLAUDE, pydantic_ai_model(Served(model_name="claude-sonnet-4-5"))], ids=["http", "pydantic-ai"]
    )
    def test_price_is_found_by_server_and_model_name(self, model: AnthropicMessages) -> None:
        price = published_price(model)
        assert price is not None
        assert price.is_known
        assert price.of(READ, 100).cost == pytest.approx(CLAUDES)

    def test_hourly_cache_write_costs_more(self) -> None:
        price = published_price(CLAUDE)
        assert price is not None
        dearer = price.of(READ, 100, 40).cost - price.of(READ, 100).cost
        assert dearer == pytest.approx(40 * (6 - 3.75) / 1e6)
        info = ResponseInfo(cache_creation_input_tokens=100, cache_creation_1h_input_tokens=40)
        assert price_usage(price, ModelResponse(usage=READ, response=info)) == price.of(READ, 100, 40)

    @pytest.mark.parametrize("url", ["http://localhost:8080/v1", "http://10.0.0.1/v1", "http://[::1]:11434/v1"])
    def test_self_hosted_server_costs_nothing(self, url: str) -> None:
        assert published_price(OpenAIChat("gpt-5-mini", base_url=url)) is None
        assert published_price(ScriptedModel(name="gpt-5-mini")) is None

    def test_an_unknown_model_has_no_cost(self) -> None:
        for model in (
            OpenAIChat("no-such-model", base_url="https://api.openai.com/v1", api_key="k"),
            OpenAIChat("gpt-5-mini", base_url="https://models.example/v1"),
        ):
            price = published_price(model)
            assert price is not None
            assert not price.is_known
            assert price.of(READ) == READ

    def test_the_date_of_the_newest_price_is_known(self) -> None:
        data = price_data(date(2026, 4, 1))
        assert data is not None
        assert data.newest is not None
        assert "2026-01-01" < data.newest <= "2026-04-01"
        assert str(data) == f"genai-prices {data.version}, newest price of {data.newest}"


class Claude(ScriptedModel):
    """A scripted model at Anthropic's address."""

    server = ("api.anthropic.com", 443)


@pytest.mark.anyio
class TestTurns:
    reply = ModelResponse(text="Done.", usage=READ, response=ResponseInfo(cache_creation_input_tokens=100))

    async def test_a_turn_has_the_published_cost(self) -> None:
        turn = await Engine(model=Claude(self.reply, name="claude-sonnet-4-5")).run(Agent(name="A"), "Hi")
        assert turn.usage.cost == pytest.approx(CLAUDES)
        assert (turn.usage.cached_tokens, turn.usage.reasoning_tokens) == (400, 0)

    async def test_configured_price_precedes_the_published_price(self) -> None:
        prices = {"claude-sonnet-4-5": Price(1, 1)}
        turn = await Engine(model=Claude(self.reply, name="claude-sonnet-4-5"), prices=prices).run(
            Agent(name="A"), "Hi"
        )
        assert turn.usage.cost == pytest.approx(1010 / 1e6)

    async def test_a_cost_limit_needs_a_price_of_either_kind(self) -> None:
        limits = Limits(cost=1.0)
        turn = await Engine(model=Claude(self.reply, name="claude-sonnet-4-5"), limits=limits).run(
            Agent(name="A"), "Hi"
        )
        assert turn.usage.cost > 0
        with pytest.raises(ConfigError, match=r"the price of model 'claude-9'.*\[prices\.\"claude-9\"\]"):
            await Engine(model=Claude(name="claude-9"), limits=limits).run(Agent(name="A"), "Hi")
