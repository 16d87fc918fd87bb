"""The ways from state to state: what is written down when a turn leaves one state for another."""

from collections.abc import Mapping
from typing import Final

from . import facts as f
from .call import Call, CallState
from .chart import ReasonFrom, Row
from .fact_writer import Recorder
from .guards import reached
from .inputs import DECISIONS, CallStatus, InterruptKind, Spent, Usage
from .reasons import Cause, EndReason
from .state import State, Trigger

_NOTHING: Final[Mapping[str, Spent]] = {}


class Moves(Recorder):
    """The moves that several events share. Each begins with a row that the chart has taken, or takes one."""

    __slots__ = ()

    def _settle_if_done(self) -> None:
        """Leave TOOL_EXEC once no call can run and nothing is to be offered to the synthesis."""
        turn = self.turn
        for call in turn.batch.values():
            if call.state is CallState.READY or call.state is CallState.STARTED:
                return
        if turn.synthesis and not turn.counters.waiting and not turn.synthesis_done:
            return
        self._settle()

    def _settle(self, *, synthesized: bool = False) -> None:
        self.turn.counters.synthesized = synthesized
        row = self._fire(Trigger.SETTLED)
        if row.dest is State.PAUSED:
            self._emit(f.Paused(self._elapsed, State.PAUSED))
        elif row.dest is State.CONTINUE:
            row = self._fire(Trigger.PROCEED)
            self._finish_step(state=row.dest)
            if row.dest is State.CHECK:
                self._leave_check(self._fire(Trigger.PROCEED))
        else:
            self._halt(row)

    def _leave_check(self, row: Row) -> None:
        """Write down what CHECK decided."""
        turn = self.turn
        if row.dest is State.STREAM:
            number, nudge = turn.counters.steps + 1, turn.counters.doom
            self._emit(f.StepStarted(self._elapsed, State.STREAM, number=number, nudge=nudge))
        elif row.dest is State.PAUSED:
            interrupt = f.InterruptRecord(
                id=self._next_interrupt(InterruptKind.DOOM_LOOP),
                kind=InterruptKind.DOOM_LOOP,
                tool=", ".join(turn.loop_tools),
                question=f"The model keeps asking for the same calls ({', '.join(turn.loop_tools)}). Go on?",
                choices=tuple(DECISIONS[InterruptKind.DOOM_LOOP]),
            )
            self._emit(f.Paused(self._elapsed, State.PAUSED, interrupt=interrupt))
        else:
            self._stop(row)

    def _stop(self, row: Row, *, partial: str = "", usage: Usage | None = None) -> None:
        assert isinstance(row.reason, EndReason)  # noqa: S101 (a row into CONCLUDE names its reason)
        also = tuple(reason for reason in reached(self.turn.counters) if reason is not row.reason)
        self._emit(
            f.Stopping(
                self._elapsed, State.CONCLUDE, reason=row.reason, also_reached=also, partial=partial, usage=usage
            )
        )

    def _halt(
        self,
        row: Row,
        *,
        cause: Cause = Cause.CRASH,
        aborted: EndReason = EndReason.ABORTED,
        error: str = "",
        partial: str = "",
        usage: Usage | None = None,
        spent: Mapping[str, Spent] = _NOTHING,
    ) -> None:
        """End the turn along `row`. `cause` and `aborted` are the reason where the row leaves it to the event."""
        carried = self.turn.carried
        if row.reason is ReasonFrom.CARRIED and carried is not None:
            reason = carried
        elif row.reason is ReasonFrom.CAUSE:
            reason = cause.reason
        else:
            reason = row.reason if isinstance(row.reason, EndReason) else aborted
        # Asked before the step is closed, while the turn still stands where it was stopped.
        also = self._also_reached(row, reason)
        # A person who writes something new has turned down what she was asked.
        waiting = CallStatus.REJECTED if reason is EndReason.SUPERSEDED else CallStatus.ABORTED
        self._close_calls(f"not finished: the turn ended ({reason})", waiting=waiting, spent=spent)
        self._finish_step()
        outcome = row.dest.outcome
        assert outcome is not None  # noqa: S101 (the rows that end a turn lead to final states)
        self._emit(
            f.TurnEnded(
                self._elapsed,
                row.dest,
                outcome=outcome,
                reason=reason,
                also_reached=also,
                partial=partial,
                undelivered=self._event.undelivered,
                error=error,
                usage=usage,
            )
        )

    def _also_reached(self, row: Row, reason: EndReason) -> tuple[EndReason, ...]:
        """The limits that held beside the reason. A turn that nothing stopped has none (decision 11)."""
        turn = self.turn
        if row.trigger is Trigger.EXPIRE:
            return tuple(one for one in reached(turn.counters) if one is not reason)
        if row.reason is ReasonFrom.CARRIED:
            return turn.also_reached
        if turn.carried is not None:  # an abort, or a failure of the engine, wins over the limit
            return (turn.carried, *turn.also_reached)
        return (EndReason.DOOM_LOOP,) if turn.state is State.PAUSED and turn.counters.doom else ()

    def _close_calls(self, why: str, *, waiting: CallStatus = CallStatus.ABORTED, spent: Mapping[str, Spent]) -> None:
        """Give every open call its result (`waiting`: of one that waits for a person; `spent`: of its sub-agent)."""
        for call in self.turn.open_calls():
            status = waiting if call.state is CallState.WAITING else CallStatus.ABORTED
            # Nobody saw how far it got, and a thread may even come to its end. So too where it then asked a person, or
            # was about to go on with the answer.
            result = f"{why}; it had begun: verify before retrying" if call.counted else why
            self._settle_call(call, status, result, spent.get(call.id))

    def _settle_call(self, call: Call, status: CallStatus, result: str, spent: Spent | None = None) -> None:
        """Give a call the result that is decided here, and by no tool."""
        settled = f.CallSettled(self._elapsed, self.turn.state, call=call.id, status=status, result=result, spent=spent)
        self._emit(settled)

    def _finish_step(self, *, state: State | None = None, usage: Usage | None = None) -> None:
        """Finish the step, if one is open.

        `usage` is that of an attempt that was cut off, which the next fact will account for.
        """
        turn = self.turn
        if turn.step_open:
            self._emit(
                f.StepFinished(
                    self._elapsed,
                    state or turn.state,
                    number=turn.counters.steps,
                    usage=turn.step_usage if usage is None else turn.step_usage + usage,
                    seconds=round(self._elapsed - turn.step_started_at, 6),
                )
            )
