"""Logs a turn: a line for each new state (INFO), and for each fact (DEBUG).

A fact has its own line (`Fact.log_line`), logged once it is in the journal. No line contains text of a model, a tool or
a person, so that logs hold no content and cannot be forged. An ending is not a warning, even a failure: the caller
reads the result.
"""

import logging
from collections.abc import Sequence

from turnwright.status import limit_reached
from turnwright_states import EndReason, Turn
from turnwright_states.facts import Fact, StepStarted, Stopping


def log_facts(log: logging.Logger, turn_id: str, facts: Sequence[Fact], turn: Turn) -> None:
    """Log the facts that a turn was just fed. `turn` is its state after them."""
    step = turn.counters.steps - sum(isinstance(fact, StepStarted) for fact in facts)
    for fact in facts:
        step += isinstance(fact, StepStarted)
        level, text = fact.log_line(turn)
        if not log.isEnabledFor(level):
            continue
        if isinstance(fact, Stopping):
            # The loop's tools are left out, because a model may have made their names up.
            text = "doom loop" if fact.reason is EndReason.DOOM_LOOP else limit_reached(turn, fact.reason)
        fields: dict[str, object] = {"turn": turn_id, "step": step, "state": str(fact.state), **fact.log_fields()}
        call = turn.batch.get(str(fields.get("call", "")))
        if call is not None and not call.made.refused:  # a model may have made up the name of a refused call
            fields["tool"] = call.name
        log.log(level, "turn %s: %s", turn_id, text, extra=fields)
