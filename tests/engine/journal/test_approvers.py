"""Several approvers of one call, and the app's `authorize` (docs/rules.md#approvers, #who-may-answer)."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest

from turnwright import (
    Agent,
    Answering,
    CallView,
    ConfigError,
    Engine,
    InvalidAnswerError,
    Limits,
    RequireApproval,
    TurnContext,
    TurnResult,
    agent_tool,
    approve,
    before_tool,
    tool,
)
from turnwright._base.words import local_time
from turnwright.cli.summary import closing_lines
from turnwright.journal.questions import describe_approvals
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import InterruptKind, State
from turnwright_states.facts import Answered, CallWaiting, TurnStarted
from turnwright_states.replay import replay

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Payer")
RUNS: list[str] = []


@tool(needs_approval=True, approvers=2)
async def pay(invoice: str = "17") -> str:
    """Pay, if two people approve."""
    RUNS.append(invoice)
    return f"paid {invoice}"


@tool(approvers=3)
async def plain() -> str:
    """Do something that a hook wants approved."""
    return "done"


def paying(store: MemoryStore, *lines: object, **options: object) -> Engine:
    RUNS.clear()
    model = ScriptedModel(*(lines or (asks_for(("pay", {})), "Done.")))  # type: ignore[arg-type]
    return Engine(**{"model": model, "tools": [pay, plain], "store": store} | options)  # type: ignore[call-overload,no-any-return]


async def test_call_runs_after_the_last_of_its_approvers() -> None:
    """Rule 14: N different people approve; the interrupt says how many are still needed, and who has approved."""
    engine = paying(MemoryStore())
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    assert (turn.interrupts[0].approvals, turn.interrupts[0].approved_by) == (2, ())
    assert turn.interrupts[0].key == f"{turn.id}:{turn.interrupts[0].call}"
    turn = await engine.resume(turn.id, {"approval-1": True}, by="ann")
    assert (turn.interrupts[0].approvals, turn.interrupts[0].approved_by) == (1, ("ann",))
    assert turn.paused
    assert not RUNS
    turn = await engine.resume(turn.id, {"approval-1": True}, by="bob")
    assert turn.text == "Done."
    assert RUNS == ["17"]
    assert replay(await engine.store.facts(turn.id)).fault is None


async def test_approvals_wait_in_the_inbox_side_by_side() -> None:
    """Rule 14: an approval has an item of each person, and the interrupt counts as answered with the last."""
    engine = paying(MemoryStore())
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    await engine.answer(turn.id, {"approval-1": True}, by="ann")
    assert (await engine.get(turn.id)).answered == frozenset()
    await engine.answer(turn.id, {"approval-1": True}, by="bob")
    assert (await engine.get(turn.id)).answered == {"approval-1"}
    assert {item.id for item in await engine.store.inbox(turn.id)} == {"answer:approval-1/ann", "answer:approval-1/bob"}
    assert (await engine.resume(turn.id)).text == "Done."
    assert RUNS == ["17"]


async def test_person_approves_once() -> None:
    """Rule 14: the same person does not count twice, and names are compared exactly."""
    engine = paying(MemoryStore())
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    turn = await engine.resume(turn.id, {"approval-1": True}, by="ann")
    with pytest.raises(InvalidAnswerError, match="interrupt 'approval-1': it needs another approver: ann has approved"):
        await engine.resume(turn.id, {"approval-1": True}, by="ann")
    assert not await engine.store.inbox(turn.id)
    assert (await engine.resume(turn.id, {"approval-1": True}, by="Ann")).text == "Done."


@pytest.mark.parametrize("by", ["", " ", "\t"])
async def test_approval_of_several_needs_a_name(by: str) -> None:
    """Rule 14: a blank name is none; nothing is stored."""
    engine = paying(MemoryStore())
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    with pytest.raises(InvalidAnswerError, match="interrupt 'approval-1': it needs a name: give by="):
        await engine.resume(turn.id, {"approval-1": True}, by=by)
    assert not await engine.store.inbox(turn.id)


async def test_several_approvers_change_no_arguments() -> None:
    """Rule 14: people who saw different arguments would approve different calls."""
    engine = paying(MemoryStore())
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    with pytest.raises(InvalidAnswerError, match="several people approve the same arguments: reject instead"):
        await engine.resume(turn.id, {"approval-1": '{"invoice": "18"}'}, by="ann")
    assert (await engine.get(turn.id)).paused


async def test_one_rejection_rejects() -> None:
    """Rule 14: also after another person has approved, and without a name."""
    engine = paying(MemoryStore())
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    await engine.answer(turn.id, {"approval-1": True}, by="ann")
    turn = await engine.resume(turn.id, {"approval-1": False})
    assert turn.text == "Done."
    assert not RUNS


async def test_approval_and_rejection_at_once_do_not_run_the_call() -> None:
    """Rule 14, scenario 16: whichever is first. Also where both are stored before the turn is driven."""
    for _ in range(50):
        engine = paying(MemoryStore())
        turn: TurnResult = await engine.run(AGENT, "Pay.")
        async with anyio.create_task_group() as group:
            for by, decision in (("ann", True), ("bob", False)):
                group.start_soon(partial(engine.answer, turn.id, {"approval-1": decision}, by=by))
        assert (await engine.resume(turn.id)).text == "Done."
        assert not RUNS


async def test_approvers_of_a_sub_agent_are_asked_in_the_root_turn() -> None:
    """Rules 14 and 16: the forwarded interrupt counts too, and the people pass down with the answers."""
    store = MemoryStore()
    helper = agent_tool(Agent(name="Helper", description="Helps.", tools=["pay"]))
    engine = paying(
        store, asks_for(("Helper", {"prompt": "Pay."})), asks_for(("pay", {})), "Paid.", "Done.", tools=[pay, helper]
    )
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    name = turn.interrupts[0].id
    assert turn.interrupts[0].approvals == 2
    turn = await engine.resume(turn.id, {name: True}, by="ann")
    assert (turn.interrupts[0].id, turn.interrupts[0].approved_by) == (name, ("ann",))
    turn = await engine.resume(turn.id, {name: True}, by="bob")
    assert turn.text == "Done."
    assert RUNS == ["17"]
    child = f"{turn.id}:{name.split('/')[0]}"
    assert [fact.by for _, fact in await store.facts(child) if isinstance(fact, Answered)] == ["ann", "bob"]


async def test_hook_that_requires_approval_asks_the_approvers() -> None:
    """Rule 14: the tool says how many people approve its calls, also where a hook requires the approval."""

    @before_tool
    def ask_first(_ctx: TurnContext, _call: CallView) -> RequireApproval:
        return RequireApproval("really?")

    turn: TurnResult = await paying(MemoryStore(), asks_for(("plain", {})), hooks=[ask_first]).run(AGENT, "Go.")
    assert (turn.interrupts[0].question, turn.interrupts[0].approvals) == ("really?", 3)


@pytest.mark.parametrize("approvers", [0, 17, True, 1.0, "2"])
def test_number_of_approvers_is_checked(approvers: object) -> None:
    """Rule 14: 1 to 16."""
    with pytest.raises(ConfigError, match="approvers must be a whole number from 1 to 16"):
        tool(name="pay", approvers=approvers)(lambda: "")  # type: ignore[call-overload]


# `authorize`


async def test_app_is_asked_about_each_answer() -> None:
    """Rule 15: with the turn, its data, the interrupt, the decision, and who answers how."""
    asked_about: list[Answering] = []

    async def may(answering: Answering) -> bool:
        asked_about.append(answering)
        return True

    engine = paying(MemoryStore(), authorize=may)
    turn: TurnResult = await engine.run(AGENT, "Pay.", session="s", metadata={"team": "finance"})
    await engine.resume(turn.id, {"approval-1": True}, by="ann", via="slack")
    (answering,) = asked_about
    assert (answering.turn, answering.session, answering.metadata) == (turn.id, "s", {"team": "finance"})
    assert (answering.interrupt.id, answering.decision, answering.by, answering.via) == (
        "approval-1",
        "approve",
        "ann",
        "slack",
    )


async def test_app_sees_changed_arguments_and_always() -> None:
    """Rule 15: an approval as it is has no arguments of its own, nor one whose arguments are those of the call."""
    answerings: list[Answering] = []

    async def may(answering: Answering) -> bool:
        answerings.append(answering)
        return False

    @tool(needs_approval=True)
    async def refund(euros: int) -> str:
        """Refund."""
        return f"refunded {euros}"

    model = ScriptedModel(asks_for(("refund", {"euros": 20})))
    async with Engine(model=model, tools=[refund], authorize=may) as engine:
        turn: TurnResult = await engine.run(AGENT, "Refund.")
        for answer in (True, "always", '{"euros": 900}', approve(arguments={"euros": 20})):
            with pytest.raises(InvalidAnswerError, match="not authorized"):
                await engine.answer(turn.id, {"approval-1": answer})
    assert [(answering.arguments, answering.always) for answering in answerings] == [
        (None, False),
        (None, True),
        ({"euros": 900}, False),
        (None, False),
    ]


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("only finance approves payments", "only finance approves payments"),
        (False, "not authorized"),
        (None, "not authorized"),
        ("", "not authorized"),
        (ValueError("no directory"), "not authorized: authorize raised ValueError: no directory"),
    ],
)
async def test_app_refuses_an_answer(verdict: object, words: str) -> None:
    """Rule 15: a text, False or an exception refuses, and nothing is stored."""

    async def may(_: Answering) -> object:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    engine = paying(MemoryStore(), authorize=may)
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    doors: list[Callable[..., Awaitable[object]]] = [
        partial(engine.resume, turn.id),
        partial(engine.answer, turn.id),
        engine.attach(turn.id, AGENT).answer,
    ]
    for answer in doors:
        with pytest.raises(InvalidAnswerError) as error:
            await answer({"approval-1": True}, by="mallory")
        assert words in str(error.value)
    assert not await engine.store.inbox(turn.id)
    assert (await engine.get(turn.id)).interrupts[0].approved_by == ()


async def test_process_without_the_app_accepts_no_answer() -> None:
    """Rule 15, scenario 17: the interrupt is marked, in the journal, and its mark is not sent to browsers."""

    def may(_: Answering) -> bool:
        return True

    store = MemoryStore()
    turn: TurnResult = await paying(store, authorize=may).run(AGENT, "Pay.")
    (waiting,) = [fact for _, fact in await store.facts(turn.id) if isinstance(fact, CallWaiting)]
    assert waiting.interrupt.restricted
    assert "restricted" not in str(turn.interrupts[0].to_json())
    stranger = paying(store)
    with pytest.raises(InvalidAnswerError, match="your app must authorize its answer"):
        await stranger.answer(turn.id, {"approval-1": True}, by="ann")
    assert not await store.inbox(turn.id)
    assert (await paying(store, "Done.", authorize=may).resume(turn.id, {"approval-1": False})).text == "Done."


async def test_doom_loop_of_such_an_engine_is_marked_too() -> None:
    """Rule 15: the machine itself asks about it, and knows the mark from the turn's beginning."""
    store = MemoryStore()

    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    lines = [asks_for(("look", {}))] * 12
    limits = Limits(doom_response="ask")
    turn: TurnResult = await paying(store, *lines, tools=[look], authorize=lambda _: True, limits=limits).run(
        AGENT, "Look."
    )
    assert turn.interrupts[0].kind is InterruptKind.DOOM_LOOP
    assert turn.interrupts[0].restricted
    assert next(fact for _, fact in await store.facts(turn.id) if isinstance(fact, TurnStarted)).restricted
    assert replay(await store.facts(turn.id)).fault is None
    with pytest.raises(InvalidAnswerError, match="your app must authorize"):
        await paying(store, tools=[look]).answer(turn.id, {"doom-1": "stop"})


