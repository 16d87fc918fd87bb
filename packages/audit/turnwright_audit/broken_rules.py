"""The rules that a recorded run breaks (docs/rules.md#rules-over-calls)."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from turnwright_audit.trajectories.atif import Trajectory, TrajectoryCall, TrajectoryResult, TrajectoryStep
from turnwright_states.rules import Broken, History, RuleList

from .rounds import calls_of, is_reply, late_results, status_of, text_of

#: The statuses of results, as rules name them. A denied call never ran.
_STATUS: Final = {"ok": "ok", "error": "error", "canceled": "aborted"}
#: The calls that changed nothing, whatever rule they broke.
_FAILED: Final = ("error", "denied", "canceled")
_ANSWER: Final = "the answer"


class BrokenRule(Struct):
    """A rule that a run breaks: how often, and the first time. `step` counts the replies of the run from 1."""

    effect: str
    calls: int = 0
    step: int = 0
    tool: str = ""
    words: str = ""


def broken_rules(run: Trajectory, rules: RuleList) -> dict[str, BrokenRule]:
    """Return the rules that a run breaks, by their names.

    A turn follows each message of the user. Calls of one reply are judged in their order, each after the results of
    those before it. Only calls that took effect count: one that failed, or that somebody denied, broke nothing.
    """
    reader = _Reader(rules)
    reader.read(run)
    for subagent in run.subagent_trajectories or ():
        if subagent.trajectory_id not in reader.read_ids:
            reader.read(subagent, is_subagent=True)
    return reader.broken


class _Reader:
    """Feeds the calls of a run to the rules. Sub-agents act in the place of the call that started them."""

    def __init__(self, rules: RuleList) -> None:
        own_rules = RuleList([rule for rule in rules.rules if not rule.sub_agents], rules.groups)
        tree = RuleList([rule for rule in rules.rules if rule.sub_agents], rules.groups)
        self._own, self._tree = History(own_rules), History(tree)
        self._calls = self._replies = 0
        self.broken: dict[str, BrokenRule] = {}
        self.read_ids: set[str | None] = set()

    def read(self, run: Trajectory, *, is_subagent: bool = False) -> None:
        """Judge the calls and the answers of a run. A sub-agent's messages and answers are not the user's."""
        histories = (self._tree,) if is_subagent else (self._tree, self._own)
        subagents = {subagent.trajectory_id: subagent for subagent in run.subagent_trajectories or ()}
        late = late_results(run)
        for step in run.steps:
            if step.is_copied_context:
                continue
            if step.source == "user" and not is_subagent:
                self._read_message(step)
            elif is_reply(step):
                self._replies += not is_subagent
                for call, result in calls_of(step, late):
                    self._read_call(call, result, histories, subagents)
                if not step.tool_calls and not is_subagent and (text := text_of(step.message).strip()):
                    for history in histories:
                        self._note(history.answer(text), _ANSWER)

    def _read_message(self, step: TrajectoryStep) -> None:
        for history in (self._tree, self._own):
            note = history.steer if step.step_notes.steered else history.message
            note(text_of(step.message))

    def _read_call(
        self,
        call: TrajectoryCall,
        result: TrajectoryResult | None,
        histories: tuple[History, ...],
        subagents: Mapping[str | None, Trajectory],
    ) -> None:
        text = text_of(result.content) if result else ""
        status = status_of(result, text)
        self._calls += 1
        event = f"call{self._calls}"
        for history in histories:
            broken_rules = history.judge(call.function_name, call.arguments)
            if status not in _FAILED:
                self._note(broken_rules, call.function_name)
            if status != "denied":
                history.started(event, call.function_name, call.arguments)
        for reference in (result.subagent_trajectory_ref or ()) if result else ():
            subagent = subagents.get(reference.trajectory_id)
            if subagent is not None and reference.trajectory_id not in self.read_ids:
                self.read_ids.add(reference.trajectory_id)
                self.read(subagent, is_subagent=True)
        for history in histories:
            history.settle(event, _STATUS.get(status or "", "unknown"), text)

    def _note(self, broken_rules: tuple[Broken, ...], tool: str) -> None:
        for verdict in broken_rules:
            entry = self.broken.setdefault(
                verdict.rule, BrokenRule(verdict.effect, 0, self._replies, tool, verdict.words)
            )
            entry.calls += 1
