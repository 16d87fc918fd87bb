"""Sub-agents in the reference simulator (docs/rules.md#sub-agents)."""

from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from math import inf

from turnwright_states import CallStatus, EndReason, Outcome

from .reference_core import Turn
from .reference_hooks import HookedCalls
from .reference_parts import Call, Life
from .turn_script import HELPER, LATER_IN_HELPER, Death, PersonAct, ScriptedReply, ScriptedTool, TurnScript

#: Times that differ by less are equal.
_MOMENT = 1e-6
#: The results of calls that ran, or may have.
_RAN = {CallStatus.OK, CallStatus.ERROR, CallStatus.UNKNOWN}


def is_helper(call: Call) -> bool:
    """Return whether a call runs a sub-agent."""
    return call.tool is not None and call.tool.name == HELPER


class LeadingTurn(Turn):
    """A turn whose calls may run sub-agents."""

    def __init__(self, script: TurnScript) -> None:
        super().__init__(script)
        #: The turns of the sub-agents that run or ask a person, and the share that each of a batch gets.
        self.children: dict[int, HelperTurn] = {}
        self.share, self.helper_calls = script.limits, 0
        #: When a call was last settled, and whether one of a sub-agent was then.
        self.settled_at, self.helped = 0.0, False
        if script.helper:
            self.tools[HELPER] = ScriptedTool(HELPER)

    def _decided(self, reply: ScriptedReply) -> list[Call]:
        """Lease each sub-agent an equal share of what is left, and refuse them an empty one."""
        batch = super()._decided(reply)
        open_ = [call for call in batch if call.status is None]
        helpers = [call for call in open_ if is_helper(call)]
        if helpers:
            k, limits, budget = len(helpers), self.script.limits, self.budget
            calls = None if budget is None else (budget - self.started - len(open_)) // k
            tokens = None if limits.tokens is None else max(limits.tokens - self.tokens, 0) // k
            cost = None if limits.cost is None else max(limits.cost - self.tokens, 0.0) / k
            self.share = limits.model_copy(update={"tool_calls": calls, "tokens": tokens, "cost": cost})
            for call in helpers:
                call.status = CallStatus.REFUSED if 0 in (calls, tokens, cost) else None
        return batch

    def _start(self, calls: list[Call]) -> None:
        """Start calls. The sub-agents among them run until they end, ask a person, or are cut off."""
        helpers = [call for call in calls if is_helper(call) and self._runs(call)]
        others = [call for call in calls if not (is_helper(call) and self._runs(call))]
        super()._start(others)
        cut = self._cut_in(others)
        for call in sorted(helpers, key=lambda call: not self._trips(call)):
            if call.due:
                self._count_starts([call])
            self._run_helper(call, cut)
            cut = min(cut, self._cut_in([call]))

    def _cut_in(self, calls: list[Call]) -> float:
        """Return the seconds until these calls are cut off: by a guardrail or a hook of one of them, too."""
        trips = [self._lasts(call) for call in calls if self._trips(call)]
        return min(self._cut() - self.now, *trips, inf)

    def _run_helper(self, call: Call, cut: float, death: Death | None = None) -> None:
        """Run the sub-agent of a call, or resume it with the answer to its question."""
        child, act = self.children.get(id(call)) or self._new_helper(), call.act
        rejects = self.pauses == self.limits.max_pauses
        self.children[id(call)] = child.run(act, self.abort_at - self.now, cut, rejects=rejects, death=death)
        call.due, call.act = False, None

    def _new_helper(self) -> "HelperTurn":
        return HelperTurn(self._lent())

    def _lent(self) -> TurnScript:
        """Return the script of its sub-agents: their time ends with its own."""
        left = None if self.limits.seconds is None else max(self.deadline - self.now, _MOMENT)
        limits = self.share.model_copy(update={"seconds": left})
        tools = self.script.tools
        synthesis, hooked = self.script.synthesis, self.script.hooked
        return TurnScript(self.script.helper, tools, limits, synthesis=synthesis, hooked=hooked)

    def _goes_on(self, calls: list[Call], batch: list[Call]) -> bool:
        return super()._goes_on(calls, batch) and not self.helped

    def _lasts(self, call: Call) -> float:
        return self.children[id(call)].lasted() if is_helper(call) else super()._lasts(call)

    def _settle(self, call: Call) -> None:
        self.helped = is_helper(call) or (self.helped and self.settled_at == self.now)
        self.settled_at = self.now
        if not is_helper(call):
            super()._settle(call)
        elif (child := self.children[id(call)]).asks:
            call.asks, call.approved, call.expires = True, False, child.expires
        else:
            self._take_back(self.children.pop(id(call)))
            statuses = {Outcome.FAILED: CallStatus.ERROR, Outcome.ABORTED: CallStatus.ABORTED}
            call.status, call.result = statuses.get(child.outcome, CallStatus.OK), child.said_at_last()

    def _answer(self, call: Call, act: PersonAct) -> None:
        """Pass an answer on. The questions of a sub-agent that nobody answers expire with those of its caller."""
        if act == "expire" and call.expires:
            for child in self.children.values():
                child.is_late = True
        if id(call) in self.children:
            call.approved, call.act, call.due = True, act, True
        else:
            super()._answer(call, act)

    def _begin(self) -> None:
        if min(self.abort_at, self.deadline) <= self.now:
            self._end_children()
        super()._begin()

    def _close(self, *, superseded: bool = False) -> None:
        self._end_children()
        super()._close(superseded=superseded)

    def _end_children(self) -> None:
        for child in self.children.values():
            self._take_back(child)
        self.children.clear()

    def _take_back(self, child: "HelperTurn") -> None:
        """Count what a sub-agent used. The rest of its share is free again."""
        self.started += child.started
        self.tokens += child.tokens
        self.helper_calls += child.attempts()
        self.executed += child.executed


