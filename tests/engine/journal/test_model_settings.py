"""The settings of a turn: merged when it is admitted, kept in its journal, and sent with each of its requests."""

import logging

import pytest

from turnwright import Agent, ConfigError, Engine, Limits, ModelSettings, agent_tool
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.store import open_store
from turnwright.tools import tool
from turnwright_states import Usage
from turnwright_states.facts import TurnStarted

pytestmark = pytest.mark.anyio

AGENT = Agent(name="A")


@tool
def look() -> str:
    """Look."""
    return "seen"


def sent(model: ScriptedModel) -> list[ModelSettings | None]:
    return [request.settings for request in model.requests]


async def test_settings_of_run_override_agent_and_agent_overrides_engine() -> None:
    model = ScriptedModel("Done.")
    engine = Engine(
        model=model,
        model_settings=ModelSettings(temperature=0.1, top_p=0.5, seed=1, extra_body={"a": 1, "b": 1, "c": 1}),
    )
    agent = Agent(name="A", model_settings=ModelSettings(temperature=0.2, seed=2, extra_body={"b": 2, "c": 2}))
    await engine.run(agent, "Hi", model_settings=ModelSettings(seed=3, extra_body={"c": 3}))
    assert sent(model) == [
        ModelSettings(temperature=0.2, top_p=0.5, seed=3, extra_body={"a": 1, "b": 2, "c": 3}),
    ]


async def test_a_turn_without_settings_sends_and_keeps_none() -> None:
    model = ScriptedModel("Done.")
    engine = Engine(model=model)
    result = await engine.run(AGENT, "Hi")
    assert sent(model) == [None]
    _, started = (await engine.store.facts(result.id))[0]
    assert "model_settings" not in started.payload()


async def test_another_process_rebuilds_the_same_requests_from_the_journal() -> None:
    """The settings in the journal count, not those of the engine that resumes, forks or works."""
    settings = ModelSettings(temperature=0, thinking="low", stop_sequences=("END",))
    store = open_store("memory:")
    first = Engine(model=ScriptedModel(asks_for(("look", {})), "Done."), tools=[look], store=store)
    turn = await first.submit(AGENT, "Hi", model_settings=settings)
    _, started = (await store.facts(turn))[0]
    assert isinstance(started, TurnStarted)
    assert started.model_settings == {"temperature": 0.0, "thinking": "low", "stop_sequences": ["END"]}

    model = ScriptedModel(asks_for(("look", {})), "Done.", "Done again.")
    other_engine = Engine(model=model, tools=[look], store=store, model_settings=ModelSettings(seed=7))
    await other_engine.resume(turn)
    assert sent(model) == [settings, settings]
    fork = await other_engine.fork(turn, at=(await other_engine.fork_places(turn))[-1].last)
    await other_engine.resume(fork)
    assert sent(model) == [settings, settings, settings]


async def test_sub_agent_settings_merge_with_the_engines_only() -> None:
    model = ScriptedModel(asks_for(("B", {"prompt": "Go"})), "Below.", "Done.")
    below = Agent(name="B", description="Goes.", model_settings=ModelSettings(top_p=0.3))
    engine = Engine(model=model, tools=[agent_tool(below)], model_settings=ModelSettings(seed=1))
    await engine.run(AGENT, "Hi", model_settings=ModelSettings(temperature=0))
    above = ModelSettings(seed=1, temperature=0)
    assert sent(model) == [above, ModelSettings(seed=1, top_p=0.3), above]


class TestMaxTokens:
    async def limits(self, limits: Limits, settings: ModelSettings, *lines: ModelResponse | str) -> list[int | None]:
        model = ScriptedModel(*lines)
        engine = Engine(model=model, tools=[look], limits=limits, model_settings=settings)
        await engine.run(AGENT, "Hi")
        return [request.max_tokens for request in model.requests]

    async def test_max_tokens_setting_limits_a_reply_without_a_budget(self) -> None:
        assert await self.limits(Limits(), ModelSettings(max_tokens=70), "Done.") == [70]

    async def test_smaller_rest_of_a_token_budget_limits_the_reply(self) -> None:
        asks = asks_for(("look", {}), usage=Usage(input_tokens=40, output_tokens=10))
        limits = await self.limits(Limits(tokens=100), ModelSettings(max_tokens=70), asks, "Done.")
        assert limits == [70, 50]

    async def test_conclusion_has_the_smaller_of_limit_and_setting(self) -> None:
        limits = Limits(steps=1, concluding="after", conclude_tokens=90)
        asks = asks_for(("look", {}))
        assert await self.limits(limits, ModelSettings(max_tokens=300), asks, "So far.") == [300, 90]
        assert await self.limits(limits, ModelSettings(max_tokens=60), asks, "So far.") == [60, 60]


class Deaf:
    """A model that sends no seed, and no model of ours."""

    name = "deaf"

    def __init__(self) -> None:
        self.model = ScriptedModel("Done.", repeat=True)

    def unsupported_settings(self, settings: ModelSettings) -> dict[str, str]:
        return {"seed": "it has none"} if settings.seed is not None else {}

    def stream(self, request: ModelRequest):  # type: ignore[no-untyped-def]  # noqa: ANN201 (as the scripted model has it)
        return self.model.stream(request)


class TestUnsupported:
    async def test_unsent_setting_is_warned_of_once_per_engine_and_setting(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings = ModelSettings(seed=1, temperature=0)
        for _ in range(2):
            engine = Engine(model=Deaf(), model_settings=settings)
            await engine.run(AGENT, "Hi")
            await engine.run(AGENT, "Hi")
        warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert warnings == ["model deaf: the setting seed is not sent: it has none"] * 2

    async def test_worker_warns_of_settings_unsupported_by_the_local_model(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = open_store("memory:")
        turn = await Engine(model=ScriptedModel(name="deaf"), store=store).submit(
            AGENT, "Hi", model_settings=ModelSettings(seed=1)
        )
        assert not caplog.records
        await Engine(model=Deaf(), store=store).resume(turn)
        assert [record.message for record in caplog.records] == [
            "model deaf: the setting seed is not sent: it has none"
        ]

    async def test_strict_engine_refuses_an_unsent_setting(self) -> None:
        engine = Engine(model=Deaf(), strict_settings=True)
        with pytest.raises(ConfigError, match="model 'deaf' cannot use these settings: seed: it has none"):
            await engine.run(AGENT, "Hi", model_settings=ModelSettings(seed=1))
        assert not await engine.turns()
        await engine.run(AGENT, "Hi", model_settings=ModelSettings(temperature=0))

    async def test_strict_engine_distrusts_a_model_without_declared_settings(self) -> None:
        class Silent:
            name = "silent"
            stream = ScriptedModel("Done.").stream

        with pytest.raises(ConfigError, match="does not say which settings it sends"):
            await Engine(model=Silent(), strict_settings=True, model_settings=ModelSettings(seed=1)).run(AGENT, "Hi")


@pytest.mark.parametrize("settings", [{"temperature": 0}, 0.5])
async def test_wrong_settings_object_is_refused_early(settings: object) -> None:
    with pytest.raises(ConfigError, match="Engine: model_settings must be ModelSettings"):
        Engine(model=ScriptedModel(), model_settings=settings)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="this turn: model_settings must be ModelSettings"):
        await Engine(model=ScriptedModel()).run(AGENT, "Hi", model_settings=settings)  # type: ignore[arg-type]
