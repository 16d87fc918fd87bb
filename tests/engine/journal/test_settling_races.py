"""Results and answers that come while the turn moves: each is used, or refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from turnwright import (
    Agent,
    AlreadySettledError,
    Engine,
    InvalidAnswerError,
    Later,
    ToolContext,
    TurnAlreadyEndedError,
    agent_tool,
    reject,
    settled,
    tool,
)
from turnwright.journal.answers import answer_item
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.tools.context import Ask, NeedsPersonError
from turnwright_states import Decision, InterruptKind
from turnwright_states.facts import Answered, CallSettled
from turnwright_states.replay import replay
from turnwright_testing.faults import StoreWrapper

# ruff: noqa: ANN401 (what a test gives may be anything)

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Studio")
NOW = 1_795_892_400.0
KEY = "t:call00001"
Step = Callable[[], Awaitable[object]]


class Interleaved(StoreWrapper):
    """Lets another process do one step right before a method's first call, or `after` it."""

    def __init__(self, inner: MemoryStore, method: str, step: Step, *, after: bool = False, calls: int = 1) -> None:
        super().__init__(inner)
        self._method, self._step, self._after, self._calls = method, step, after, calls

    @property
    def inline(self) -> bool:
        """The step may suspend."""
        return False

    def __getattribute__(self, name: str) -> object:
        """Return a method of the store, with the step."""
        attribute: Any = super().__getattribute__(name)
        if name.startswith("_") or name != self._method or self._calls < 1:
            return attribute

        async def stepping(*args: Any, **options: Any) -> object:
            self._calls -= 1
            is_turn = self._calls == 0
            if is_turn and not self._after:
                await self._step()
            result = await attribute(*args, **options)
            if is_turn and self._after:
                await self._step()
            return result

        return stepping


class Desk:
    """A store, its engines, and a clock that a test moves."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now = NOW
        self.act: Callable[[ToolContext], object] = lambda _: Later(expires_in=60)

        @tool(on_crash="ask")
        async def render(context: ToolContext) -> object:
            """Render a scene elsewhere."""
            answer = self.act(context)
            return await answer if isinstance(answer, Awaitable) else answer

        @tool(needs_approval=True)
        async def erase() -> str:
            """Erase."""
            return "erased"

        self.tools = [render, erase]

    def engine(self, *lines: Any, store: Any = None, **options: Any) -> Engine:
        model, tools = ScriptedModel(*(lines or ("Done.",))), [*self.tools, *options.pop("tools", ())]
        return Engine(model=model, tools=tools, store=store or self.store, now=lambda: self.now, **options)

    async def facts(self, kind: type, turn: str = "t") -> list[Any]:
        facts = await self.store.facts(turn)
        assert replay(facts).fault is None
        return [fact for _, fact in facts if isinstance(fact, kind)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize("result", ["film", "other"])
@pytest.mark.parametrize("method", ["inbox", "post"])
async def test_settling_after_a_faster_result_says_so(desk: Desk, method: str, result: str) -> None:
    """Rule 6: also where the other result was used between this one's look at the turn and its post."""
    await desk.engine(asks_for(("render", {}))).run(AGENT, "Render.", id="t")

    async def settle_first() -> None:
        assert await desk.engine().settle(KEY, "film", by="farm")
        assert (await desk.engine().resume("t")).text == "Done."

    late = desk.engine(store=Interleaved(desk.store, method, settle_first))
    if result == "film":
        assert await late.settle(KEY, result) is False
    else:
        with pytest.raises(AlreadySettledError, match="by farm"):
            await late.settle(KEY, result)
    assert [fact.result for fact in await desk.facts(CallSettled)] == ["film"]


async def test_settling_after_an_equal_refused_result_raises(desk: Desk) -> None:
    """Rule 6: a refused result that still lies in the inbox is not the one that the call has."""
    await desk.engine(asks_for(("render", {}))).run(AGENT, "Render.", id="t")

    async def settle_twice() -> None:
        assert await desk.engine().settle(KEY, "other")
        assert (await desk.engine().resume("t")).text == "Done."
        await desk.store.post(answer_item("t", "result-call00001", settled("film")))

    with pytest.raises(AlreadySettledError):
        await desk.engine(store=Interleaved(desk.store, "inbox", settle_twice)).settle(KEY, "film")


