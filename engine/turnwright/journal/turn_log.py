"""Logs a turn's life: a line for each state that it comes to (INFO), and for what happens there (DEBUG).

Each fact says its own line, once it is in the journal (`Fact.log_line`). None of it was written by a model, a tool or a
person, so that a log at any level holds no content, and nobody can forge a line of it. How a turn ends is no warning,
even if it failed: whoever runs it reads its result.
"""

import logging
from collections.abc import Sequence

from turnwright.transcript.conclude import limit_reached
from turnwright_states import EndReason, Turn
from turnwright_states.facts import Fact, StepStarted, Stopping


def tell(log: logging.Logger, turn_id: str, facts: Sequence[Fact], turn: Turn) -> None:
    """Log the facts that a turn was just fed. `turn` stands after them."""
    step = turn.counters.steps - sum(isinstance(fact, StepStarted) for fact in facts)
    for fact in facts:
        step += isinstance(fact, StepStarted)
        level, text = fact.log_line(turn)
        if not log.isEnabledFor(level):
            continue
        if isinstance(fact, Stopping):
            # The tools of a loop are left out: a model may have made their names up.
            text = "doom loop" if fact.reason is EndReason.DOOM_LOOP else limit_reached(turn, fact.reason)
        known: dict[str, object] = {"turn": turn_id, "step": step, "state": str(fact.state), **fact.log_fields()}
        call = turn.batch.get(str(known.get("call", "")))
        if call is not None and not call.made.refused:  # a model may have made up the name of a refused one
            known["tool"] = call.name
        log.log(level, "turn %s: %s", turn_id, text, extra=known)