async def test_expiry_is_not_authorized() -> None:
    """Rule 15: nobody answers then."""

    @tool(needs_approval=True, expires_in=10)
    async def soon() -> str:
        """Ask."""
        return "ran"

    now = [1000.0]
    options = {"tools": [soon], "authorize": lambda _: False, "now": lambda: now[0]}
    engine = paying(MemoryStore(), asks_for(("soon", {})), "Done.", **options)
    turn: TurnResult = await engine.run(AGENT, "Go.")
    now[0] += 11
    turn = await engine.resume(turn.id)
    assert (turn.state, turn.text) == (State.FINISHED, "Done.")


async def test_display_names_the_approvers() -> None:
    """Rule 14: "1 of 2", with each person, the channel and the time."""
    now = 1_795_892_520.0
    engine = paying(MemoryStore(), now=lambda: now)
    turn: TurnResult = await engine.run(AGENT, "Pay.")
    assert describe_approvals(turn.interrupts[0]) == "0 of 2"
    turn = await engine.resume(turn.id, {"approval-1": True}, by="ann", via="slack")
    assert describe_approvals(turn.interrupts[0]) == f"1 of 2: ann by slack, {local_time(now, '%H:%M')}"
    lines = "\n".join(closing_lines(turn))
    assert "    approved by 1 of 2: ann by slack, " in lines
    assert '--approve approval-1    (or --reject approval-1="why") --by NAME' in lines
    assert "ann" not in str([interrupt.to_json() for interrupt in turn.interrupts])
