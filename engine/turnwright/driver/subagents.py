"""Sub-agents: calls that drive a turn of their own (DESIGN 4.14)."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypedDict, Unpack

import anyio
from pydantic import JsonValue

from turnwright._base.background_task import background_task
from turnwright._base.ids import child_id
from turnwright.agent import Agent
from turnwright.errors import CannotRunError, ConfigError, TurnBusyError, TurnNotFoundError
from turnwright.journal.admission import NewTurnClaim, admit, write_turn
from turnwright.journal.answers import Answer, unanswered
from turnwright.journal.inbox import abort_item, answer_item
from turnwright.journal.questions import question
from turnwright.journal.termination import end_child, spent_by
from turnwright.journal.turn_journal import first_fact
from turnwright.result import TurnResult, result_of
from turnwright.store import InboxItem
from turnwright.tools.context import ToolContext
from turnwright.tools.errors import ToolInputError
from turnwright.tools.text import cap
from turnwright.tools.tool import Approval, LoopKey, Tool
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import (
    REASONS,
    Call,
    CallSettledInput,
    CallStatus,
    CallWaitingInput,
    InterruptKind,
    Limits,
    Outcome,
    Spent,
    StartedInput,
)
from turnwright_states import facts as f
from turnwright_states.batch import unaccounted

from .segment import Segment

_LOG = logging.getLogger(__name__)

Drive = Callable[[str, NewTurnClaim | None], Awaitable[object]]
Journal = Sequence[tuple[int, f.Fact]]

_PARAMETERS: Final[dict[str, JsonValue]] = {
    "type": "object",
    "properties": {
        "prompt": {
            "type": "string",
            "description": "The whole task: the sub-agent sees nothing of this conversation.",
        }
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
_STATUS: Final = {Outcome.FAILED: CallStatus.ERROR, Outcome.ABORTED: CallStatus.ABORTED}
_GONE: Final = (
    "outcome unknown: the sub-agent's turn is not there: it was deleted, or this turn is a fork of the one that had it;"
    " verify before retrying"
)
#: The results of calls are public, and what is missing has a name and an address: the log has these.
_CANNOT_RUN: Final = (
    "the sub-agent cannot run here: it is gone, or its model, a tool or a price that it needs is; to call it again"
    " does not help"
)
_NO_PAUSE: Final = "the turn that called this sub-agent may not pause for a person any more"


class AgentToolOptions(TypedDict, total=False):
    """What `agent_tool` takes of the options of `@tool`: see `Tool`."""

    needs_approval: Approval
    loop_key: LoopKey | None
    ignore_in_loop_detection: bool
    expires_in: float | None
    read_only: bool | None


class AgentTool(Tool):
    """A sub-agent that a model may call: what `agent_tool` makes."""

    delegates = True

    def __init__(self, agent: Agent, *, name: str, description: str, **options: Unpack[AgentToolOptions]) -> None:
        ignored = sorted(options.keys() - AgentToolOptions.__annotations__.keys())
        if ignored:
            raise ConfigError(
                f"sub-agent {name}: {ignored[0]}: a turn takes no such option of a tool: how long it may take is its"
                " agent's budget of seconds, and what a crash leaves of it, its own journal says"
            )
        super().__init__(name=name, description=description, parameters=_PARAMETERS, **options)
        self.agent = agent

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """See `Tool.parse`: one argument, `prompt`, which says something."""
        prompt = arguments.get("prompt")
        if set(arguments) != {"prompt"} or not isinstance(prompt, str) or not prompt.strip():
            raise ToolInputError(f"{self.name} takes one argument, prompt: a text that says what to do")
        return {"prompt": prompt}

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        """A turn drives its sub-agents itself; nobody else can run one as a tool."""
        raise ConfigError(f"{self.name} is a sub-agent ({context.call_id}, {sorted(values)}): only a turn can run it")


def agent_tool(
    agent: Agent, *, name: str | None = None, description: str | None = None, **options: Unpack[AgentToolOptions]
) -> AgentTool:
    """Make a tool of an agent: each call runs a turn of it, within a share of what is left to the calling turn.

    Its id is `{turn}:{call}`. `name` is what models call it (the agent's name, in letters, digits, `_` and `-`, if it
    is left out), `description` what they read of it (the agent's). The `options` are as in `@tool`. Raises
    `ConfigError` for another option, for a name that providers refuse, and for an agent that says nothing of what it
    is for. Source: DESIGN 4.14.
    """
    told = description or agent.description
    if not told.strip():
        raise ConfigError(f"agent {agent.name!r}: a sub-agent needs a description: models choose it by that")
    called = name or agent.tool_name
    if not called:
        raise ConfigError(f"agent {agent.name!r}: no name for models can be made of that: give agent_tool(name=...)")
    return AgentTool(agent, name=called, description=told, **options)


def subagent_tools(tools: Mapping[str, Tool], agent: Agent) -> dict[str, Agent]:
    """The sub-agents among `tools` that a turn of this agent may call, by the names that models call them."""
    return {
        name: tool.agent
        for name, tool in tools.items()
        if isinstance(tool, AgentTool) and agent.may_use(name, delegates=True)
    }


class Children:
    """The sub-agents of one turn that is being driven.

    `drive` drives a turn; `abort` stops what is done for one that is driven here.
    """

    def __init__(self, segment: Segment, drive: Drive, abort: Callable[[InboxItem], None]) -> None:
        self._segment = segment
        self._store = segment.journal.store
        self._drive = drive
        self._abort = abort

    async def work(self, call: Call) -> CallSettledInput | CallWaitingInput:
        """Drive the sub-agent of a started call until it has ended, or waits for a person.

        It is begun if it is not there yet, and taken up where it was left if it is, with the answers that people gave
        meanwhile. Where this turn may not pause any more, what it asks is turned down. One that cannot run here, or
        that somebody has deleted, is the call's result and not this turn's end. Why it cannot run is logged.
        """
        child = child_id(self._segment.journal.turn_id, call.id)
        try:
            return await self._drive_on(child, call, await self._begin(child, call))
        except TurnNotFoundError:
            return self._settled(call, CallStatus.UNKNOWN, _GONE, unaccounted(call))
        except CannotRunError:
            raise  # it began where it could run, and may go on there: so it is left alone, and this turn too
        except ConfigError as error:
            known = {"turn": self._segment.journal.turn_id, "call": call.id, "tool": call.name}
            _LOG.warning("turn %s: sub-agent %s cannot run here: %s", known["turn"], call.name, error, extra=known)
            spent = Spent()
            with suppress(TurnNotFoundError):  # it never began
                journal = self._segment.journal
                abandoned = journal.claim.abandoned.for_children
                await end_child(self._store, child, journal.listeners, abandoned=abandoned)
                spent = spent_by(result_of(child, await self._store.facts(child)))
            return self._settled(call, CallStatus.ERROR, _CANNOT_RUN, spent)

    async def _drive_on(
        self, child: str, call: Call, begun: NewTurnClaim | None
    ) -> CallSettledInput | CallWaitingInput:
        while True:
            async with background_task(self._pass_on_an_abort, child):
                await self._drive_when_free(child, begun)
            begun = None
            facts = await self._store.facts(child)
            result = result_of(child, facts)
            if result.outcome is not None:
                status = _STATUS.get(result.outcome, CallStatus.OK)
                return self._settled(call, status, _report(result), spent_by(result))
            if self._segment.machine.turn.counters.pauses_left:
                return self._forwarded(call, result.interrupts[0], str(first_fact(child, facts).agent["name"]))
            for asked in result.interrupts:
                await self._store.post(answer_item(child, asked.id, Answer(unanswered(asked.kind), _NO_PAUSE)))

    async def _drive_when_free(self, child: str, begun: NewTurnClaim | None) -> None:
        while True:
            try:
                await self._drive(child, begun)
            except TurnBusyError:
                # Somebody is ending it, or a server has yet to notice that its last driver is gone.
                await anyio.sleep(self._segment.setup.poll_interval)
            else:
                return

    async def _begin(self, child: str, call: Call) -> NewTurnClaim | None:
        """Write the sub-agent's turn, or, if it is there, hand it the answers that people gave.

        Raises `ConfigError` for an agent that cannot run here, and `TurnNotFoundError` for a turn that was there
        before.
        """
        try:
            await self._store.get(child)
        except TurnNotFoundError:
            if call.attempt > 1:  # a call starts again only after its sub-agent has asked for a person
                raise
            # Between here and the driver, which lets go of what it was given, nothing may be cancelled.
            with anyio.CancelScope(shield=True):
                listeners, now = self._segment.journal.listeners, self._segment.setup.now()
                agent, started = self._started(call)
                return await write_turn(self._store, child, agent, started, created_at=now, listeners=listeners)
        await self._hand_down(child, call)
        return None

    def _started(self, call: Call) -> tuple[Agent, StartedInput]:
        segment = self._segment
        tool = segment.setup.tools.get(call.name)
        if not isinstance(tool, AgentTool):
            raise ConfigError(f"{call.name} is no sub-agent any more: make it with agent_tool(...)")
        turn, setup = segment.machine.turn, segment.setup
        started = admit(setup, tool.agent, str(call.arguments["prompt"]), {})
        left = None if turn.limits.seconds is None else max(turn.limits.seconds - segment.elapsed(), 0.001)
        limits = leased_limits(started.limits, call.made.lease or f.Lease(), left)
        if limits.cost is not None and started.model not in setup.prices:
            raise ConfigError(
                f"agent {tool.agent.name!r}: the calling turn has a cost budget, which needs the price of model"
                f" {started.model!r}: give the engine prices={{name: Price(input=..., output=...)}}"
            )
        lineage = {"parent_turn": segment.journal.turn_id, "parent_call": call.id, "depth": turn.depth + 1}
        return tool.agent, started.model_copy(update={"limits": limits, **lineage})

    async def _hand_down(self, child: str, call: Call) -> None:
        """Pass on what people answered to the sub-agent's own interrupts."""
        # An answer to the call's own interrupt, leave to begin, is none to its sub-agent's of the same name.
        prefix = f"{call.id}/"
        given = {
            one.interrupt.removeprefix(prefix): Answer(one.decision, one.text)
            for one in call.answers
            if one.interrupt.startswith(prefix)
        }
        for asked in result_of(child, await self._store.facts(child)).interrupts:
            if asked.id in given:
                await self._store.post(answer_item(child, asked.id, given[asked.id]))

    async def _pass_on_an_abort(self, child: str) -> None:
        """An abort reaches the sub-agent too, whose tools have as long to finish then as this turn's own."""
        await self._segment.interruption.signal.wait()
        request = abort_item(child)
        await self._store.post(request)
        self._abort(request)

    def _settled(self, call: Call, status: CallStatus, result: str, spent: Spent | None) -> CallSettledInput:
        return CallSettledInput(
            call=call.id, status=status, result=result, spent=spent, elapsed=self._segment.elapsed()
        )

    def _forwarded(self, call: Call, asked: Interrupt, agent: str) -> CallWaitingInput:
        """What the sub-agent asks, as this turn asks it.

        Its arguments go along, so that whoever answers sees all of them at every level. What leave is asked for is in
        the words alone: it is the sub-agent that is given it, and not this turn too.
        """
        return CallWaitingInput(
            call=call.id,
            interrupt_kind=asked.kind,
            question=_question(asked, agent),
            choices=asked.choices,
            arguments=None if asked.kind is InterruptKind.QUESTION else asked.arguments,
            expires_at=asked.expires_at,
            forwarded=asked.id,
            elapsed=self._segment.elapsed(),
        )


def _question(asked: Interrupt, agent: str) -> str:
    """Return who asks, along the path of agents, and what: `Lead > Reader: may erase run?`."""
    if "/" in asked.id:  # forwarded before: its question says all of this already
        return f"{agent} > {asked.question}"
    return f"{agent}: {question(asked)}"


def _report(result: TurnResult) -> str:
    """What the calling model is told: what the sub-agent said, how it ended, and its turn.

    Not the text of an error, which may name hosts and accounts: a call's result is public. The sub-agent's turn has it.
    """
    said = f"{cap(result.text)}\n\n" if result.text else ""
    why = ""
    if result.outcome is Outcome.FAILED and result.reason is not None:
        why = f": {REASONS[result.reason].means.rstrip('.')}"
    return f"{said}[sub-agent: {result.outcome}, {result.reason}{why}; turn {result.id}]"


def leased_limits(limits: Limits, lease: f.Lease, seconds: float | None) -> Limits:
    """A sub-agent's limits: its own, and no more than it is lent. `seconds` is what is left of its parent's time."""
    lowest = {
        "tool_calls": (limits.call_limit, lease.calls),
        "tokens": (limits.tokens, lease.tokens),
        "cost": (limits.cost, lease.cost),
        "seconds": (limits.seconds, seconds),
    }
    return limits.model_copy(
        update={name: min((one for one in pair if one is not None), default=None) for name, pair in lowest.items()}
    )
