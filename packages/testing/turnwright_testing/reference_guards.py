"""Guardrails of the prompt and of texts in the reference simulator (docs/rules.md#guardrails)."""

from turnwright_states import Cause

from .reference_helpers import LeadingTurn
from .turn_script import ScriptedGuardrail, ScriptedReply, TurnScript


class UndecidedError(Exception):
    """The own model of the guardrail of the prompt fails before a model call."""


class GuardedTurn(LeadingTurn):
    """A turn with a guardrail of the prompt, and one of texts."""

    def __init__(self, script: TurnScript) -> None:
        super().__init__(script)
        #: Whether the guardrail of the prompt has yet to pass.
        self.unchecked = script.guardrail is not None
        #: Whether the journal has that it passed before the first model call.
        self.prepared = False
        #: The questions that it is still asked beside a reply, and the seconds until it has decided one.
        self.questions, self.decides_in = 0, 0.0
        #: The number of times that it and the output guardrail decided, or their models failed.
        self.prompts = self.asked = 0

    def _check_prompt(self) -> bool:
        """Ask the guardrail of the prompt, unless it has passed. Return False if its own model fails."""
        guardrail = self.script.guardrail
        if guardrail is not None and self.unchecked:
            self._work(guardrail.seconds)
            self._judge_prompt(guardrail)
        return not self.unchecked

    def _judge_prompt(self, guardrail: ScriptedGuardrail) -> None:
        self.prompts += 1
        if not _model_fails(guardrail.fault, self.prompts):
            if guardrail.raises or guardrail.trips:
                raise self._failed() if guardrail.raises else self._trip()
            self.unchecked = False

    def _check_text(self, reply: ScriptedReply) -> None:
        """Ask the output guardrail about a text that nothing reviews."""
        if self.script.hooked and reply.error is None and reply.text.strip():
            retries = self.limits.max_retries
            while self._is_undecided(reply):
                if not retries:
                    raise self._failed()
                retries -= 1

    def _is_undecided(self, reply: ScriptedReply) -> bool:
        """Ask the output guardrail. Return whether its own model fails."""
        self.asked += 1
        if reply.fault == "guardrail":
            raise self._failed()
        if _model_fails(reply.fault, self.asked):
            return True
        if reply.trips:
            raise self._trip()
        return False

    def _prepare(self, *, step: bool) -> None:
        """Begin an attempt. A blocking guardrail comes first."""
        super()._prepare(step=step)
        if self.script.guardrail is not None and not self.script.guardrail.parallel and not self.lost:
            if not self._check_prompt():
                raise UndecidedError
            self.prepared = True
            self._wrote()

    def _attempt_or_crash(self, *, step: bool) -> ScriptedReply:
        try:
            return super()._attempt_or_crash(step=step)
        except UndecidedError:
            return ScriptedReply(error=Cause.SERVER_ERROR)

    def _attempt_step(self) -> ScriptedReply:
        """Make an attempt beside the guardrail of the prompt. If its own model fails, it is asked again in the review.

        A turn that may run no tool has no review: there it is asked until it decides.
        """
        guardrail = self.script.guardrail
        if guardrail is not None and self.unchecked:
            self.questions = 1 if self.steps else self.limits.max_retries + 1
            self.decides_in = guardrail.seconds
        reply = self._attempt()
        if not self.steps and reply.error is None and (reply.calls or reply.text.strip()):
            self._check_text(reply)
            self._finish_beside()
        return reply

    def _receive(self, seconds: float) -> None:
        while self.questions and self.decides_in < seconds:
            seconds -= self.decides_in
            self._work_beside(self.decides_in)
        self._work_beside(seconds)

    def _finish_beside(self) -> None:
        """Wait for the guardrail of the prompt that runs beside a reply."""
        while self.questions:
            self._work_beside(self.decides_in)

    def _work_beside(self, seconds: float) -> None:
        """Work beside the guardrail of the prompt, which may end the turn."""
        self._work(seconds)
        self.decides_in -= seconds
        guardrail = self.script.guardrail
        if guardrail is not None and self.questions and self.decides_in <= 0:
            self.questions, self.decides_in = self.questions - 1, guardrail.seconds
            self._judge_prompt(guardrail)
            if not self.unchecked:
                self.questions = 0
            elif not self.questions and not self.steps:
                raise self._failed()

    def _attempt_conclusion(self) -> ScriptedReply:
        self._begin()
        self.questions = self.limits.max_retries + 1
        while not self._check_prompt():
            self.questions -= 1
            if not self.questions:
                raise self._failed()
        self.questions = 0
        reply = super()._attempt_conclusion()
        self._check_text(reply)
        return reply


def _model_fails(fault: str, verdict: int) -> bool:
    """Return whether a guardrail's own model fails at its first, second or a later verdict."""
    return fault == "model" or (fault == "once" and verdict % 2 == 1)