async def test_settling_is_true_though_the_result_was_used_at_once(desk: Desk) -> None:
    """Rule 6: a worker may use it before the one who gave it has looked again."""
    await desk.engine(asks_for(("render", {}))).run(AGENT, "Render.", id="t")

    async def drive() -> None:
        assert (await desk.engine().resume("t")).text == "Done."

    assert await desk.engine(store=Interleaved(desk.store, "post", drive, after=True)).settle(KEY, "film")
    assert [fact.result for fact in await desk.facts(CallSettled)] == ["film"]


async def test_result_of_a_call_rejected_meanwhile_is_refused(desk: Desk) -> None:
    """Rule 11: a person gave up just before."""
    await desk.engine(asks_for(("render", {}))).run(AGENT, "Render.", id="t")

    async def give_up() -> None:
        await desk.engine().resume("t", {"result-call00001": reject("too slow")})

    with pytest.raises((InvalidAnswerError, TurnAlreadyEndedError)):
        await desk.engine(store=Interleaved(desk.store, "post", give_up)).settle(KEY, "film")


@pytest.mark.parametrize("is_used", [True, False])
async def test_answer_after_a_faster_one_is_refused(desk: Desk, is_used: bool) -> None:
    """Rule 6 for answers: also where the faster one is not in the inbox any more."""
    await desk.engine(asks_for(("erase", {}), ("erase", {}))).run(AGENT, "Erase.", id="t")

    async def answer_first() -> None:
        if is_used:
            assert (await desk.engine().resume("t", {"approval-1": reject()})).paused
        else:
            await desk.engine().answer("t", {"approval-1": reject()})

    late = desk.engine(store=Interleaved(desk.store, "post", answer_first))
    with pytest.raises(InvalidAnswerError, match="it was answered before"):
        await late.answer("t", {"approval-1": True})
    assert (await desk.engine().get("t")).answered == (frozenset() if is_used else {"approval-1"})
    turn = await desk.engine().resume("t", {"approval-2": True})
    assert turn.text == "Done."
    assert [fact.decision for fact in await desk.facts(Answered)] == [Decision.REJECT, Decision.APPROVE]


async def test_answer_after_the_turn_ended_meanwhile_is_refused(desk: Desk) -> None:
    await desk.engine(asks_for(("erase", {}))).run(AGENT, "Erase.", id="t")
    late = desk.engine(store=Interleaved(desk.store, "post", lambda: desk.engine().abort("t")))
    with pytest.raises(TurnAlreadyEndedError):
        await late.answer("t", {"approval-1": True})


@pytest.mark.parametrize("calls", range(1, 6))
@pytest.mark.parametrize("method", ["claim", "inbox", "append", "post"])
async def test_result_in_time_beats_the_expiry(desk: Desk, method: str, calls: int) -> None:
    """Rule 4: whichever is first in the inbox. A result that was stored is used, at each place of the driver."""
    await desk.engine(asks_for(("render", {}))).run(AGENT, "Render.", id="t")
    stored: list[bool] = []

    async def settle_in_time() -> None:
        desk.now -= 61  # another process, whose clock is behind
        try:
            stored.append(await desk.engine().settle(KEY, "film"))
        except (AlreadySettledError, InvalidAnswerError, TurnAlreadyEndedError):
            stored.append(False)
        finally:
            desk.now += 61

    desk.now += 61
    turn = await desk.engine(store=Interleaved(desk.store, method, settle_in_time, calls=calls)).resume("t")
    assert turn.text == "Done."
    (settlement,) = await desk.facts(CallSettled)
    (answered,) = await desk.facts(Answered)
    assert (settlement.result, answered.via) == (
        ("film", "api") if stored == [True] else ("no result came within its time", "expiry")
    )


