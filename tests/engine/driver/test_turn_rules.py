"""Rules over calls in turns of the engine (docs/rules.md#rules-over-calls)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import force_setattr
from typing_extensions import Unpack

from turnwright import (
    Agent,
    CallView,
    Engine,
    Hooks,
    Outcome,
    TurnResult,
    agent_tool,
    tool,
)
from turnwright.agent import OUTPUT_TOOL
from turnwright.agents.files import read_agents
from turnwright.agents.markdown import AgentFileError
from turnwright.context import HooksBase
from turnwright.driver.hooks.decisions import ChangeArguments
from turnwright.errors import CannotRunError, ConfigError, UnreadableTurnError
from turnwright.journal.fork import fork_turn
from turnwright.journal.result import result_of
from turnwright.message import ToolResultPart
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.rules import Rule, RuleError, RuleSet
from turnwright.runtime.engine import EngineArguments
from turnwright.tools.context import ToolContext
from turnwright.tools.tool import Tool
from turnwright.transcript.events import ResponseRestartedEvent
from turnwright_states import CallStatus, EndReason, InterruptKind, Limits
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

pytestmark = pytest.mark.anyio

#: The calls that ran.
RAN: list[str] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    RAN.clear()


@tool(read_only=True)
def verify(order_id: str) -> dict[str, Any]:
    RAN.append(f"verify {order_id}")
    return {"ok": order_id != "bad", "paid": 80}


@tool
def refund(order_id: str, amount: float = 5) -> str:
    RAN.append(f"refund {order_id} {amount:g}")
    return f"{amount:g} of {order_id} are paid back"


@tool
async def look(place: str = "") -> str:
    RAN.append(f"look {place}")
    return "nothing"


TOOLS = [verify, refund, look]
VERIFY_FIRST = Rule("verify-first", before="refund", need="verify if result.ok", same=["order_id"])
ONE_REFUND = Rule("one-refund", at_most=1, of="refund if status != 'error'", per="order_id", scope="session")


def engine_for(
    *lines: Line,
    tools: Sequence[Tool[None]] = TOOLS,
    hooks: Sequence[HooksBase[None]] = (),
    **options: Unpack[EngineArguments],
) -> Engine[None]:
    options["model"] = ScriptedModel(*lines)
    return Engine(tools=tools, hooks=hooks, **options)


async def check(engine: Engine[None], turn: TurnResult) -> list[f.Fact]:
    """Return the facts of a turn, which follow from each other."""
    journal = await engine.store.facts(turn.id)
    assert replay(journal).check.verdict is Verdict.HOLDS, replay(journal).check
    return [fact for _, fact in journal]


async def test_refund_before_verify_is_refused_and_tried_again() -> None:
    """Meaning 4, 9 and 14: the model reads the refusal, and the evidence is in the journal and the result."""
    agent = Agent(name="Clerk", rules=[VERIFY_FIRST])
    lines = (
        asks_for(("refund", {"order_id": "7"})),
        asks_for(("verify", {"order_id": "7"}), ("refund", {"order_id": "7"})),
        "Done.",
    )
    async with engine_for(*lines) as engine:
        turn = await engine.run(agent, "Pay order 7 back.")
        facts = await check(engine, turn)
    assert turn.outcome is Outcome.FINISHED
    assert RAN == ["verify 7", "refund 7 5"]
    (broken,) = turn.broken
    assert (broken.rule, broken.effect, broken.call, broken.by) == ("verify-first", "refuse", "call00001", ())
    assert broken.words == "refund needs an earlier ok verify if result.ok with the same order_id"
    starts = [fact for fact in facts if isinstance(fact, f.CallStarted)]
    assert [(verdict.rule, verdict.by) for verdict in starts[1].rules] == [("verify-first", ("call00002",))]


async def test_coupled_calls_of_a_reply_are_judged_one_after_the_other() -> None:
    """Meaning 7: at most one of two calls of one reply runs, beside a call that no rule names."""
    engine = engine_for(
        asks_for(("refund", {"order_id": "7"}), ("look", {}), ("refund", {"order_id": "7"})),
        "Done.",
        rules=[ONE_REFUND],
    )
    async with engine:
        turn = await engine.run(Agent(name="Clerk"), "Pay.")
        await check(engine, turn)
    assert sorted(RAN) == ["look ", "refund 7 5"]
    assert [broken.by for broken in turn.broken] == [("call00001",)]


async def test_arguments_that_a_hook_changed_are_judged() -> None:
    """Meaning 6: the final arguments count."""

    class Less(Hooks):
        async def before_tool(self, ctx: ToolContext, call: CallView) -> ChangeArguments | None:
            del ctx
            return ChangeArguments({**call.arguments, "amount": 500}) if call.tool == "refund" else None

    rule = Rule("large", never="refund if args.amount > 100")
    async with engine_for(asks_for(("refund", {"order_id": "7"})), "Done.", hooks=[Less()], rules=[rule]) as engine:
        turn = await engine.run(Agent(name="Clerk"), "Pay.")
        await check(engine, turn)
    assert (RAN, [broken.rule for broken in turn.broken]) == ([], ["large"])


async def test_rule_asks_a_person_and_the_turn_goes_on() -> None:
    """Meaning 10: the interrupt names the rules, and the approval lets the call run."""
    rule = Rule("large", never="refund if args.amount > 100", effect="ask", say="Above 100 a person decides.")
    agent = Agent(name="Clerk", rules=[rule])
    async with engine_for(asks_for(("refund", {"order_id": "7", "amount": 500})), "Done.") as engine:
        turn = await engine.run(agent, "Pay.")
        (interrupt,) = turn.interrupts
        assert (interrupt.kind, interrupt.question, interrupt.rules) == (
            InterruptKind.APPROVAL,
            "Above 100 a person decides.",
            ("large",),
        )
        assert interrupt.to_json()["rules"] == ["large"]
        turn = await engine.resume(turn.id, {interrupt.id: True}, agent=agent)
        await check(engine, turn)
    assert (turn.outcome, RAN) == (Outcome.FINISHED, ["refund 7 500"])
    assert [(broken.rule, broken.effect) for broken in turn.broken] == [("large", "ask")]


async def test_rule_ends_the_turn_and_stops_the_calls_beside() -> None:
    """Meaning 11: the turn fails as with a guardrail, and other calls of the batch are canceled."""
    running = anyio.Event()

    @tool
    async def slow() -> str:
        running.set()
        await anyio.sleep_forever()
        return "never"

    class Wait(Hooks):
        async def before_tool(self, ctx: ToolContext, call: CallView) -> None:
            del ctx
            if call.tool == "refund":
                await running.wait()

    rule = Rule("never", never="refund", effect="end", say="No refunds.")
    lines = (asks_for(("slow", {}), ("refund", {"order_id": "7"})),)
    async with engine_for(*lines, tools=[*TOOLS, slow], rules=[rule], hooks=[Wait()]) as engine:
        turn = await engine.run(Agent(name="Clerk"), "Pay.")
        await check(engine, turn)
    assert (turn.outcome, turn.reason, turn.error) == (Outcome.FAILED, EndReason.GUARDRAIL, "never: No refunds.")
    assert turn.guardrail is not None
    assert (turn.guardrail.checks, turn.broken[-1].call) == ("rule", "call00002")


async def test_answer_is_refused_until_the_tests_have_passed() -> None:
    """Meaning 12: the answer is withdrawn from followers, and the model reads what is owed."""
    rule = Rule("tested", after="refund", then="verify if result.ok", say="Verify, then answer.")
    lines = (asks_for(("refund", {"order_id": "7"})), "Done.", asks_for(("verify", {"order_id": "7"})), "Verified.")
    async with engine_for(*lines, rules=[rule]) as engine:
        async with engine.stream(Agent(name="Clerk"), "Pay.") as events:
            followed = [event async for event in events]
        turn = events.result
        assert turn is not None
        await check(engine, turn)
    assert (turn.outcome, turn.text, turn.unmet) == (Outcome.FINISHED, "Verified.", ())
    assert sum(isinstance(event, ResponseRestartedEvent) for event in followed) == 1
    assert [(broken.call, broken.by) for broken in turn.broken] == [(None, ("call00001",))]


async def test_other_endings_name_the_owed_rules() -> None:
    """Meaning 13: a limit ends the turn as ever."""
    rule = Rule("tested", after="refund", then="verify")
    engine = engine_for(asks_for(("refund", {"order_id": "7"})), "Stopped.", rules=[rule], limits=Limits(steps=1))
    async with engine:
        turn = await engine.run(Agent(name="Clerk"), "Pay.")
    assert (turn.outcome, turn.unmet) == (Outcome.CAP_HIT, ("tested",))


async def test_session_remembers_across_turns_and_new_rules() -> None:
    """Meaning 15: the next turn knows the calls of the last one; with new rules, all stored turns are read again."""
    agent = Agent(name="Clerk", rules=[ONE_REFUND])
    refunds = asks_for(("refund", {"order_id": "7"}))
    async with engine_for(refunds, "Done.", refunds, "No.", refunds, "No.") as engine:
        first = await engine.run(agent, "Pay.", session="s")
        second = await engine.run(agent, "Again.", session="s")
        facts = await check(engine, second)
        changed = Rule("one-refund", at_most=1, of="refund", scope="session")
        third = await engine.run(Agent(name="Clerk", rules=[changed]), "Again.", session="s")
        await check(engine, third)
    assert RAN == ["refund 7 5"]
    assert [broken.by for broken in (*second.broken, *third.broken)] == [(f"{first.id}/call00001",)] * 2
    assert isinstance(facts[0], f.TurnStarted)
    assert facts[0].past["rules"]


async def test_rules_of_the_turn_forget_between_turns() -> None:
    """Meaning 15: without a session, and with the scope of a turn, nothing is remembered."""
    agent = Agent(name="Clerk", rules=[Rule("one", at_most=1, of="refund")])
    refunds = asks_for(("refund", {"order_id": "7"}))
    async with engine_for(refunds, "Done.", refunds, "Done.") as engine:
        for _ in range(2):
            await engine.run(agent, "Pay.", session="s")
    assert len(RAN) == 2


async def test_sub_agents_inherit_the_rules_of_their_caller() -> None:
    """Meaning 16: a refund of the sub-agent counts for the caller, and the other way around."""
    helper = Agent(name="Helper", description="Helps.", mode="subagent", tools=("refund",))
    agent = Agent(name="Clerk", rules=[ONE_REFUND])
    lines = (
        asks_for(("Helper", {"prompt": "Pay 7."})),
        asks_for(("refund", {"order_id": "7"})),
        "Paid.",
        asks_for(("refund", {"order_id": "7"}), ("Helper", {"prompt": "Pay 7 again."})),
        asks_for(("refund", {"order_id": "7"})),
        "No.",
        "Done.",
    )
    async with engine_for(*lines, tools=[*TOOLS, agent_tool(helper)]) as engine:
        turn = await engine.run(agent, "Pay.")
        await check(engine, turn)
        child = result_of("child", await engine.store.facts(f"{turn.id}:call00003"))
    assert turn.outcome is Outcome.FINISHED
    assert RAN == ["refund 7 5"]
    evidence = ("call00001:call00001",)
    assert [broken.by for broken in (*turn.broken, *child.broken)] == [evidence, evidence]


async def test_sub_agent_may_use_evidence_of_its_caller() -> None:
    """Meaning 16: a sub-agent without the needed tool begins with its caller's state, also of the engine's rules."""
    helper = Agent(name="Helper", description="Helps.", mode="subagent", tools=("refund",))
    lines = (
        asks_for(("verify", {"order_id": "7"})),
        asks_for(("Helper", {"prompt": "Pay 7."})),
        asks_for(("refund", {"order_id": "7"})),
        "Paid.",
        "Done.",
    )
    async with engine_for(*lines, tools=[*TOOLS, agent_tool(helper)], rules=[VERIFY_FIRST]) as engine:
        await engine.run(Agent(name="Clerk", tools=("verify", "Helper")), "Pay.")
    assert RAN == ["verify 7", "refund 7 5"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule("one-refund", never="refund"), "one-refund: a sub-agent and its caller have two rules of this name"),
        (Rule("own", never="refnd"), "own: no tool is named 'refnd': did you mean 'refund'?"),
    ],
)
async def test_wrong_rule_of_a_sub_agent_is_an_error_before_the_turn(rule: Rule, message: str) -> None:
    """Also of one whose tools are its caller's too."""
    helper = Agent(name="Helper", description="Helps.", mode="subagent", tools=("refund",), rules=[rule])
    async with engine_for("Hi.", tools=[*TOOLS, agent_tool(helper)]) as engine:
        with pytest.raises(RuleError) as error:
            await engine.run(Agent(name="Clerk", rules=[ONE_REFUND]), "Pay.")
    assert str(error.value) == message


