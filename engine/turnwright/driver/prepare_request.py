"""Asks what is dynamic in the requests of a step, once, in one order (docs/rules.md#dynamic-requests).

The order: `on_start` hooks and blocking input guardrails (first step only), instructions, `prepare_tools`,
`before_model` hooks. The answers are journaled in one fact, so no later attempt and no other driver asks again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace
from pydantic import JsonValue

from turnwright._base.words import clean, show_value
from turnwright.agent import ToolsFunction
from turnwright.agents.template import render_template
from turnwright.errors import ConfigError, HookFailedError
from turnwright.message import Message
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import Model, ModelRequest
from turnwright_states import CallModel, RequestPreparedInput

from .guardrail_checks import InputGuardrails
from .hooks.asking import ask
from .hooks.chain import Chain, Hook
from .hooks.decisions import ChangeRequest
from .segment import Segment


class PrepareRequest:
    """Prepares the requests of a turn, step by step."""

    def __init__(self, segment: Segment, chain: Chain, inputs: InputGuardrails) -> None:
        self._segment = segment
        self._on_start = chain.before("on_start")
        self._hooks = chain.before("before_model")
        self._inputs = inputs
        self._has_begun = False

    @property
    def is_needed(self) -> bool:
        """Whether something may be dynamic."""
        agent = self._segment.agent
        asks = agent.prepare_tools is not None or not isinstance(agent.instructions, str) or agent.template
        return bool(self._on_start or self._hooks or self._inputs.blocking or asks)

    async def __call__(self, action: CallModel) -> RequestPreparedInput | None:
        """Return what is dynamic in the requests of this step, or None if nothing was asked and nothing changed.

        Raises `TripError` and the `ModelError` of a guardrail, and `HookFailedError`.
        """
        segment = self._segment
        first = segment.machine.turn.counters.steps <= 1
        decisions = [*await self._begin()] if first else []
        fixed_instructions = segment.agent.fixed_instructions
        instructions, is_asked = fixed_instructions, first and bool(self._on_start or self._inputs.blocking)
        if not isinstance(segment.agent.instructions, str):
            instructions, is_asked = await self._instructions(), True
        elif segment.agent.template:
            instructions = render_template(segment.agent.instructions, segment.context())
        changes = _Changes(instructions, tuple(segment.tools), segment.find_model)
        if segment.agent.prepare_tools is not None and action.tools:
            changes.tools, is_asked = await self._tools(segment.agent.prepare_tools), True
        for hook in self._hooks:
            request = changes.of(
                segment.conversation.request(action, segment.machine.turn), segment.conversation.join_prompt
            )
            decision = await hook.ask(segment.context(), request, grace=segment.setup.cancel_grace)
            changes.take(hook, decision)
        sent_instructions = segment.journal.transcript.instructions
        is_changed = changes.instructions != (fixed_instructions if sent_instructions is None else sent_instructions)
        if not (is_asked or is_changed or self._hooks):
            return None
        return RequestPreparedInput(
            instructions=changes.instructions if is_changed else None,
            tools=changes.tools,
            append=tuple(changes.append),
            settings=changes.settings,
            model=changes.model,
            decisions=(*decisions, *changes.decisions),
            elapsed=segment.elapsed(),
        )

    async def _begin(self) -> Sequence[dict[str, JsonValue]]:
        """Run the `on_start` hooks, then the blocking input guardrails. Return that those passed."""
        segment = self._segment
        if not self._has_begun:  # else the model of a guardrail failed, and only the guardrail is asked again
            for hook in self._on_start:
                await hook.ask(segment.context(), grace=segment.setup.cancel_grace)
        self._has_begun = True
        await self._inputs.check_blocking()
        names = (guardrail.name for guardrail in self._inputs.blocking)
        return [{"guardrail": name, "on": "input", "decision": "passed"} for name in names]

    async def _instructions(self) -> str:
        segment = self._segment
        function = segment.agent.instructions
        assert not isinstance(function, str)  # noqa: S101 (asked by the caller)
        subject = f"agent {segment.agent.name!r}: the instructions function"
        text = await ask(subject, function, segment.context(), grace=segment.setup.cancel_grace)
        if not isinstance(text, str):
            raise HookFailedError(f"{subject} returned {show_value(text)}: return the text")
        return clean(text)

    async def _tools(self, function: ToolsFunction[object]) -> tuple[str, ...] | None:
        """Ask for the tools of the step. Return None if they are all."""
        segment = self._segment
        tool_names = tuple(segment.tools)
        subject = f"agent {segment.agent.name!r}: prepare_tools"
        names = await ask(subject, function, segment.context(), tool_names, grace=segment.setup.cancel_grace)
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise HookFailedError(f"{subject} returned {show_value(names)}: return a list of names")
        chosen_names = subset(subject, names, tool_names)
        return None if chosen_names == tool_names else chosen_names


class _Changes:
    """The requests of a step, as far as they are changed."""

    def __init__(self, instructions: str, tool_names: tuple[str, ...], find_model: Callable[[str], Model]) -> None:
        self.instructions = instructions
        self.tools: tuple[str, ...] | None = None
        self.append: list[str] = []
        self.settings: dict[str, JsonValue] = {}
        self.decisions: list[Mapping[str, JsonValue]] = []
        self.model: str | None = None
        self._tool_names = tool_names
        self._find_model = find_model

    def of(self, request: ModelRequest, join: Callable[[str], str]) -> ModelRequest:
        """Return the request with the changes so far. `join` adds to the instructions."""
        messages = [message for message in request.messages if message.role != "system"]
        instructions = join(self.instructions)
        if instructions:
            messages.insert(0, Message.system(instructions))
        messages += map(Message.user, self.append)
        tools = request.tools
        if self.tools is not None:
            tools = tuple(tool for tool in tools if tool.name in self.tools)
        return replace(request, messages=tuple(messages), tools=tools)

    def take(self, hook: Hook, decision: object) -> None:
        """Take over what a hook decided. Raises `HookFailedError` if that is not a change of a request."""
        if decision is None:
            return
        if not isinstance(decision, ChangeRequest):
            raise HookFailedError(f"{hook.what} returned {show_value(decision)}: return ChangeRequest or None")
        fields: list[JsonValue] = []
        if decision.instructions is not None:
            self.instructions = hook.text(decision.instructions)
            fields.append("instructions")
        if decision.append:
            self.append += [hook.text(text) for text in _texts(hook, "append", decision.append)]
            fields.append("append")
        if decision.tools is not None:
            self.tools = self._subset(hook, decision.tools)
            fields.append("tools")
        if decision.settings is not None:
            self.settings |= _settings(hook, decision.settings)
            fields.append("settings")
        if decision.model is not None:
            self.model = hook.text(decision.model)
            try:
                self._find_model(self.model)
            except ConfigError as error:
                raise HookFailedError(f"{hook.what}: {error}") from error
            fields.append("model")
        self.decisions.append(hook.decision("change_request", changed=fields))

    def _subset(self, hook: Hook, tools: Sequence[str]) -> tuple[str, ...]:
        """Return the tools that the request had, out of these names, in its order."""
        chosen_names = subset(hook.what, _texts(hook, "tools", tools), self._tool_names)
        return chosen_names if self.tools is None else tuple(name for name in self.tools if name in chosen_names)


def subset(subject: str, names: Iterable[object], tool_names: Sequence[str]) -> tuple[str, ...]:
    """Return the offered tools that are among these names. Raises `HookFailedError` for a name that is not offered."""
    chosen_names = list(names)
    unknown = [str(name) for name in chosen_names if name not in tool_names]
    if unknown:
        shown_names = ", ".join(sorted(unknown))[:80]
        raise HookFailedError(f"{subject} returned tools that the agent does not have: {shown_names}")
    return tuple(name for name in tool_names if name in chosen_names)


def _texts(hook: Hook, field: str, texts: object) -> Sequence[str]:
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise HookFailedError(f"{hook.what} returned {field}={show_value(texts)} where a list of texts is needed")
    return texts


def _settings(hook: Hook, settings: object) -> dict[str, JsonValue]:
    if not isinstance(settings, ModelSettings):
        raise HookFailedError(f"{hook.what} returned {show_value(settings)} where ModelSettings are needed")
    return settings.to_json()
