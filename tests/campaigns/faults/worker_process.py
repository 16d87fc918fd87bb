"""A process of the campaign: it drives the turn of a plan, and records its work, until it is killed."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from turnwright.agent import OUTPUT_TOOL
from turnwright.driver.dependencies import FinishedCall, Synthesis
from turnwright.driver.subagents import agent_tool
from turnwright.errors import InvalidAnswerError, LeaseLostError, TurnAlreadyEndedError, TurnBusyError
from turnwright.journal.answers import Answer as PersonsReply
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.model.scripted import asks_for
from turnwright.runtime.engine import Engine
from turnwright.store import Store, open_store
from turnwright_states import Cause, Usage
from turnwright_testing import FlakyModel, Line
from turnwright_testing.faults import KillAt, KillingStore, Witness, kill_this_process
from turnwright_testing.faults.watched import NotingStore, describe_pairing, watched_tools

from .app_code import HELPER, agent_of
from .plan import Kill, KillIn, Plan

_NEVER_WAIT: Final = Backoff(initial=0.0, max_retry_after=0.0)
#: Seconds that a dead driver's lock may outlive it, on a server that has yet to notice.
_PATIENCE: Final = 10.0
#: Words of the prompt that asks for a summary, of the summary, and of the result of an answer that does not fit.
_SUMMARIZE: Final = "only your summary of it will remain"
_SO_FAR: Final = "Steps so far:"
_MISFIT: Final = "does not fit"
#: The beginning of a sub-agent's prompt, and its number.
_HELP: Final = "Help with"
_HELPED: Final = re.compile(rf"^{_HELP} (\d+)$", re.MULTILINE)
#: The usage of each reply.
_USAGE: Final = Usage(input_tokens=9, output_tokens=3)


@dataclass(frozen=True, slots=True)
class Role:
    """The work of a process, and the place where it is to die.

    Without a turn it runs a new one. `answers` are those of the person `by`, by interrupt. `sweep` takes the turn up
    with `Engine.recover` instead of `Engine.resume`.
    """

    plan: Plan
    address: str
    witness: Path
    turn: str = ""
    answers: Mapping[str, PersonsReply] = field(default_factory=dict)
    by: str = ""
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
        pending = [("pending", interrupt.id, interrupt.kind) for interrupt in turn.interrupts]
        witness.note_all([*pending, ("stands", turn.state)])


def engine_of(role: Role, witness: Witness) -> Engine:
    kill = role.kill
    store: Store = NotingStore(open_store(role.address), witness)
    if isinstance(kill, KillAt):
        store = KillingStore(store, kill)
    inside = kill if isinstance(kill, KillIn) else None
    dies_in = inside.number if inside is not None and inside.call == "tool" else None
    return Engine(
        agents=[agent_of(role.plan, witness)],
        model=PlannedModel(role.plan, witness, inside),
        tools=[*watched_tools(witness, dies_in=dies_in), agent_tool(HELPER)],
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
                await engine.resume(role.turn, answers, by=role.by)
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


class PlannedModel(FlakyModel):
    """A model that follows the plan. Its reply depends on the conversation, not on the number of calls."""

    name = "planned"

    def __init__(self, plan: Plan, witness: Witness, kill: KillIn | None) -> None:
        super().__init__()
        self._plan = plan
        self._witness = witness
        self._kill = kill
        self._failed: dict[int, int] = {}

    async def next_line(self, request: ModelRequest) -> Line:
        self._witness.note("asked", describe_pairing(request))
        await anyio.sleep(0.001)
        if self._kill is not None and (self._kill.call, self._kill.number) == ("model", len(self.requests)):
            kill_this_process()
        return self._reply(request)

    def _reply(self, request: ModelRequest) -> ModelResponse:
        step = _steps_of(request)
        helps = _HELPED.search(next((message.text for message in request.messages if message.role == "user"), ""))
        if helps is not None:
            steps = self._plan.helper_steps(int(helps[1]))
            if request.tool_choice == "none" or step >= len(steps):
                return ModelResponse(text="That is done.", usage=_USAGE)
            return asks_for(*(_call(*step_call) for step_call in steps[step]), usage=_USAGE)
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
        return asks_for(*(_call(*step_call) for step_call in self._plan.steps[step]), text="Well", usage=_USAGE)


def _steps_of(request: ModelRequest) -> int:
    """Return the number of steps with calls, by the conversation: those that a summary counts, and those after it."""
    steps = 0
    for message in request.messages:
        if message.role == "user" and _SO_FAR in message.text:
            steps = int(message.text.rpartition(_SO_FAR)[2])
        steps += any(call.name != OUTPUT_TOOL for call in message.calls)
    return steps


def _call(name: str, number: int) -> tuple[str, Mapping[str, int | str]]:
    if name == HELPER.name:
        return name, {"prompt": f"{_HELP} {number}"}
    return name, {"question": f"What about {number}?"} if name == "ask_user_input" else {"n": number}


def _synthesis(plan: Plan) -> Synthesis | None:
    if plan.synthesis is None:
        return None
    calls = len(plan.steps[plan.synthesis - 1])

    async def synthesize(batch: tuple[FinishedCall, ...]) -> str | None:
        await anyio.sleep(0.001)
        return "All in one." if len(batch) == calls else None

    return synthesize
