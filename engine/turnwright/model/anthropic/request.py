"""A request as the Messages API wants it on the wire. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import Message, ToolSpec
from turnwright.model.capabilities import Capabilities
from turnwright.model.http.encoding import EncodedMessage, checked_extra, dump
from turnwright.model.http.prefix_cache import PrefixCache
from turnwright.model.protocol import ModelRequest, ToolChoice

from .blocks import Blocks, encode_blocks
from .turn_order import CACHED, OpenedTurn, OrderRule

#: What a request is made of here, so that nobody else may set it.
RESERVED: Final = frozenset({"model", "messages", "system", "tools", "stream", "max_tokens", "thinking"})
#: The API wants a bound in every request. This one is taken by every Claude since 3.5 and by the servers of others,
#: which refuse what is above a model's own; it is more than a step needs, and what is not written costs nothing.
MAX_TOKENS: Final = 8192
#: The API refuses a smaller budget for thinking. As much is kept free of it for the answer.
MIN_BUDGET: Final = 1024

_DEFAULTS: Final = Capabilities()


class AnthropicEncoder:
    """Makes the body of a request, and keeps what it encodes (`EncodedMessage`, `PrefixCache`) as long as it lives.

    `max_tokens` bounds every reply, a request's own bound if it is smaller; by default `MAX_TOKENS`, and the budget
    for thinking on top. `thinking` is sent as it is, but for its budget (see `encode`). `cache` marks what the
    provider may keep: the tools, the instructions, and the messages that the next step will send again.
    `extra_body` is added to every request and goes before what stands here; a None in it removes a field.
    `tool_choice_first` takes the place of `auto` in the first request of a turn. `capabilities` are those that the
    requests were fitted to.

    Raises `ConfigError` for an `extra_body` that is not JSON or names a field in `RESERVED`, for `thinking` that names
    no type or has a budget below `MIN_BUDGET`, and for `max_tokens` that leave no room for it.
    Source: "Messages", "Thinking", "Prompt caching" and "Vision" of Anthropic's documentation.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        thinking: Mapping[str, JsonValue] | None = None,
        cache: bool = True,
        extra_body: Mapping[str, JsonValue] | None = None,
        tool_choice_first: ToolChoice | None = None,
        capabilities: Capabilities = _DEFAULTS,
    ) -> None:
        self._model = model
        self._thinking = None if thinking is None else checked_extra(thinking, (), "thinking")
        self._budget = _budget_of(self._thinking)
        self._max_tokens = MAX_TOKENS + self._budget if max_tokens is None else max_tokens
        least = MIN_BUDGET * 2 if self._budget else 1
        if self._max_tokens < least:
            raise ConfigError(f"max_tokens is {self._max_tokens}: it must be at least {least}")
        self._cache = cache
        self._extra_body = checked_extra(extra_body, RESERVED)
        self._tool_choice_first: ToolChoice | None = tool_choice_first
        self._parallel = capabilities.parallel_tool_calls
        self._prefill = capabilities.allows_prefill
        self._tools: EncodedMessage[ToolSpec, bytes] = EncodedMessage(_tool)
        kept: EncodedMessage[Message, Blocks] = EncodedMessage(encode_blocks)
        self._kept = kept
        self._beginnings = PrefixCache(
            OpenedTurn(),
            lambda begun, messages: OrderRule(begun).take(map(kept.of, messages)).begun(),
            is_sent=lambda message: bool(kept.of(message).content),
            # What the provider may keep is marked behind the last reply but one.
            steps=2,
        )

    def encode(self, request: ModelRequest) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`.

        Instructions at the beginning are the system prompt, later ones the user's words. Results follow their calls
        in one message of the user's, before what she says.

        A budget for thinking leaves `MIN_BUDGET` of `max_tokens` to the answer; where that leaves less than
        `MIN_BUDGET`, this one call does without thinking, and without the thinking of before: a conclusion, say, which
        thoughts would leave no room for. With a budget, so it does in a turn that was begun without thinking. The API
        refuses to be made to use a tool while it thinks: then it may choose.
        """
        begun, rest = self._beginnings.of(request.messages)
        row = OrderRule(begun).take(map(self._kept.of, rest)).close(prefill=self._prefill)
        max_tokens = self._max_tokens if request.max_tokens is None else min(self._max_tokens, request.max_tokens)
        thinking, thought = self._thinking_for(max_tokens, row)
        body: dict[str, JsonValue] = {"model": self._model, "max_tokens": max_tokens, "stream": True}
        if thinking is not None:
            body["thinking"] = thinking
        if request.tools:
            choice: ToolChoice = request.tool_choice
            if request.first and choice == "auto":
                choice = self._tool_choice_first or choice
            body["tool_choice"] = self._choice(choice, thinks=_is_on(thinking))
        body.update(self._extra_body)
        settings = dump({name: value for name, value in body.items() if value is not None})
        messages = row.messages(thought=thought, cache=self._cache)
        return b"".join(
            [b"{", *messages, *row.system(cache=self._cache), *self._described(request.tools), settings[1:]]
        )

    @property
    def remembered(self) -> int:
        """How many messages are kept encoded."""
        return len(self._kept)

    def _thinking_for(self, max_tokens: int, row: OrderRule) -> tuple[dict[str, JsonValue] | None, bool]:
        """What this call says of thinking, and whether what was thought before goes along.

        Where nothing is said, models think or not as they are made; what they thought goes back. Where thinking is
        off, or left out, a turn must not hold any.
        """
        if self._thinking is None or not _is_on(self._thinking):
            return self._thinking, self._thinking is None
        if not self._budget:
            roomy = max_tokens >= 2 * MIN_BUDGET
            return (self._thinking if roomy else None), roomy
        budget = min(self._budget, max_tokens - MIN_BUDGET)
        if budget < MIN_BUDGET or row.thinks is False:
            return None, False
        return {**self._thinking, "budget_tokens": budget}, True

    def _described(self, tools: Sequence[ToolSpec]) -> list[bytes]:
        if not tools:
            return []
        described = b",".join(map(self._tools.of, tools))
        return [b'"tools":[', described[:-1] + CACHED if self._cache else described, b"],"]

    def _choice(self, choice: ToolChoice, *, thinks: bool) -> JsonValue:
        if choice == "none":
            return {"type": "none"}
        wire: dict[str, JsonValue] = {"type": "any" if choice == "required" and not thinks else "auto"}
        if not self._parallel:
            return {**wire, "disable_parallel_tool_use": True}
        return wire if wire["type"] != "auto" else None


def _budget_of(thinking: Mapping[str, JsonValue] | None) -> int:
    """The tokens that may go into thinking; 0 where nothing says how many."""
    if thinking is None:
        return 0
    if not isinstance(thinking.get("type"), str):
        raise ConfigError("thinking has no type: pass {'type': 'adaptive'}, or 'enabled' with budget_tokens")
    budget = thinking.get("budget_tokens")
    if budget is None:
        return 0
    if not isinstance(budget, int) or budget < MIN_BUDGET:
        raise ConfigError(f"thinking.budget_tokens is {budget!r}: it must be at least {MIN_BUDGET}")
    return budget


def _is_on(thinking: Mapping[str, JsonValue] | None) -> bool:
    return thinking is not None and thinking.get("type") != "disabled"


def _tool(tool: ToolSpec) -> bytes:
    wire: dict[str, JsonValue] = {"name": tool.name}
    if tool.description.strip():
        wire["description"] = tool.description
    wire["input_schema"] = dict(tool.parameters)
    return dump(wire)
