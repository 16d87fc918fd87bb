"""Adds the hooks and guardrails of a turn to its participants. Turns without any need none of this."""

import logging
from abc import ABC, abstractmethod
from dataclasses import replace

from turnwright.context import TurnContext
from turnwright.errors import HookFailedError, Retry
from turnwright.hooks.asking import RETRY
from turnwright.hooks.chain import Chain, checked_guardrails, checked_hooks
from turnwright.hooks.guardrails import GuardrailKind
from turnwright.hooks.hooks import Hooks
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.result import TurnResult
from turnwright.tools.text import cap
from turnwright_states.facts import CallMade, ModelReplied

from .call_hooks import CallHooks
from .guards import Guards
from .input_guards import InputGuards
from .output_guards import OutputGuards
from .participants import Participants
from .prepare_request import PrepareRequest
from .review import Review, Reviewing
from .segment import Segment

_LOG = logging.getLogger(__name__)


class SegmentHooks(Hooks[object], ABC):
    """Hooks that are not functions of an app: they say themselves who acts in the turns of an engine."""

    async def on_start(self, ctx: TurnContext[object]) -> None:
        """Do nothing. An engine accepts no hooks that override nothing."""

    @abstractmethod
    def participants(self, segment: Segment, others: Participants) -> Participants:
        """Return who acts in a turn that has these `others` without them."""


def with_hooks(segment: Segment, participants: Participants) -> Participants:
    """Add the hooks and guardrails of a turn's engine and agent, and what asks for dynamic instructions and tools.

    A review has one order: input guardrails, `after_model` hooks, the typed answer, output guardrails.
    """
    setup, agent = segment.setup, segment.agent
    chain = Chain(
        (*checked_hooks(setup.hooks, "engine"), *checked_hooks(agent.hooks, f"agent {agent.name!r}")),
        (
            *checked_guardrails(setup.guardrails, "engine"),
            *checked_guardrails(agent.guardrails, f"agent {agent.name!r}"),
        ),
    )
    guards = Guards(setup.backoff, lambda: segment.machine.turn.limits.max_retries, setup.cancel_grace)
    calls = CallHooks(chain, guards)
    input_guardrails, output_guardrails = chain.guardrails(GuardrailKind.INPUT), chain.guardrails(GuardrailKind.OUTPUT)
    inputs = InputGuards(segment, input_guardrails, guards)
    outputs = OutputGuards(segment, output_guardrails, guards) if output_guardrails else None
    prepare = PrepareRequest(segment, chain, inputs)
    replies = ReplyHooks(segment, chain)
    stages = [
        *([inputs.finish] if inputs.are_left else []),
        *([replies.review] if replies.after_model else []),
        *(participants.review.stages if participants.review is not None else ()),
        *([outputs.review] if outputs is not None else []),
    ]
    participants = replace(
        participants,
        inputs=inputs if input_guardrails else None,
        prepare=prepare if prepare.is_needed else None,
        outputs=outputs,
        review=Review(*stages) if stages else None,
        judge=calls if calls.judges_before or calls.judges_after else None,
        on_end=replies.end if chain.before("on_end") else None,
    )
    for hooks in setup.hooks:
        if isinstance(hooks, SegmentHooks):
            participants = hooks.participants(segment, participants)
    return participants


class ReplyHooks:
    """The hooks that judge replies, and those of the end."""

    def __init__(self, segment: Segment, chain: Chain) -> None:
        self._segment = segment
        self._on_end = chain.after("on_end")
        self.after_model = chain.after("after_model")

    async def review(self, reviewing: Reviewing) -> None:
        """Ask the `after_model` hooks, as a stage of a review. Raises `Retry`."""
        segment = self._segment
        response = _response(reviewing.reply)
        for hook in self.after_model:
            try:
                said = await hook.ask(segment.context(), response, grace=segment.setup.cancel_grace, passed=RETRY)
            except Retry as refusal:
                reviewing.decisions.append(hook.decision("retry", feedback=cap(str(refusal.feedback))))
                raise
            if said is not None:
                raise HookFailedError(f"{hook.what} returned {said!r:.80}: return None, or raise Retry")

    async def end(self, result: TurnResult) -> None:
        """Ask the `on_end` hooks. An error is logged, because the turn has ended."""
        segment = self._segment
        for hook in self._on_end:
            try:
                await hook.ask(segment.context(), result, grace=segment.setup.cancel_grace)
            except HookFailedError:
                about = {"turn": segment.journal.turn_id}
                _LOG.warning(
                    "turn %s has ended: %s failed", segment.journal.turn_id, hook.what, exc_info=True, extra=about
                )


def _response(reply: ModelReplied) -> ModelResponse:
    """Return a journaled reply as its model gave it. The ids of its calls are the turn's."""
    return ModelResponse(
        text=reply.text,
        reasoning=reply.reasoning,
        calls=tuple(ResponseToolCall(call.name, call.arguments, _raw(call), call.id) for call in reply.calls),
        finish=reply.finish,
        usage=reply.usage,
    )


def _raw(call: CallMade) -> str:
    """Return the text of a call's arguments. The journal keeps it only for a call that cannot run."""
    return call.raw if call.arguments or call.arguments is None else "{}"