class HelperTurn(HookedCalls, Turn):
    """The turn of a sub-agent. The number of its reply is that of the replies before it."""

    later = LATER_IN_HELPER

    def __init__(self, script: TurnScript) -> None:
        super().__init__(script)
        self.in_team = True
        self.said = 0
        #: The last text of its replies, the text of its conclusion, and the result that is its answer.
        self.text = self.conclusion = ""
        self.direct: object = None
        self.life = self.live()
        #: Whether it asks a person, whether its question can expire, and whether it has.
        self.asks = self.expires = self.is_late = False
        #: The times, of its own, when it was last started or resumed and when it is cut off.
        self.began, self.cut = 0.0, inf

    def run(
        self,
        act: PersonAct | None,
        aborted: float,
        cut: float,
        *,
        rejects: bool,
        death: Death | None = None,  # noqa: ARG002 (see `reference_mortal_helpers`)
    ) -> "HelperTurn":
        """Run until the turn ends or asks a person. Return it as it is then.

        Args:
            act: the answer to its question, if it asked one.
            aborted: the seconds until somebody aborts its caller.
            cut: the seconds until its caller's calls are cut off.
            rejects: whether its caller has no pause left, and so rejects its questions.
            death: its death, at which its caller dies.
        """
        self._begin_stretch(aborted, cut)
        self._go_on(act)
        while self.asks and rejects:
            self._go_on("no")
        return self

    def _begin_stretch(self, aborted: float, cut: float) -> None:
        self.began, self.cut = self.now, self.now + cut
        self.abort_at = self.now + min(aborted, cut)
        if abs(self.deadline - self.abort_at) < _MOMENT:  # its caller is faster
            self.abort_at = self.deadline
        self.script = replace(self.script, cancel_grace=max(cut - aborted, 0.0) if aborted < inf else 0.0)

    def _go_on(self, act: PersonAct | None) -> None:
        """Run on, with the answer to the question if it asked one."""
        self.asks = False
        try:
            if act is None:
                next(self.life)
            else:
                self.life.send(act)
            self.asks = True
        except StopIteration:
            pass

    def attempts(self) -> int:
        """Return the model calls so far."""
        return self.model_calls

    def lasted(self) -> float:
        """Return the seconds that it ran. One that is cut off would have run on."""
        is_cut = not self.asks and self.outcome is Outcome.ABORTED and self.now > self.cut - _MOMENT
        return inf if is_cut else self.now - self.began

    def _pause(self) -> None:
        self.is_late = False
        super()._pause()

    def _ask(self, *, expires: bool) -> Generator[None, PersonAct, PersonAct]:
        self.expires = expires
        return "expire" if self.is_late and expires else (yield from super()._ask(expires=expires))

    def _reply(self, *, step: bool) -> ScriptedReply:
        reply = super()._reply(step=step)
        self.text = reply.text if reply.text.strip() else self.text
        return reply

    def _take_step(self, reply: ScriptedReply) -> Life:
        self.said += 1
        return super()._take_step(reply)

    def _settle(self, call: Call) -> None:
        super()._settle(call)
        if call.answers and call.status is CallStatus.OK:
            self.direct = call.result

    def _attempt_conclusion(self) -> ScriptedReply:
        reply = super()._attempt_conclusion()
        self.conclusion = "" if reply.error is not None else reply.text.strip()
        return reply

    def said_at_last(self) -> object:
        """Return what makes its text differ from that of another one: what it said, or the fixed summary."""
        why = self.end.why
        if self.outcome not in (Outcome.CAP_HIT, Outcome.DOOM_LOOP) or self.conclusion:
            if self.outcome is Outcome.SYNTHESIS_DONE or (self.outcome is Outcome.FINISHED and self.direct is not None):
                return why, self.direct
            return why, self.conclusion or self.text
        ran = Counter(call.asked.tool for call in self.calls if call.status in _RAN)
        spent = self.tokens, round(self.limits.cost or 0.0, 4)
        figures = {
            EndReason.COST: spent,
            EndReason.DEADLINE: f"{self.now - self.lost_seconds:.1f}",
            EndReason.DOOM_LOOP: frozenset(self.loop_tools),
        }.get(why, self._sentinel(why))
        return why, figures, self.steps, self.started, tuple(ran.most_common()), self.text

    def _next_reply(self) -> ScriptedReply:
        return self.script.replies[self.said % len(self.script.replies)]