async def test_rules_are_pinned_for_a_paused_turn() -> None:
    """A turn keeps the rules with which it running, under a new version of its agent and of its engine."""
    ask = Rule("ask", never="look", effect="ask")
    never = Rule("no-refund", never="refund")
    async with engine_for(asks_for(("look", {})), asks_for(("refund", {"order_id": "7"})), "Done.") as engine:
        turn = await engine.run(Agent(name="Clerk", rules=[ask, never]), "Go.")
        turn = await engine.resume(turn.id, {turn.interrupts[0].id: True}, agent=Agent(name="Clerk"))
    assert (RAN, [broken.rule for broken in turn.broken]) == (["look "], ["ask", "no-refund"])


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([Rule("a", before="refund", need="verfy")], "a: no tool is named 'verfy': did you mean 'verify'?"),
        ([Rule("a", never="wire")], "a: no tool is named 'wire': the tools are verify, refund, look"),
        ([Rule("a", before="refund", need="look")], "a: refund: never runs: look is not a tool of Clerk"),
        ([Rule("a", before="@answer", need="look")], "a: no answer is possible: look is not a tool of Clerk"),
        ([Rule("a", before="refund", need="ref*")], "a: refund: never runs: ref* is a call of before itself"),
        (
            [Rule("a", after="verify", then="ver*")],
            "a: no answer is possible after verify: ver* is a call of after itself",
        ),
        ([Rule("a", after="ref*", then="look")], "a: no answer is possible after refund: look is not a tool of Clerk"),
        ([Rule("a", never="refund"), RuleSet([Rule("a", never="look")])], "a: two rules have this name"),
    ],
)
async def test_rule_that_cannot_be_held_is_an_error_before_the_turn(rules: list[Rule | RuleSet], message: str) -> None:
    """Static checks come before the first model call."""
    async with engine_for("Hi.") as engine:
        with pytest.raises(RuleError) as error:
            await engine.run(Agent(name="Clerk", rules=rules, tools=("verify", "refund")), "Go.")
        assert str(error.value) == message
        assert await engine.turns() == []


