"""A process of the campaign: it drives the turn of a plan, and records its work, until it is killed."""

import json
import time
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from turnwright.agent import OUTPUT_TOOL
from turnwright.engine import Engine
from turnwright.errors import InvalidAnswerError, LeaseLostError, TurnAlreadyEndedError, TurnBusyError
from turnwright.journal.answers import Answer as PersonsReply
from turnwright.journal.dependencies import FinishedCall, Synthesis
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.model.retry import Backoff
from turnwright.model.scripted import asks_for
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, InboxItem, NewTurn, Status, Store, open_store
from turnwright.tools import Tool, ToolContext, ToolError, builtin_tools, tool
from turnwright.transcript.pairing import UnpairedError, check_pairing
from turnwright_states import Cause, Usage
from turnwright_states.facts import Fact

from .app_code import agent_of
from .kill import KillAt, KillingStore, kill_this_process
from .plan import Kill, KillIn, Plan
from .witness import Witness
from .wrapper import StoreWrapper

_NEVER_WAIT: Final = Backoff(initial=0.0, max_retry_after=0.0)
#: Seconds that a dead driver's lock may outlive it, on a server that has yet to notice.
_PATIENCE: Final = 10.0
#: Words of the prompt that asks for a summary, of the summary, and of the result of an answer that does not fit.
_SUMMARIZE: Final = "only your summary of it will remain"
_SO_FAR: Final = "Steps so far:"
_MISFIT: Final = "does not fit"
#: The usage of each reply.
_USAGE: Final = Usage(input_tokens=9, output_tokens=3)


@dataclass(frozen=True, slots=True)
class Role:
    """The work of a process, and the place where it is to die.

    Without a turn it runs a new one. `answers` are those of a person, by interrupt. `sweep` takes the turn up with
    `Engine.recover` instead of `Engine.resume`.
    """

    plan: Plan
    address: str
    witness: Path
    turn: str = ""
    answers: Mapping[str, PersonsReply] = field(default_factory=dict)
    sweep: bool = False
    kill: Kill | None = None


async def act(role: Role) -> None:
    """Drive until the turn ends or pauses; then write its state (`stands`) and its `interrupts` as the last line.

    One that was overtaken says `fenced`.
    """
    witness = Witness(role.witness)
    async with engine_of(role, witness) as engine:
        try:
            turn_id = role.turn or (await engine.run(agent_of(role.plan, witness), "hi")).id
            if role.turn:
                await _take_up(engine, role, witness)
        except LeaseLostError as fenced:
            witness.note("fenced", fenced.turn, fenced.epoch)
            return
        turn = await engine.get(turn_id)
        pending = [("pending", one.id, one.kind) for one in turn.interrupts]
        witness.note_all([*pending, ("stands", turn.state)])


def engine_of(role: Role, witness: Witness) -> Engine:
    kill = role.kill
    store: Store = NotingStore(open_store(role.address), witness)
    if isinstance(kill, KillAt):
        store = KillingStore(store, kill)
    inside = kill if isinstance(kill, KillIn) else None
    return Engine(
        agents=[agent_of(role.plan, witness)],
        model=PlannedModel(role.plan, witness, inside),
        tools=tools_of(witness, inside),
        store=store,
        limits=role.plan.limits,
        synthesize=_synthesis(role.plan),
        backoff=_NEVER_WAIT,
        max_parallel_tools=role.plan.parallel,
        cancel_grace=0.01,
    )


async def _take_up(engine: Engine, role: Role, witness: Witness) -> None:
    ends = time.monotonic() + _PATIENCE
    answers = role.answers
    while True:
        try:
            if role.sweep and not answers:
                if await engine.recover() or not await engine.store.is_driven(role.turn):
                    return
            else:
                await engine.resume(role.turn, answers)
                return
        except TurnAlreadyEndedError:
            return
        except InvalidAnswerError:  # somebody was faster: a process that was killed when it had answered
            witness.note("refused", role.turn)
            answers = {}
            continue
        except TurnBusyError:
            if time.monotonic() > ends:
                raise
        await anyio.sleep(0.005)


class NotingStore(StoreWrapper):
    """A store that records each acknowledged write."""

    def __init__(self, inner: Store, witness: Witness) -> None:
        super().__init__(inner)
        self._witness = witness

    @property
    def inline(self) -> bool:
        """See `StoreWrapper.inline`. Nothing here suspends."""
        return self.inner.inline

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        claim = await super().create(new, facts, status, driven=driven)
        self._note(claim, 0, facts)
        return claim

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        claim = await super().claim(turn_id, abandoned=abandoned)
        self._witness.note("claimed", turn_id, claim.epoch, claim.seq)
        return claim

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        before = claim.seq
        waiting = await super().append(claim, facts, status, consumed)
        self._note(claim, before, facts)
        return waiting

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        await super().release(claim, crashed=crashed)
        self._witness.note("released", claim.turn, claim.epoch)

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        in_the_way = await super().post(*items)
        if not in_the_way:
            self._witness.note_all(
                [("posted", item.turn, item.id, json.loads(item.payload).get("decision", "-")) for item in items]
            )
        return in_the_way

    def _note(self, claim: Claim, before: int, facts: Sequence[Fact]) -> None:
        first = [("claimed", claim.turn, claim.epoch, 0)] if before == 0 else []
        wrote = [
            ("wrote", claim.turn, claim.epoch, seq, fact.kind, checksum(fact.payload()))
            for seq, fact in enumerate(facts, start=before + 1)
        ]
        self._witness.note_all([*first, *wrote])


