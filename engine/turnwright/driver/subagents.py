"""Sub-agents: tool calls that drive a turn of their own (docs/rules.md#sub-agents)."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypedDict, TypeVar, Unpack, cast

import anyio
from msgspec.structs import asdict, replace
from pydantic import JsonValue

from turnwright._base.background_task import background_task
from turnwright._base.ids import child_id
from turnwright._base.words import clean
from turnwright.agent import Agent
from turnwright.context import DepsT_contra, JsonObject
from turnwright.errors import (
    CannotRunError,
    ConfigError,
    LeaseLostError,
    StoreError,
    TurnBusyError,
    TurnNotFoundError,
    need_kind,
)
from turnwright.journal.answers import Answer, Signature, answer_item, make_default_answer
from turnwright.journal.inbox import abort_item, forwarded, is_same_answer
from turnwright.journal.result import TurnResult, result_of
from turnwright.journal.termination import spent_by
from turnwright.journal.turn_journal import first_fact
from turnwright.store import InboxItem
from turnwright.tools.context import ToolContext
from turnwright.tools.errors import ToolInputError
from turnwright.tools.result import cap
from turnwright.tools.tool import Approval, LoopKey, Tool
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import (
    REASONS,
    Call,
    CallQuestion,
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
from turnwright_states.batch import find_unaccounted_spending
from turnwright_states.limits import MAX_ANSWERS

from .admission import NewTurnClaim, admit, write_turn
from .segment import Segment

_LOG = logging.getLogger(__name__)

#: The dependencies that an agent needs.
D = TypeVar("D")
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
    "outcome unknown: the sub-agent's turn was not found: it was deleted, or this turn is a fork of its parent;"
    " verify before retrying"
)
#: A call's result is public. The name or address of what is missing is only in the log.
_CANNOT_RUN: Final = (
    "the sub-agent cannot run here: its limits are not allowed, or the agent, its model, a tool or a price is missing;"
    " calling it again does not help"
)
_NO_PAUSE: Final = "the turn that called this sub-agent has no pause left"


class AgentToolOptions(TypedDict, total=False):
    """Options of `@tool` that `agent_tool` accepts. See `Tool`."""

    needs_approval: Approval
    loop_key: LoopKey | None
    ignore_in_loop_detection: bool
    expires_in: float | None
    approvers: int
    read_only: bool | None


class AgentTool(Tool[DepsT_contra]):
    """A sub-agent that a model may call, made by `agent_tool`."""

    delegates = True
    #: The questions of its agent are asked by that agent's tools.
    asks_with_context = False

    def __init__(
        self, agent: Agent[DepsT_contra, object], *, name: str, description: str, **options: Unpack[AgentToolOptions]
    ) -> None:
        unknown_options = sorted(options.keys() - AgentToolOptions.__annotations__.keys())
        if unknown_options:
            raise ConfigError(
                f"sub-agent {name}: {unknown_options[0]} is not an option of a sub-agent: its agent's `seconds` limits"
                " its time, and its own journal handles crashes"
            )
        super().__init__(name=name, description=description, parameters=_PARAMETERS, **options)
        self.agent = cast("Agent", agent)

    @property
    def may_answer(self) -> bool:
        """Only with `return_direct`: a sub-agent's answer is a text."""
        return self.return_direct

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Check the one argument, a `prompt` with text. See `Tool.parse`."""
        prompt = arguments.get("prompt")
        if set(arguments) != {"prompt"} or not isinstance(prompt, str) or not prompt.strip() or clean(prompt) != prompt:
            raise ToolInputError(f"{self.name} takes one argument, prompt: the task as text")
        return {"prompt": prompt}

    async def execute(self, values: Mapping[str, object], context: ToolContext[DepsT_contra]) -> object:
        """Refuse: only the driver of a turn runs sub-agents."""
        raise ConfigError(f"{self.name} is a sub-agent ({context.call_id}, {sorted(values)}): only a turn can run it")


def agent_tool(
    agent: Agent[D, object],
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[AgentToolOptions],
) -> AgentTool[D]:
    """Make a tool of an agent: each call runs a turn of it, within a share of the calling turn's remaining limits.

    The turn's id is `{turn}:{call}`. `name` is what models call it; the default is the agent's name in letters, digits,
    `_` and `-`. `description` is for the models; the default is the agent's. The `options` are those of `@tool`. The
    sub-agent shares the dependencies of the calling turn.

    Raises `ConfigError` for an unknown option, a name that providers refuse, and a missing description. See
    docs/rules.md#sub-agents.
    """
    need_kind("agent_tool: agent", agent, Agent, "Agent(name=...)")
    tool_description = description or agent.description
    if not tool_description.strip():
        raise ConfigError(f"agent {agent.name!r}: a sub-agent needs a description, by which models choose it")
    tool_name = name or agent.tool_name
    if not tool_name:
        why = "its name has no letter or digit of ASCII for its tool: rename it, or give agent_tool(name=...)"
        raise ConfigError(f"agent {agent.name!r}: {why}")
    return AgentTool(agent, name=tool_name, description=tool_description, **options)


def agent_tools(agents: Iterable[Agent[D, object]]) -> list[AgentTool[D]]:
    """Return a tool for each agent that others may call (`mode: subagent` or `all`), in their order.

    Add them to the engine's tools: `Engine(tools=[*tools, *agent_tools(agents)])`. An agent without a `tools` list may
    then call all of them. A sub-agent may call only those that its `tools` name, because recursion is seldom intended.
    An agent of mode `all` is a sub-agent while it is called.

    Raises `ConfigError` if two tools would have one name. See docs/rules.md#sub-agents.
    """
    tools: dict[str, AgentTool[D]] = {}
    for agent in agents:
        if agent.mode == "primary":
            continue
        tool = agent_tool(agent.model_copy(update={"mode": "subagent"}))
        if tool.name in tools:
            raise ConfigError(
                f"agent {agent.name!r}: its tool would be called {tool.name}, like the tool of agent"
                f" {tools[tool.name].agent.name!r}: rename one of them"
            )
        tools[tool.name] = tool
    return list(tools.values())


def primary_agents(agents: Sequence[Agent]) -> list[Agent]:
    """Return the agents that people run: all but the sub-agents. A sub-agent can still be run by its name."""
    return [agent for agent in agents if agent.mode != "subagent"]


def subagent_tools(tools: Mapping[str, Tool], agent: Agent) -> dict[str, Agent]:
    """Return the sub-agents among `tools` that a turn of this agent may call, by tool name."""
    return {
        name: tool.agent
        for name, tool in tools.items()
        if isinstance(tool, AgentTool) and agent.may_use(name, delegates=True)
    }


class SubagentCalls:
    """Runs the sub-agents of one turn that is being driven.

    `drive` drives a turn. `abort` interrupts a turn that this process drives.
    """

    def __init__(self, segment: Segment, drive: Drive, abort: Callable[[InboxItem], None]) -> None:
        self._segment = segment
        self._store = segment.journal.store
        self._drive = drive
        self._abort = abort

    async def run(self, call: Call) -> CallSettledInput | CallWaitingInput:
        """Drive the sub-agent's turn of a started call until it ends or waits for a person.

        The turn is started, or resumed with the answers that people gave. If this turn has no pause left, the
        sub-agent's questions are rejected. A sub-agent that cannot run here, or was deleted, becomes the call's result.
        The log has the reason.
        """
        child = child_id(self._segment.journal.turn_id, call.id)
        try:
            return await self._drive_on(child, call, await self._begin(child, call))
        except TurnNotFoundError:
            return self._settle(call, CallStatus.UNKNOWN, _GONE, find_unaccounted_spending(call))
        except CannotRunError:
            raise  # its turn has started elsewhere and may go on there: both turns stay as they are
        except ConfigError as error:
            extra = {"turn": self._segment.journal.turn_id, "call": call.id, "tool": call.name}
            rule_state: JsonObject | None = None if self._segment.machine.turn.rules is None else {}
            _LOG.warning("turn %s: sub-agent %s cannot run here: %s", extra["turn"], call.name, error, extra=extra)
            return self._settle(call, CallStatus.ERROR, _CANNOT_RUN, Spent(rules=rule_state))  # its turn has not begun

    async def _drive_on(
        self, child: str, call: Call, new_turn: NewTurnClaim | None
    ) -> CallSettledInput | CallWaitingInput:
        while True:
            async with background_task(self._pass_on_an_abort, child):
                await self._drive_when_free(child, new_turn)
            new_turn = None
            facts = await self._store.facts(child)
            result = result_of(child, facts)
            if result.outcome is not None:
                status = _STATUS.get(result.outcome, CallStatus.OK)
                return self._settle(call, status, _report(result), spent_by(result, facts))
            if self._segment.machine.turn.counters.pauses_left:
                return self._forward_questions(call, result.interrupts, str(first_fact(child, facts).agent["name"]))
            for interrupt in result.interrupts:
                await self._store.post(answer_item(child, interrupt.id, make_default_answer(interrupt, _NO_PAUSE)))

    async def _drive_when_free(self, child: str, new_turn: NewTurnClaim | None) -> None:
        while True:
            try:
                await self._drive(child, new_turn)
            except TurnBusyError:
                # Another process is ending it, or the store has yet to notice that its last driver died.
                await anyio.sleep(self._segment.setup.poll_interval)
            else:
                return

    async def _begin(self, child: str, call: Call) -> NewTurnClaim | None:
        """Write the sub-agent's turn, or pass the answers on if it exists.

        Raises `ConfigError` for an agent that cannot run here, `TurnNotFoundError` if an existing turn was deleted, and
        `LeaseLostError` if another driver of this turn wrote it meanwhile.
        """
        try:
            await self._store.get(child)
        except TurnNotFoundError:
            if call.attempt > 1:  # a call starts again only after its sub-agent asked a person
                raise
            # Until the driver has the claim, which it releases, nothing may be canceled.
            with anyio.CancelScope(shield=True):
                listeners, now = self._segment.journal.listeners, self._segment.setup.now()
                agent, turn_input = self._make_start(call)
                try:
                    return await write_turn(self._store, child, agent, turn_input, created_at=now, listeners=listeners)
                except StoreError:
                    await self._check_claim()  # if it is lost, the id is taken by the turn's new driver
                    raise
        await self._post_answers(child, call)
        return None

    async def _check_claim(self) -> None:
        claim = self._segment.journal.claim
        if (await self._store.get(claim.turn)).epoch != claim.epoch:
            raise LeaseLostError(claim.turn, claim.epoch)

    def _make_start(self, call: Call) -> tuple[Agent, StartedInput]:
        segment = self._segment
        tool = segment.setup.tools.get(call.name)
        if not isinstance(tool, AgentTool):
            raise ConfigError(f"{call.name} is no longer a sub-agent: make it with agent_tool(...)")
        turn, setup = segment.machine.turn, segment.setup
        turn_input = admit(setup, tool.agent, str(call.arguments["prompt"]), {})
        seconds_left = None if turn.limits.seconds is None else max(turn.limits.seconds - segment.elapsed(), 0.001)
        limits = leased_limits(turn_input.limits, call.made.lease or f.Lease(), seconds_left)
        if limits.cost is not None:
            setup.need_costs(tool.agent, f"agent {tool.agent.name!r}: the calling turn has a cost budget, which")
        lineage = {"parent_turn": segment.journal.turn_id, "parent_call": call.id, "depth": turn.depth + 1}
        if turn.rules is not None:
            from .turn_rules import inherit_rules  # noqa: PLC0415 (few turns have rules)

            rules = inherit_rules(segment.journal.started.rules, turn_input.rules)
            turn_input = replace(turn_input, rules=rules, past=turn.rules.save_tree(call.id))
        return tool.agent, replace(turn_input, limits=limits, **lineage)

    async def _post_answers(self, child: str, call: Call) -> None:
        """Post people's answers to the sub-agent's own interrupts.

        A call that runs again waits under the same id: the answers that its earlier waits had are not for this one.
        """
        facts = await self._store.facts(child)
        used_answers = Counter(fact.interrupt for _, fact in facts if isinstance(fact, f.Answered))
        # An answer to the call's own approval is not one to its sub-agent's interrupt of the same name.
        prefix = f"{call.id}/"
        for interrupt in result_of(child, facts).interrupts:
            answers = [fact for fact in call.answers if fact.interrupt == f"{prefix}{interrupt.id}"]
            if not interrupt.is_shared:
                answers = answers[used_answers[interrupt.id] :][:1]
            for fact in answers:
                is_shared = interrupt.is_shared
                item = answer_item(child, interrupt.id, Answer.of(fact), Signature.of(fact), shared=is_shared)
                for conflict in await self._store.post(item):
                    if not is_same_answer(item, conflict):
                        await self._store.post(forwarded(item))

    async def _pass_on_an_abort(self, child: str) -> None:
        """Abort the sub-agent too. Its tools then have the same time to finish as those of this turn."""
        await self._segment.interruption.signal.wait()
        request = abort_item(child)
        await self._store.post(request)
        self._abort(request)

    def _settle(self, call: Call, status: CallStatus, result: str, spending: Spent | None) -> CallSettledInput:
        return CallSettledInput(
            call=call.id, status=status, result=result, spent=spending, elapsed=self._segment.elapsed()
        )

    def _forward_questions(self, call: Call, interrupts: Sequence[Interrupt], agent: str) -> CallWaitingInput:
        """Return the sub-agent's questions as those of this turn: all at once, up to `MAX_ANSWERS` answers.

        Any further ones come with its next pause. The arguments are included, so that a person at any level sees all
        of them. A read access is only named in the text: it is granted to the sub-agent, not to this turn.
        """
        answer_totals = accumulate(interrupt.approvals for interrupt in interrupts)
        first, *more_interrupts = [
            CallQuestion(
                interrupt_kind=interrupt.kind,
                question=_question(interrupt, agent),
                choices=interrupt.choices,
                arguments=None if interrupt.kind is InterruptKind.QUESTION else interrupt.arguments,
                expires_at=interrupt.expires_at,
                forwarded=interrupt.id,
                tool=interrupt.tool,
                path=interrupt.call,
                approvals=interrupt.approvals,
                approved_by=interrupt.approved_by,
                otherwise=interrupt.otherwise,
                schema=interrupt.schema,
                restricted=interrupt.restricted or self._segment.setup.authorize is not None,
                rules=interrupt.rules,
            )
            for interrupt, answers in zip(interrupts, answer_totals, strict=True)
            if answers <= MAX_ANSWERS
        ]
        return CallWaitingInput(
            call=call.id, more=tuple(more_interrupts), elapsed=self._segment.elapsed(), **asdict(first)
        )


def _question(interrupt: Interrupt, agent: str) -> str:
    """Return the path of agents and the question: `Lead > Reader: may erase run?`."""
    if "/" in interrupt.id:  # forwarded before: its question has the path
        return f"{agent} > {interrupt.question}"
    from turnwright.journal.questions import question  # noqa: PLC0415 (few sub-agents ask a person)

    return f"{agent}: {question(interrupt)}"


def _report(result: TurnResult) -> str:
    """Return the result for the calling model: the sub-agent's text, its ending, and its turn.

    A call's result is public, so it leaves out error texts, which may name hosts and accounts.
    """
    answer = f"{cap(result.text)}\n\n" if result.text else ""
    why = ""
    if result.outcome is Outcome.FAILED and result.reason is not None:
        why = f": {REASONS[result.reason].means.rstrip('.')}"
    return f"{answer}[sub-agent: {result.outcome}, {result.reason}{why}; turn {result.id}]"


def leased_limits(limits: Limits, lease: f.Lease, seconds: float | None) -> Limits:
    """Return a sub-agent's limits, cut to its lease. `seconds` is what is left of its parent's time."""
    bounds = {
        "tool_calls": (limits.call_limit, lease.calls),
        "tokens": (limits.tokens, lease.tokens),
        "cost": (limits.cost, lease.cost),
        "seconds": (limits.seconds, seconds),
    }
    lowest = {name: min((limit for limit in pair if limit is not None), default=None) for name, pair in bounds.items()}
    return limits.model_copy(update=lowest)