async def test_hosted_tool_in_a_rule_is_an_error() -> None:
    """A tool that the provider runs is beyond every rule."""
    model = ScriptedModel("Hi.")
    model.hosted_tools = ({"type": "web_search"},)  # type: ignore[attr-defined]  # as OpenAIResponses has
    async with Engine(model=model, tools=TOOLS, rules=[Rule("a", never="web_search")]) as engine:
        with pytest.raises(
            RuleError, match="web_search is a hosted tool: its provider runs it, and no rule can hold it"
        ):
            await engine.run(Agent(name="Clerk"), "Go.")


@pytest.mark.parametrize("rules", [Rule("a", never="b"), ["a"], [{"name": "a", "never": "b"}]])
def test_object_that_is_no_rule_is_a_config_error(rules: object) -> None:
    with pytest.raises(ConfigError, match=r"rules must be a list|is not a rule"):
        engine_for("Hi.", rules=rules)  # type: ignore[arg-type]  # that is the mistake


FILE = """---
name: Clerk
groups:
  pays: [refund, look]
rules:
  - name: verify-first
    before: $pays
    need: verify
  - more/rules.yaml
---
You pay back.
"""


def test_agent_file_has_rules_groups_and_files(tmp_path: Path) -> None:
    """Front matter has rules beside the names of files with rules, from the folder of the agent's file."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "rules.yaml").write_text("rules:\n  - {name: never, never: look}\n")
    (tmp_path / "AGENTS.md").write_text(FILE)
    (agent,) = read_agents(tmp_path / "AGENTS.md")
    own, of_file = agent.rules
    assert isinstance(own, RuleSet)
    assert isinstance(of_file, RuleSet)
    assert (own.lines, own.groups) == ({"verify-first": 6}, {"pays": ("refund", "look")})
    assert of_file.rules[0].name == "never"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("need: verify", "neeed: verify", "AGENTS.md:6: agent 'Clerk': rules[0]: verify-first: neeed is unknown"),
        ("$pays", "$pay", "AGENTS.md:6: agent 'Clerk': rules[0]: verify-first: no group is named '$pay'"),
        ("more/rules.yaml", "none.yaml", "AGENTS.md:9: agent 'Clerk': rules[1]: "),
        ("  - more/rules.yaml", "  - 5", "AGENTS.md:9: agent 'Clerk': rules[1]: a rule has a name"),
        ("[refund, look]", "5", "AGENTS.md:3: agent 'Clerk': groups"),
    ],
)
def test_mistake_in_the_rules_of_a_file_has_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "rules.yaml").write_text("rules: []\n")
    (tmp_path / "AGENTS.md").write_text(FILE.replace(old, new))
    with pytest.raises(AgentFileError) as error:
        read_agents(tmp_path / "AGENTS.md")
    assert message in str(error.value)


async def test_unknown_tool_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(FILE.replace("  - more/rules.yaml\n", "").replace("verify\n", "verfy\n"))
    (agent,) = read_agents(tmp_path / "AGENTS.md")
    async with engine_for("Hi.") as engine:
        with pytest.raises(
            RuleError, match=r"AGENTS.md:6: verify-first: no tool is named 'verfy': did you mean 'verify'"
        ):
            await engine.run(agent, "Go.")


def test_agent_with_rules_is_json_and_back() -> None:
    """The JSON of an agent has its rules; the journal has them once, with the turn."""
    rules: list[Rule | RuleSet] = [VERIFY_FIRST, RuleSet([Rule("w", never="$pays")], {"pays": ["refund"]})]
    agent = Agent(name="Clerk", rules=rules)
    assert Agent.from_json(agent.to_json()) == agent
    assert hash(agent) == hash(Agent(name="Clerk", rules=rules))
    assert "rules" not in agent.to_journal(deps=False)
    assert "needs" not in agent.to_journal(deps=False)


async def test_turn_of_a_later_language_stays_unchanged() -> None:
    """A turn with rules in a later language cannot be resumed or read here, and stays listed."""
    async with engine_for(asks_for(("look", {})), "Done.") as engine:
        agent = Agent(name="Clerk", rules=[Rule("ask", never="look", effect="ask")])
        turn = await engine.run(agent, "Go.")
        _, first = (await engine.store.facts(turn.id))[0]
        assert isinstance(first, f.TurnStarted)
        force_setattr(first, "rules", ({**first.rules[0], "language": 2},))
        with pytest.raises((CannotRunError, UnreadableTurnError), match="upgrade"):
            await engine.resume(turn.id, {turn.interrupts[0].id: True}, agent=agent)
        assert [row.id for row in await engine.turns()] == [turn.id]


async def test_refused_call_is_an_error_for_the_model() -> None:
    """Meaning 9: the status is refused, and the result has the words and the rule."""
    async with engine_for(asks_for(("refund", {"order_id": "7"})), "Done.", rules=[VERIFY_FIRST]) as engine:
        turn = await engine.run(Agent(name="Clerk"), "Pay.")
    (result,) = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert result.status is CallStatus.REFUSED
    assert result.text.startswith("refused and not run: refund needs an earlier ok verify")


async def test_two_sub_agents_refund_once_in_the_tree() -> None:
    """Meaning 16: while the first sub-agent waits for a person, the second is refused."""

    @tool(needs_approval=True)
    async def pay(order_id: str) -> str:
        RAN.append(f"pay {order_id}")
        return "paid"

    helper = Agent(name="Helper", description="Helps.", mode="subagent", tools=("pay",))
    agent = Agent(name="Clerk", rules=[Rule("once", at_most=1, of="pay")])
    pays = asks_for(("pay", {"order_id": "7"}))
    lines = (
        asks_for(("Helper", {"prompt": "Pay 7."}), ("Helper", {"prompt": "Pay 7."})),
        pays,
        "Paid.",
        asks_for(("Helper", {"prompt": "Pay 7."})),
        pays,
        "No.",
        "Done.",
    )
    async with engine_for(*lines, tools=[*TOOLS, pay, agent_tool(helper)]) as engine:
        turn = await engine.run(agent, "Pay.")
        assert [broken.by for broken in turn.broken] == [("call00001",)]
        turn = await engine.resume(turn.id, {turn.interrupts[0].id: True}, agent=agent)
        await check(engine, turn)
        child = result_of("child", await engine.store.facts(f"{turn.id}:call00003"))
    assert (turn.outcome, RAN) == (Outcome.FINISHED, ["pay 7"])
    assert [broken.by for broken in child.broken] == [("call00001:call00001",)]


async def test_question_of_a_sub_agent_names_the_rules_that_ask() -> None:
    """Meaning 10 and 16: the person sees the rules, and the approval is for the sub-agent's call alone."""
    helper = Agent(name="Helper", description="Helps.", mode="subagent", tools=("refund",))
    agent = Agent(name="Clerk", rules=[Rule("large", never="refund", effect="ask")])
    refunds = asks_for(("refund", {"order_id": "7"}))
    lines = (asks_for(("Helper", {"prompt": "Pay 7."})), refunds, "Paid.", refunds, "Done.")
    async with engine_for(*lines, tools=[*TOOLS, agent_tool(helper)]) as engine:
        turn = await engine.run(agent, "Pay.")
        assert [(interrupt.rules, turn.broken) for interrupt in turn.interrupts] == [(("large",), ())]
        turn = await engine.resume(turn.id, {turn.interrupts[0].id: True}, agent=agent)
        assert [interrupt.rules for interrupt in turn.interrupts] == [("large",)]
        turn = await engine.resume(turn.id, {turn.interrupts[0].id: True}, agent=agent)
        await check(engine, turn)
    assert RAN == ["refund 7 5", "refund 7 5"]
    assert [broken.rule for broken in turn.broken] == ["large"]


