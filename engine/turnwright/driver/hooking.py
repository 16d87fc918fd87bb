"""Puts the hooks and guardrails of a turn into its segment. Turns without any need none of this."""

import logging

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
from .prepare_request import PrepareRequest
from .review import Reviewing
from .segment import Segment

_LOG = logging.getLogger(__name__)


class SegmentHooks(Hooks[object]):
    """Hooks that are not functions of an app: they put what they need into the segments of an engine themselves."""

    async def on_start(self, ctx: TurnContext[object]) -> None:
        """Do nothing. An engine accepts no hooks that override nothing."""

    def install(self, segment: Segment) -> None:
        """Put them into a segment, after all others."""
        raise NotImplementedError


def install_hooks(segment: Segment) -> None:
    """Let the segment ask the hooks and guardrails of its engine and agent, and the dynamic instructions."""
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
    if calls.judges_before or calls.judges_after:
        segment.judge = calls
    inputs = InputGuards(segment, chain.guardrails(GuardrailKind.INPUT), guards)
    prepare = PrepareRequest(segment, chain, inputs)
    if prepare.is_needed:
        segment.prepare = prepare
    segment.inputs = inputs if inputs.are_left else None
    outputs = chain.guardrails(GuardrailKind.OUTPUT)
    if outputs:
        segment.outputs = OutputGuards(segment, outputs, guards)
    replies = ReplyHooks(segment, chain)
    if replies.after_model:
        segment.stages = (replies.review, *segment.stages)
    if segment.inputs is not None:
        segment.stages = (inputs.finish, *segment.stages)
    if isinstance(segment.outputs, OutputGuards):
        segment.stages = (*segment.stages, segment.outputs.review)
    if chain.before("on_end"):
        segment.on_end = replies.end
    for one in setup.hooks:
        if isinstance(one, SegmentHooks):
            one.install(segment)


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
