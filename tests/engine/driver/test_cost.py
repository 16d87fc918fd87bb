"""The cost of a turn: reported by its model, or computed from a price; and cost limits that can never be reached."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from turnwright import Agent, CannotRunError, Compact, ConfigError, Engine, Limits, Price, Usage, agent_tool, tool
from turnwright.model import Capabilities, ModelRequest, ModelResponse, OpenAIChat, ScriptedModel, asks_for
from turnwright.model.protocol import Delta
from turnwright.otel import OpenTelemetry
from turnwright.store import MemoryStore
from turnwright_states import EndReason, Outcome

pytestmark = pytest.mark.anyio

DEAR = Usage(input_tokens=1000, output_tokens=10, cost=0.3)
PLAIN = Usage(input_tokens=1000, output_tokens=10)
LIMITED = Agent(name="Buyer", budget=Limits(cost=0.5))
FREE = Price(0, 0)


@tool(needs_approval=lambda n: n > 100)
def page(n: int) -> str:
    """Read a page."""
    return f"page {n}"


class Custom:
    """A model of an app: it does not say whether it reports its cost."""

    name = "custom"

    def __init__(self, usage: Usage | None) -> None:
        self.usage, self.calls = usage, 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        self.calls += 1
        if request.tool_choice == "none":
            yield ModelResponse(text="That is all.", usage=self.usage)
        else:
            yield replace(asks_for(("page", {"n": self.calls})), usage=self.usage)


def reading(usage: Usage, name: str = "scripted") -> ScriptedModel:
    calls = (asks_for(("page", {"n": n}), usage=usage) for n in range(9))
    return ScriptedModel(*calls, name=name, repeat=True)


@pytest.mark.parametrize("model", [reading(DEAR), Custom(DEAR)], ids=["scripted", "custom"])
async def test_reported_cost_counts_without_a_price(model: ScriptedModel | Custom) -> None:
    turn = await Engine(model=model, tools=[page]).run(LIMITED, "Read.")
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.CAP_HIT, EndReason.COST, 2)
    assert turn.usage.cost >= 0.6


async def test_price_given_on_purpose_replaces_the_reported_cost() -> None:
    prices = {"scripted": Price(100, 0)}
    turn = await Engine(model=reading(DEAR), tools=[page], prices=prices).run(LIMITED, "Read.")
    assert (turn.reason, turn.steps) == (EndReason.COST, 5)


async def test_price_of_another_model_leaves_the_reported_cost() -> None:
    turn = await Engine(model=reading(DEAR), tools=[page], prices={"other": FREE}).run(LIMITED, "Read.")
    assert (turn.reason, turn.steps) == (EndReason.COST, 2)


async def test_price_of_zero_makes_a_turn_free() -> None:
    model = ScriptedModel(ModelResponse(text="Done.", usage=DEAR))
    turn = await Engine(model=model, prices={"scripted": FREE}).run(Agent(name="Buyer"), "Read.")
    assert turn.usage.cost == 0


@pytest.mark.parametrize("usage", [DEAR, PLAIN], ids=["reports", "silent"])
@pytest.mark.parametrize("agent", [LIMITED, Agent(name="Buyer")], ids=["agent", "engine"])
async def test_cost_limit_with_free_models_is_a_config_error(usage: Usage, agent: Agent) -> None:
    engine = Engine(model=reading(usage), tools=[page], prices={"scripted": FREE}, limits=Limits(cost=0.5))
    with pytest.raises(ConfigError, match=r"its cost limit of 0\.5 can never be reached.*'scripted' is 0"):
        await engine.run(agent, "Read.")
    assert await engine.turns() == []


async def test_cost_limit_with_a_free_model_and_a_paid_writer_is_valid() -> None:
    models = {"free": ScriptedModel("Done.", name="free"), "paid": ScriptedModel(name="paid")}
    engine = Engine(models=models.__getitem__, prices={"free": FREE, "paid": Price(1, 1)})
    agent = Agent(name="Buyer", model="free", budget=Limits(cost=0.5), compaction=Compact(at_tokens=1000, model="paid"))
    assert (await engine.run(agent, "Read.")).text == "Done."


@pytest.mark.parametrize("price", [FREE, Price(1, 1)], ids=["free", "paid"])
async def test_cost_limit_of_a_free_caller_counts_sub_agents(price: Price) -> None:
    below = agent_tool(Agent(name="Reader", model="reader"), description="Reads.")
    models = {"lead": ScriptedModel("Done.", name="lead"), "reader": ScriptedModel("Read.", name="reader")}
    engine = Engine(models=models.__getitem__, tools=[below], prices={"lead": FREE, "reader": price})
    lead = Agent(name="Lead", model="lead", budget=Limits(cost=0.5))
    if price is FREE:
        with pytest.raises(ConfigError, match="can never be reached"):
            await engine.run(lead, "Read.")
    else:
        assert (await engine.run(lead, "Read.")).text == "Done."


async def test_free_sub_agent_of_a_limited_caller_runs() -> None:
    below = agent_tool(Agent(name="Reader", model="reader"), description="Reads.")
    lead = ScriptedModel(asks_for((below.spec.name, {"prompt": "Read."})), "Done.", name="lead")
    models = {"lead": lead, "reader": ScriptedModel("Read.", name="reader")}
    prices = {"lead": Price(1, 1), "reader": FREE}
    engine = Engine(models=models.__getitem__, tools=[below], prices=prices, limits=Limits(cost=0.5))
    turn = await engine.run(Agent(name="Lead", model="lead"), "Read.")
    assert (turn.text, turn.tool_calls) == ("Done.", 1)


@pytest.mark.parametrize("usage", [PLAIN, None], ids=["tokens only", "no usage"])
async def test_reply_without_a_cost_ends_a_turn_with_a_cost_limit(usage: Usage | None) -> None:
    """A model that does not say whether it reports its cost would otherwise spend without a bound."""
    model = Custom(usage)
    turn = await Engine(model=model, tools=[page]).run(LIMITED, "Read.")
    assert (turn.reason, model.calls) == (EndReason.ENGINE_ERROR, 1)
    assert "a reply of model 'custom' has no cost: give the engine prices=" in (turn.error or "")
    assert turn.usage == (usage or Usage())


async def test_declared_model_may_have_free_replies() -> None:
    class Declared(Custom):
        capabilities = Capabilities(reports_cost=True)

    model = Declared(PLAIN)
    turn = await Engine(model=model, tools=[page], limits=Limits(steps=2)).run(LIMITED, "Read.")
    assert turn.reason is EndReason.STEP_CAP


async def test_driver_without_the_price_leaves_the_turn() -> None:
    """Another process may have the price; here the cost limit would never be reached."""
    store = MemoryStore()
    model = ScriptedModel(asks_for(("page", {"n": 101})), "Done.")
    priced = Engine(model=model, tools=[page], store=store, prices={"scripted": Price(1, 1)})
    turn = await priced.run(LIMITED, "Read.")
    answers = {interrupt.id: True for interrupt in turn.interrupts}
    with pytest.raises(CannotRunError, match="its cost budget needs the price of model 'scripted'"):
        await Engine(model=model, tools=[page], store=store).resume(turn.id, answers)
    assert (await priced.resume(turn.id)).text == "Done."


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), True, "1"])
def test_price_must_be_a_number_of_at_least_zero(price: float) -> None:
    for fields in ({"input": price, "output": 1}, {"input": 1, "output": 1, "cached": price}):
        with pytest.raises(ConfigError, match=r"^Price: \w+ must be a number of at least 0"):
            Price(**fields)


async def test_telemetry_changes_no_cost() -> None:
    """The observed model has no server, by which the published price of a summary is found."""

    class Claude(ScriptedModel):
        server = ("api.anthropic.com", 443)

    async def cost(telemetry: OpenTelemetry | None) -> float:
        calls = [asks_for(("page", {"n": n}), usage=PLAIN) for n in range(2)]
        lines = (*calls, ModelResponse(text="Pages were read.", usage=PLAIN), ModelResponse(text="Done.", usage=PLAIN))
        agent = Agent(name="Buyer", budget=Limits(cost=5), compaction=Compact(at_tokens=600, keep_steps=1))
        engine = Engine(model=Claude(*lines, name="claude-sonnet-4-5"), tools=[page], telemetry=telemetry)
        turn = await engine.run(agent, "Read.")
        assert (turn.outcome, turn.usage.tokens) == (Outcome.FINISHED, 4 * PLAIN.tokens)
        return turn.usage.cost

    assert await cost(OpenTelemetry(TracerProvider(), MeterProvider())) == pytest.approx(await cost(None))


async def test_refused_cost_limit_names_the_setting_of_an_unknown_server() -> None:
    """Its replies may have their cost, which nobody knows before the first one."""
    url = "http://127.0.0.1:9/v1"
    with pytest.raises(ConfigError, match=r"or the model capabilities=Capabilities\(reports_cost=True\)"):
        await Engine(model=OpenAIChat("m", base_url=url), tools=[page]).run(LIMITED, "Read.")
    model = OpenAIChat("m", base_url=url, capabilities=Capabilities(reports_cost=True))
    async with Engine(model=model, tools=[page], limits=Limits(max_retries=0)) as engine:
        turn = await engine.run(LIMITED, "Read.")
    assert turn.reason is EndReason.MODEL_ERROR