async def test_stopped_sub_agent_returns_its_state() -> None:
    """Meaning 16: the state of a sub-agent comes back when its turn is stopped too."""
    helper = Agent(name="Helper", description="Helps.", mode="subagent", tools=("refund",), steps=1)
    agent = Agent(name="Clerk", rules=[ONE_REFUND])
    refunds = asks_for(("refund", {"order_id": "7"}))
    lines = (asks_for(("Helper", {"prompt": "Pay 7."})), refunds, "Stopped.", refunds, "Done.")
    async with engine_for(*lines, tools=[*TOOLS, agent_tool(helper)]) as engine:
        turn = await engine.run(agent, "Pay.")
        await check(engine, turn)
    assert [broken.by for broken in turn.broken] == [("call00001:call00001",)]


async def test_fork_has_the_rules_and_their_state() -> None:
    """A fork copies the rules and their past, so its verdicts are those of the original."""
    agent = Agent(name="Clerk", rules=[ONE_REFUND])
    refunds = asks_for(("refund", {"order_id": "7"}))
    async with engine_for(refunds, "Done.", refunds, "No.", refunds, "No.") as engine:
        await engine.run(agent, "Pay.", session="s")
        second = await engine.run(agent, "Again.", session="s")
        fork = await fork_turn(engine.store, second.id, 2, new_id="fork")
        turn = await engine.resume(fork, agent=agent)
        await check(engine, turn)
    assert [broken.by for broken in turn.broken] == [broken.by for broken in second.broken]


