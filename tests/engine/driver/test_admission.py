"""The options of a turn are checked before anything is written."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from turnwright import Agent, ConfigError, Engine, Limits, load_agents, tool
from turnwright.driver.admission import TurnOptions, admit, limits_for
from turnwright.driver.dependencies import Dependencies
from turnwright.model import ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import Outcome
from turnwright_states.facts import CallSettled, TurnStarted

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
ALL = "id, session, message_history, files, continue_from, metadata, model_settings, tools"


@tool
def note(text: str) -> str:
    """Note a text."""
    return text


def given(**options: object) -> TurnOptions:
    """Options as they come at run time, where nothing checks their names."""
    options_at_run_time: TurnOptions = {}
    options_at_run_time.update(options)  # type: ignore[typeddict-item]  # the names that no type checker would let through
    return options_at_run_time


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sesion", f"'sesion' is not an option of a turn: did you mean 'session'? The options are {ALL}"),
        ("Session", f"'Session' is not an option of a turn: did you mean 'session'? The options are {ALL}"),
        ("continue_", f"'continue_' is not an option of a turn: did you mean 'continue_from'? The options are {ALL}"),
        ("steps", f"'steps' is not an option of a turn: use one of {ALL}"),
        ("x" * 1000, f"'{'x' * 40}' is not an option of a turn: use one of {ALL}"),
    ],
)
def test_unknown_option_is_refused(name: str, message: str) -> None:
    """Else a turn would run without the session that was meant."""
    with pytest.raises(ConfigError) as raised:
        admit(Dependencies(model=ScriptedModel()), AGENT, "hi", given(**{"session": "s1", name: "s1"}))
    assert str(raised.value) == message


def test_every_option_is_taken() -> None:
    options = TurnOptions(session="s1", message_history=(), continue_from="t1", metadata={"a": 1})
    started = admit(Dependencies(model=ScriptedModel()), AGENT, "hi", options)
    assert (started.session, started.continue_from, started.metadata) == ("s1", "t1", {"a": 1})


@pytest.mark.parametrize("levels", [251, 300, 20_000])
def test_deeply_nested_metadata_is_refused(levels: int) -> None:
    def nested(levels: int) -> dict[str, JsonValue]:
        value: dict[str, JsonValue] = {}
        for _ in range(levels - 1):
            value = {"a": value}
        return value

    setup = Dependencies(model=ScriptedModel())
    assert admit(setup, AGENT, "hi", TurnOptions(metadata=nested(250))).metadata == nested(250)
    with pytest.raises(ConfigError, match=r"^metadata: nests more than 250 lists and objects"):
        admit(setup, AGENT, "hi", TurnOptions(metadata=nested(levels)))


async def test_unknown_option_writes_nothing() -> None:
    """Neither by `run` nor by `stream`."""
    engine = Engine(model=ScriptedModel("Done."))
    options = given(sesion="s1")
    with pytest.raises(ConfigError, match="did you mean 'session'"):
        await engine.run(AGENT, "hi", **options)
    with pytest.raises(ConfigError, match="did you mean 'session'"):
        async with engine.stream(AGENT, "hi", **options):
            pytest.fail("it began")
    assert await engine.store.turns() == []


def test_limits_of_an_agent_are_computed_once() -> None:
    setup = Dependencies(model=ScriptedModel(), limits=Limits(steps=7))
    assert limits_for(AGENT, setup) is limits_for(AGENT, setup)
    assert limits_for(Agent(name="Tidier", steps=3), setup).steps == 3
    assert limits_for(AGENT, Dependencies(model=ScriptedModel(), limits=Limits(steps=9))).steps == 9


async def test_turns_of_an_agent_share_journaled_agent_and_tools() -> None:
    store = MemoryStore()
    async with Engine(model=ScriptedModel("Done.", "Done."), store=store, tools=[note]) as engine:
        turns = [await engine.run(AGENT, "hi") for _ in range(2)]
        first, second = [(await store.facts(turn.id))[0][1] for turn in turns]
        assert isinstance(first, TurnStarted)
        assert isinstance(second, TurnStarted)
        assert first.agent is second.agent
        assert first.agent == AGENT.to_json()
        with pytest.raises(TypeError):
            first.agent["name"] = "Somebody"  # type: ignore[index]  # nobody may change what they share
        assert engine.setup.specs_for(AGENT) is engine.setup.specs_for(AGENT)


def test_limits_of_agents_made_per_turn_are_evicted() -> None:
    setup = Dependencies(model=ScriptedModel())
    for steps in range(1, 201):
        assert limits_for(Agent(name="Tidier", steps=steps), setup).steps == steps
    assert len(setup.limits_by_agent) <= 64


async def test_string_subclass_is_journaled_as_plain_text(tmp_path: Path) -> None:
    """Such as one that was found in a page, or that marks markup."""

    class Words(str):
        __slots__ = ()

    @tool
    def found() -> str:
        return Words("in the page")

    model = ScriptedModel(asks_for(("found", {})), ModelResponse(text=Words("Done.")))
    async with Engine(model=model, store=f"sqlite:///{tmp_path}/turns.db", tools=[found]) as engine:
        turn = await engine.run(AGENT, Words("hi"), session=Words("s1"))
        assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
        facts = [fact for _, fact in await engine.store.facts(turn.id)]
        assert [type(fact.prompt) for fact in facts if isinstance(fact, TurnStarted)] == [str]
        assert [fact.result for fact in facts if isinstance(fact, CallSettled)] == ["in the page"]


async def test_steps_above_the_ceiling_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """The warning says how to take more steps: in a turn that continues the first one."""
    engine, agent = Engine(model=ScriptedModel("Done.", repeat=True)), Agent(name="Long", steps=250)
    for _ in range(3):
        assert (await engine.run(agent, "hi")).outcome is Outcome.FINISHED
    (record,) = [record for record in caplog.records if "steps" in record.getMessage()]
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "agent 'Long': steps: is 250, and a turn takes at most 200 steps: continue it in a new turn, with"
        " `continue_from=turn.id` or `turnwright run --continue TURN`"
    )


async def test_warning_of_a_lowered_ceiling_names_the_ceiling(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(model=ScriptedModel("Done.", repeat=True), limits=Limits(ceiling=10))
    await engine.run(Agent(name="Short", steps=10), "hi")
    assert not caplog.records
    await engine.run(Agent(name="Long", steps=11), "hi")
    assert "at most 10 steps, the engine's `ceiling`: continue" in caplog.text


async def test_steps_of_an_agent_file_are_warned_of_with_the_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "AGENTS.md").write_text("---\nname: Filed\nsteps: 251\n---\nHelp.\n", encoding="utf-8")
    (agent,) = load_agents(tmp_path / "AGENTS.md")
    await Engine(model=ScriptedModel("Done.")).run(agent, "hi")
    (record,) = [record for record in caplog.records if "steps" in record.getMessage()]
    assert "AGENTS.md:3: agent 'Filed': steps: is 251, and a turn takes at most 200 steps" in record.getMessage()
    assert "continue_from=turn.id" in record.getMessage()