def checksum(text: str) -> str:
    """Return eight letters that differ for different texts."""
    return f"{zlib.crc32(text.encode()):08x}"


class PlannedModel:
    """A model that follows the plan. Its reply depends on the conversation, not on the number of calls."""

    name = "planned"

    def __init__(self, plan: Plan, witness: Witness, kill: KillIn | None) -> None:
        self._plan = plan
        self._witness = witness
        self._kill = kill
        self._calls = 0
        self._failed: dict[int, int] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        self._witness.note("asked", paired(request))
        self._calls += 1
        yield TextDelta("Well")
        await anyio.sleep(0.001)
        if self._kill is not None and (self._kill.what, self._kill.number) == ("model", self._calls):
            kill_this_process()
        yield self._reply(request)

    def _reply(self, request: ModelRequest) -> ModelResponse:
        step = _steps_of(request)
        if request.tool_choice == "none" and _SUMMARIZE in request.messages[-1].text:
            return ModelResponse(text=f"{_SO_FAR} {step}", usage=_USAGE)
        done = step >= len(self._plan.steps)
        if self._failed.get(step, 0) < dict(enumerate(self._plan.failures)).get(step, 0):
            self._failed[step] = self._failed.get(step, 0) + 1
            raise ModelError("overloaded", cause=Cause.OVERLOADED)
        if request.tool_choice == "none" or (done and "typed" not in self._plan.features):
            return ModelResponse(text="Well, that is all.", usage=_USAGE)
        if done:  # the first answer is one that does not fit
            total = 9 if _MISFIT in str(request.messages[-1].parts) else "many"
            return asks_for((OUTPUT_TOOL, {"total": total}), usage=_USAGE)
        return asks_for(*(_call(*one) for one in self._plan.steps[step]), text="Well", usage=_USAGE)


def _steps_of(request: ModelRequest) -> int:
    """Return the number of steps with calls, by the conversation: those that a summary counts, and those after it."""
    steps = 0
    for message in request.messages:
        if message.role == "user" and _SO_FAR in message.text:
            steps = int(message.text.rpartition(_SO_FAR)[2])
        steps += any(call.name != OUTPUT_TOOL for call in message.calls)
    return steps


def _call(name: str, number: int) -> tuple[str, Mapping[str, int | str]]:
    return name, {"question": f"What about {number}?"} if name == "ask_user_input" else {"n": number}


def paired(request: ModelRequest) -> str:
    """Return `paired`, or `unpaired` if a call of the request has no result."""
    try:
        check_pairing(request.messages)
    except UnpairedError:
        return "unpaired"
    return "paired"


def _synthesis(plan: Plan) -> Synthesis | None:
    if plan.synthesis is None:
        return None
    calls = len(plan.steps[plan.synthesis - 1])

    async def synthesize(batch: tuple[FinishedCall, ...]) -> str | None:
        await anyio.sleep(0.001)
        return "All in one." if len(batch) == calls else None

    return synthesize


def tools_of(witness: Witness, kill: KillIn | None) -> list[Tool]:
    """Return the tools of every plan. They take a moment, so that a kill may come meanwhile."""
    ran = 0

    async def work(context: ToolContext, n: int) -> str:
        nonlocal ran
        ran += 1
        with witness.runs(context):
            await anyio.sleep(0.001 * (n % 4))
            if kill is not None and (kill.what, kill.number) == ("tool", ran):
                kill_this_process()
        return f"did {n}"

    @tool(idempotent=True)
    async def put(context: ToolContext, n: int) -> str:
        """Put something; a repetition is harmless."""
        return await work(context, n)

    @tool
    async def send(context: ToolContext, n: int) -> str:
        """Send something; a repetition would be a fault."""
        return await work(context, n)

    @tool(on_crash="ask")
    async def pay(context: ToolContext, n: int) -> str:
        """Pay something; a person decides about a repetition."""
        return await work(context, n)

    @tool(needs_approval=True)
    async def erase(context: ToolContext, n: int) -> str:
        """Erase something, with approval."""
        return await work(context, n)

    @tool
    async def dwell(context: ToolContext, n: int) -> str:
        """Wait for so many milliseconds."""
        with witness.runs(context):
            await anyio.sleep(n / 1000)
        return f"dwelt {n} ms"

    @tool
    async def fail(context: ToolContext, n: int) -> str:
        """Fail always."""
        raise ToolError(f"{await work(context, n)}, and failed")

    (ask,) = (one for one in builtin_tools(Path()) if one.name == "ask_user_input")
    return [put, send, pay, erase, dwell, fail, ask, *_gated(witness)]


def _gated(witness: Witness) -> list[Tool]:
    """Return tools that run until a test opens their gate: no plan draws them."""

    async def wait(context: ToolContext, n: int) -> str:
        with witness.runs(context):
            await witness.gate_opened(n)
        return f"went through gate {n}"

    @tool
    async def hold(context: ToolContext, n: int) -> str:
        """Wait for this gate; a repetition would be a fault."""
        return await wait(context, n)

    @tool(idempotent=True)
    async def keep(context: ToolContext, n: int) -> str:
        """Wait for this gate; a repetition is harmless."""
        return await wait(context, n)

    @tool(on_crash="ask")
    async def stay(context: ToolContext, n: int) -> str:
        """Wait for this gate; a person decides about a repetition."""
        return await wait(context, n)

    return [hold, keep, stay]