async def test_typed_answer_is_refused_while_a_call_is_owed() -> None:
    """Meaning 12: a typed answer waits for what is owed."""
    agent = Agent(name="Clerk", output_type=int, rules=[Rule("owe", after="refund", then="verify")])
    answer = asks_for((OUTPUT_TOOL, {"response": 5}))
    lines = (asks_for(("refund", {"order_id": "7"})), answer, asks_for(("verify", {"order_id": "7"})), answer)
    async with engine_for(*lines) as engine:
        turn = await engine.run(agent, "Pay.")
        await check(engine, turn)
    assert (turn.outcome, turn.output, [broken.call for broken in turn.broken]) == (Outcome.FINISHED, 5, [None])


async def test_rule_over_a_direct_result_lets_the_turn_continue() -> None:
    """Meaning 12: a `return_direct` result is an ordinary one while the answer is refused."""

    @tool(return_direct=True)
    async def report() -> str:
        return "report"

    rule = Rule("first", before="@answer", need="look")
    lines = (asks_for(("report", {})), asks_for(("look", {})), asks_for(("report", {})))
    async with engine_for(*lines, tools=[*TOOLS, report], rules=[rule]) as engine:
        turn = await engine.run(Agent(name="Clerk"), "Go.")
        await check(engine, turn)
    assert (turn.outcome, turn.text, turn.steps) == (Outcome.FINISHED, "report", 3)


async def test_fork_with_other_rules_is_judged_anew() -> None:
    """A fork before a refused call has other verdicts under other rules."""
    agent = Agent(name="Clerk", rules=[VERIFY_FIRST])
    refunds = asks_for(("refund", {"order_id": "7"}))
    async with engine_for(refunds, "No.", refunds, "Done.") as engine:
        turn = await engine.run(agent, "Pay.")
        fork = await engine.fork(turn.id, at=2, rules=[ONE_REFUND])
        forked = await engine.resume(fork, agent=agent)
        facts = await check(engine, forked)
    assert isinstance(facts[0], f.TurnStarted)
    assert (RAN, forked.broken, facts[0].forked_with) == (["refund 7 5"], (), ("rules",))
