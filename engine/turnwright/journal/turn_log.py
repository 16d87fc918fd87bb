"""What is logged of a turn's life: a line for each state that it comes to (INFO), and for what happens there (DEBUG).

All of it is read from the facts, once they are in the journal. None of it was written by a model, a tool or a person,
so that a log at any level holds no content, and nobody can forge a line of it. How a turn ends is no warning, even if
it failed: whoever runs it is told by its result.
"""

import logging
from collections.abc import Sequence
from typing import Final

from turnwright.transcript.conclude import limit_reached
from turnwright_states import EndReason, Turn
from turnwright_states.facts import (
    Answered,
    AttemptFailed,
    CallSettled,
    CallStarted,
    CallWaiting,
    Concluded,
    Fact,
    MessageAdded,
    ModelReplied,
    Notice,
    Paused,
    StepFinished,
    StepStarted,
    Stopping,
    Synthesized,
    TurnEnded,
    TurnStarted,
)
from turnwright_states.state import State

_Line = tuple[int, str, dict[str, str]]

_INFO: Final = logging.INFO
_DEBUG: Final = logging.DEBUG
_WARNING: Final = logging.WARNING


def tell(log: logging.Logger, turn_id: str, facts: Sequence[Fact], turn: Turn) -> None:
    """Log the facts that a turn was just fed. `turn` stands after them."""
    step = turn.counters.steps - sum(isinstance(fact, StepStarted) for fact in facts)
    for fact in facts:
        step += isinstance(fact, StepStarted)
        level, text, fields = _line(fact, turn)
        if log.isEnabledFor(level):
            known: dict[str, object] = {"turn": turn_id, "step": step, "state": str(fact.state)}
            log.log(level, "turn %s: %s", turn_id, text, extra=known | fields)


def _line(fact: Fact, turn: Turn) -> _Line:  # noqa: C901, PLR0911, PLR0912 (one case a kind: flat)
    limits = turn.limits
    match fact:
        case TurnStarted():
            return _INFO, f"began, with at most {limits.cap} steps", {"agent": str(fact.agent.get("name", ""))}
        case StepStarted():
            return _INFO, f"step {fact.number} of at most {limits.cap}", {}
        case ModelReplied(state=State.TEXT_ONLY) if fact.calls:
            return _WARNING, f"the model asked for {len(fact.calls)} calls, and may use no tool: all refused", {}
        case ModelReplied():
            runs = sum(not call.refused for call in fact.calls)
            level = _INFO if fact.state is State.TOOL_EXEC else _DEBUG
            return level, f"the model replied; {runs} of {len(fact.calls)} calls run" if fact.calls else _ANSWERED, {}
        case AttemptFailed():
            after = f"tried again after {fact.wait:g} s" if fact.retry else "not tried again"
            return _INFO, f"attempt {fact.attempt} failed ({fact.cause}), {after}", {"cause": str(fact.cause)}
        case CallStarted():
            return _DEBUG, f"call {fact.call} started, attempt {fact.attempt}", _about(fact.call, turn)
        case CallSettled():
            return _DEBUG, f"call {fact.call} settled: {fact.status}", _about(fact.call, turn)
        case CallWaiting():
            return _DEBUG, f"call {fact.call} waits for a person", _about(fact.call, turn)
        case Paused():
            return _INFO, f"paused: {len(turn.interrupts)} to be answered", {}
        case Answered():
            return _INFO, f"{fact.interrupt} was answered; {fact.state}", {}
        case Synthesized():
            return _DEBUG, f"the synthesis gave {'nothing' if fact.text is None else 'the answer'}", {}
        case StepFinished():
            return _DEBUG, f"step {fact.number} took {fact.seconds:.3f} s, {fact.usage.tokens} tokens", {}
        case Stopping():
            # The tools of a loop are left out: a model may have made their names up.
            why = "doom loop" if fact.reason is EndReason.DOOM_LOOP else limit_reached(turn, fact.reason)
            return _INFO, why, {"reason": str(fact.reason)}
        case MessageAdded():
            return _DEBUG, "a message to it was taken in", {}
        case Concluded(retry=True):
            return _INFO, "the conclusion had no text, asked for once more", {}
        case Concluded():
            return _DEBUG, "it was concluded" if fact.text is not None else "the model did not conclude it", {}
        case TurnEnded():
            ended = {"outcome": str(fact.outcome), "reason": str(fact.reason)}
            return _INFO, f"ended: {fact.outcome}: {fact.reason}", ended
        case Notice():
            return _INFO, f"notice: {fact.limit}" + (f", {fact.used:g} of {fact.of:g}" if fact.of else ""), {}
        case _:
            return _DEBUG, fact.kind, {}


_ANSWERED: Final = "the model replied, without calls"


def _about(call_id: str, turn: Turn) -> dict[str, str]:
    """A call, with the name of its tool. Of a refused call the name is left out: a model may have made it up."""
    call = turn.batch.get(call_id)
    return {"call": call_id} if call is None or call.made.refused else {"call": call_id, "tool": call.name}