async def test_expiry_waits_for_no_approver(desk: Desk) -> None:
    """Rule 14: an approval of one person in time does not keep the other's place open."""

    @tool(needs_approval=True, approvers=2, expires_in=60)
    async def pay() -> str:
        """Pay."""
        return "paid"

    await desk.engine(asks_for(("pay", {})), tools=[pay]).run(AGENT, "Pay.", id="t")
    await desk.engine().answer("t", {"approval-1": True}, by="ann")
    desk.now += 61
    assert (await desk.engine("Done.", tools=[pay]).resume("t")).text == "Done."
    assert [(fact.decision, fact.via) for fact in await desk.facts(Answered)] == [
        (Decision.APPROVE, "api"),
        (Decision.REJECT, "expiry"),
    ]


# Early results


async def die(desk: Desk, *more: str) -> None:
    """Begin a turn whose first call dies with its process."""

    def end(_: ToolContext) -> object:
        raise KeyboardInterrupt

    act, desk.act = desk.act, end
    with pytest.raises(BaseException):  # noqa: B017, PT011 (it, or a group with it)
        await desk.engine(asks_for(("render", {}), *[(name, {}) for name in more])).run(AGENT, "Render.", id="t")
    desk.act = act


async def test_early_result_during_recovery_is_used(desk: Desk) -> None:
    """Rules 8 and 9: the result came when recovery had looked, and was about to ask a person."""
    await die(desk)
    stored: list[bool] = []

    async def settle() -> None:
        stored.append(await desk.engine().settle(KEY, "film"))

    await desk.engine(store=Interleaved(desk.store, "append", settle)).recover()
    assert stored == [True]
    turn = await desk.engine().get("t")
    assert (turn.text, turn.paused) == ("Done.", False)
    assert [fact.result for fact in await desk.facts(CallSettled)] == ["film"]
    assert not await desk.store.inbox("t")


async def test_early_result_beats_the_decision_to_run_again(desk: Desk) -> None:
    """Rule 9: a person decides `rerun` while another question is open, and the early result is in the inbox."""
    await die(desk, "erase")
    await desk.engine().recover()
    turn = await desk.engine().get("t")
    assert {interrupt.kind for interrupt in turn.interrupts} == {"unknown_outcome", "approval"}
    (unknown,) = [interrupt.id for interrupt in turn.interrupts if interrupt.kind == "unknown_outcome"]
    await desk.engine().answer("t", {unknown: "rerun"})
    early = answer_item("t", "result-call00001", settled("film"))  # as `settle` posts it before the wait
    await desk.store.post(early)
    await desk.engine().recover()
    turn = await desk.engine().resume("t", {"approval-1": True})
    assert [fact.result for fact in await desk.facts(CallSettled)] == ["film", "erased"]


async def test_dropped_early_result_is_warned_of(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Rule 8: the call asks a person instead of waiting."""

    async def ask(context: ToolContext) -> str:
        if context.attempt == 1:
            assert await desk.engine().settle(KEY, "film")
            raise NeedsPersonError(Ask(kind=InterruptKind.QUESTION, question="Which one?"))
        return "own"

    desk.act = ask
    turn = await desk.engine(asks_for(("render", {})), "Done.").run(AGENT, "Render.", id="t")
    assert turn.paused
    assert "result from outside is dropped" in caplog.text


async def test_early_result_of_a_sub_agent_is_known_after_its_end(desk: Desk) -> None:
    """Rule 6: the sub-agent's own turn took it, and the same result again is False."""
    child = Agent(name="Worker", description="Works.")
    key = "t:call00001:call00001"

    async def submit(_: ToolContext) -> Later:
        assert await desk.engine().settle(key, "film")
        return Later()

    desk.act = submit
    lines = [asks_for(("Worker", {"prompt": "Go."})), asks_for(("render", {})), "Rendered.", "Done."]
    turn = await desk.engine(*lines, tools=[agent_tool(child.model_copy(update={"tools": ("render",)}))]).run(
        AGENT, "Render.", id="t"
    )
    assert turn.text == "Done."
    assert await desk.engine().settle(key, "film") is False
    with pytest.raises(AlreadySettledError):
        await desk.engine().settle(key, "other")
