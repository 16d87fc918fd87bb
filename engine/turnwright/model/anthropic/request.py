"""Requests in the format of the Messages API. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Self, Unpack

from pydantic import JsonValue

from turnwright.errors import ConfigError, need_kind
from turnwright.message import ToolSpec
from turnwright.model.http.encoding import EncoderOptions, RequestEncoder, dump, extend_chunks, need_hosted
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prefix_cache import PrefixCache
from turnwright.model.protocol import ModelRequest, ToolChoice
from turnwright.model.settings_mapping import MappedSettings, checked_extra

from .blocks import Blocks, Side, encode_blocks
from .settings import CACHE_CONTROLS, MIN_BUDGET, map_messages_settings

#: The beginnings of the types of tools that a client must run.
_NOT_HOSTED: Final = ("custom", "function", "bash_", "text_editor_", "computer_", "memory_")
#: Fields that only this module sets.
RESERVED: Final = frozenset({"model", "messages", "system", "tools", "stream", "max_tokens", "thinking"})
#: The API requires a limit in every request. Every Claude since 3.5 and compatible servers accept this one; they reject
#: a limit above the model's own. It is more than a step needs, and unused tokens cost nothing.
MAX_TOKENS: Final = 8192

#: The fields behind an object's last one up to which the provider caches, by the policy; empty for none.
_MARKS: Final = {
    policy: b"" if control is None else b"," + dump({"cache_control": control})[1:]
    for policy, control in CACHE_CONTROLS.items()
}
_BETWEEN: Final = {
    ("", "user"): b'{"role":"user","content":[',
    ("user", "user"): b",",
    ("user", "assistant"): b']},{"role":"assistant","content":[',
    ("assistant", "assistant"): b",",
    ("assistant", "user"): b']},{"role":"user","content":[',
}
# A conversation must begin and end with the user. One that was cut may not, nor one whose last text was blank.
_GO_ON: Final = Blocks.of("user", [{"type": "text", "text": "Go on."}])


class OpenedTurn(NamedTuple):
    """The beginning of a conversation, followed by the assistant's message or by nothing.

    `system` are the instructions. `content` are the messages without thinking, `thought` with it; both are the same
    object if there is none. The last message has the role `side`. To the API, the assistant's calls, their results and
    the texts between them are one turn, with thinking in all of it or in none. `thinks` is whether the current turn
    began with thinking; None before it begins.
    """

    system: tuple[bytes, ...] = ()
    content: tuple[bytes, ...] = ()
    thought: tuple[bytes, ...] = ()
    side: Side | Literal[""] = ""
    thinks: bool | None = None


class OrderRule:
    """A conversation: a cached beginning, and the messages added behind it."""

    def __init__(self, opened_turn: OpenedTurn) -> None:
        self._opened_turn = opened_turn
        self._system = list(opened_turn.system)
        #: Whether the instructions are over.
        self._has_opened = False
        self._side: Side | Literal[""] = opened_turn.side
        #: Whether results came last. The user's texts behind them belong to the assistant's current turn.
        self._has_results = False
        self._messages: list[Blocks] = []
        #: The separator before each of them.
        self._between: list[bytes] = []
        #: Whether the assistant's current turn began with thinking; None if it has not begun.
        self.thinks = opened_turn.thinks

    def take(self, messages: Iterable[Blocks]) -> Self:
        """Add messages. A user's blank text behind the assistant becomes "Go on."."""
        for blocks in messages:
            self._has_opened = self._has_opened or blocks.role != "system"
            if blocks.content and self._has_opened:
                self._add(blocks)
            elif blocks.content:
                self._system.append(blocks.content)
            elif blocks.role == "user" and self._side == "assistant":
                self._add(_GO_ON)
        return self

    def close(self, *, prefill: bool) -> Self:
        """End the conversation with a user's message, unless the assistant's may be the last one."""
        if not self._side or (self._side == "assistant" and not prefill):
            self._add(_GO_ON)
        return self

    def beginning(self) -> OpenedTurn:
        """The conversation so far, as the beginning of longer ones that continue with an assistant's message."""
        before = self._opened_turn
        content = extend_chunks(before.content, self._pieces(thought=False))
        is_same = before.thought is before.content and all(
            blocks.thought is blocks.content for blocks in self._messages
        )
        with_thinking = content if is_same else extend_chunks(before.thought, self._pieces(thought=True))
        return OpenedTurn(tuple(self._system), content, with_thinking, self._side, self.thinks)

    def system(self, *, mark: bytes) -> list[bytes]:
        """Return the instructions; empty if there are none. The provider may cache up to a `mark` at their end."""
        return _mark_last("system", self._system, mark)

    def messages(self, *, thought: bool, mark: bytes) -> list[bytes]:
        """Return the messages, with or without thinking.

        The provider may cache up to each `mark` (see `_list_stable_places`).
        """
        pieces = self._pieces(thought=thought)
        for number in _list_stable_places(self._messages) if mark else ():
            # Each separator precedes its message.
            pieces[2 * number + 1] = pieces[2 * number + 1][:-1] + mark
        beginning = self._opened_turn.thought if thought else self._opened_turn.content
        return [b'"messages":[', *beginning, *pieces, b"]}],"]

    def _add(self, blocks: Blocks) -> None:
        if not self._side and blocks.side == "assistant":
            self._add(_GO_ON)
        self._messages.append(blocks)
        self._between.append(_BETWEEN[self._side, blocks.side])
        self._side = blocks.side
        if blocks.role == "assistant":
            self.thinks = blocks.begins_with_thinking if self.thinks is None else self.thinks
            self._has_results = False
        elif blocks.role == "tool":
            self._has_results = True
        elif not self._has_results:
            self.thinks = None

    def _pieces(self, *, thought: bool) -> list[bytes]:
        row: list[bytes] = []
        for between, blocks in zip(self._between, self._messages, strict=True):
            row += (between, blocks.thought if thought else blocks.content)
        return row


def _mark_last(name: str, objects: Sequence[bytes], mark: bytes) -> list[bytes]:
    """Return a field with a list of objects, of which the last one gets the mark; empty for an empty list."""
    if not objects:
        return []
    array = b",".join(objects)
    return [b'"%b":[' % name.encode(), array[:-1] + mark if mark else array, b"],"]


def _list_stable_places(messages: Sequence[Blocks]) -> set[int]:
    """Return the places up to which the next step's request is the same: the ends of this one and of the one before.

    Two places, because the provider looks back over twenty blocks only, and one batch may be longer. `messages` is
    everything, or the part from the last reply but one on: no mark is further back.
    """
    last = next((number for number in reversed(range(len(messages))) if messages[number].role == "assistant"), 0)
    return {_find_stable_place(messages, len(messages)), _find_stable_place(messages, last) if last else 0}


def _find_stable_place(messages: Sequence[Blocks], end: int) -> int:
    """Return the last place before `end` that is not a message for one call only (a hint, or to conclude).

    Such messages come last, in the user's role, and nothing distinguishes them. So a user's text behind results is
    never marked; elsewhere the first one is, which is the prompt.
    """
    begin = end
    while begin and messages[begin - 1].role in {"user", "system"}:
        begin -= 1
    if begin == end or (begin and messages[begin - 1].role == "tool"):
        return begin - 1
    return begin


class AnthropicEncoder(RequestEncoder[Blocks]):
    """Builds request bodies: see `RequestEncoder`.

    `max_tokens` limits every reply, in tokens; a smaller limit of the request takes precedence. The default is
    `MAX_TOKENS` plus the budget for thinking. `thinking` is sent unchanged, except for its budget (see `encode`).
    `cache` marks the parts that the provider may cache: the tools, the instructions, and the messages that the next
    step sends again. The settings of a request override these, except a `max_tokens` that was given here.

    Raises `ConfigError` also for `thinking` without a type or with a budget below `MIN_BUDGET`, and for a `max_tokens`
    without room for that budget.
    Source: "Messages", "Thinking", "Prompt caching" and "Vision" of Anthropic's documentation.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        thinking: Mapping[str, JsonValue] | None = None,
        cache: bool = True,
        hosted_tools: Sequence[Mapping[str, JsonValue]] = (),
        **options: Unpack[EncoderOptions],
    ) -> None:
        super().__init__(
            model,
            lambda message: encode_blocks(message, unsigned=self.capabilities.reasoning_required),
            _tool,
            RESERVED,
            hosted_tools=hosted_tools,
            **options,
        )
        self._thinking = None if thinking is None else checked_extra(thinking, (), "thinking")
        self._budget = _budget_of(self._thinking)
        self._max_tokens = max_tokens
        need_kind("max_tokens", max_tokens, int | None, "a number of tokens")
        least = MIN_BUDGET * 2 if self._budget else 1
        if max_tokens is not None and max_tokens < least:
            raise ConfigError(f"max_tokens is {max_tokens}: it must be at least {least}")
        self._mark = _MARKS["auto" if cache else "off"]
        encoded_messages = self._messages
        self._beginnings = PrefixCache(
            OpenedTurn(),
            lambda turn, messages: OrderRule(turn).take(map(encoded_messages.of, messages)).beginning(),
            is_sent=lambda message: bool(encoded_messages.of(message).content),
            # The cached part ends behind the last reply but one.
            steps=2,
        )

    def encode(self, request: ModelRequest) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`.

        Instructions at the beginning become the system prompt, later ones the user's text. Results follow their calls
        in one user's message, before the user's text.

        The budget for thinking is lowered to leave `MIN_BUDGET` of `max_tokens` for the answer. If fewer than
        `MIN_BUDGET` tokens are left for thinking, as in a short conclusion, this call has no thinking, neither new nor
        earlier. With a budget, the same applies in a turn that began without thinking. The API rejects a forced tool
        together with thinking, so the model may choose then.
        """
        opened_turn, new_messages = self._beginnings.of(self._list_messages(request))
        row = (
            OrderRule(opened_turn)
            .take(map(self._messages.of, new_messages))
            .close(prefill=self.capabilities.allows_prefill)
        )
        settings, mark = request.settings, self._mark
        fields: dict[str, JsonValue] = {}
        if settings is not None:
            fields = self.map_settings(settings).body
            mark = mark if settings.cache is None else _MARKS[settings.cache]
        thinking_setting, budget = self._thinking, self._budget
        tools = self._list_tools(request, fields)
        set_here = fields.pop("thinking", None)
        if isinstance(set_here, dict):
            thinking_setting, budget = set_here, _budget_of(set_here)
        max_tokens = self._limit(request, budget)
        thinking, keeps_thinking = _thinking_for(thinking_setting, budget, max_tokens, row)
        body: dict[str, JsonValue] = {"model": self._model, "max_tokens": max_tokens, "stream": True}
        if thinking is not None:
            body["thinking"] = thinking
        if tools:
            body["tool_choice"] = self._choice(self._choose(request), settings, thinks=_is_on(thinking))
        body.update(self._extra_body)
        body.update(fields)
        rest_of_body = dump({name: value for name, value in body.items() if value is not None})
        # A server that requires it thinks without being asked, too.
        keeps_thinking = keeps_thinking or self.capabilities.reasoning_required
        messages = row.messages(thought=keeps_thinking, mark=mark)
        return b"".join([b"{", *messages, *row.system(mark=mark), *_mark_last("tools", tools, mark), rest_of_body[1:]])

    def map_settings(self, settings: ModelSettings) -> MappedSettings:
        """Map settings to fields of a request. `tools` in their `extra_body` are hosted ones, beside the client's.

        Raises `ConfigError` for an `extra_body` with another field in `RESERVED`, and for a tool that is not hosted.
        """
        thinks, reserved_fields = _is_on(self._thinking), RESERVED - {"tools"}
        return self._check_hosted_of(
            map_messages_settings(settings, self._model, self.capabilities, reserved_fields, thinks=thinks)
        )

    def _check_hosted(self, tool: object) -> dict[str, JsonValue]:
        tool, kind = need_hosted(tool, "{'type': 'web_search_20250305', 'name': 'web_search'}")
        if kind.startswith(_NOT_HOSTED):
            raise ConfigError(
                f"hosted_tools has {kind!r}, whose calls the provider does not answer: give it to the agent as a"
                " function"
            )
        return checked_extra(tool, (), "a hosted tool")

    def _limit(self, request: ModelRequest, budget: int) -> int:
        """Return the limit of the reply, in tokens. The default is larger with a budget for thinking."""
        own_limit = None if request.settings is None else request.settings.max_tokens
        limit = self._max_tokens or own_limit or MAX_TOKENS + budget
        return limit if request.max_tokens is None else min(limit, request.max_tokens)

    def _choice(self, choice: ToolChoice, settings: ModelSettings | None, *, thinks: bool) -> JsonValue:
        if choice == "none":
            return {"type": "none"}
        wire: dict[str, JsonValue] = {"type": "any" if choice == "required" and not thinks else "auto"}
        single = settings is not None and settings.parallel_tool_calls is False
        if single or not self.capabilities.parallel_tool_calls:
            return {**wire, "disable_parallel_tool_use": True}
        return wire if wire["type"] != "auto" else None


def _budget_of(thinking: Mapping[str, JsonValue] | None) -> int:
    """Return the tokens for thinking; 0 without a budget."""
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


def _thinking_for(
    thinking: dict[str, JsonValue] | None, budget: int, max_tokens: int, row: OrderRule
) -> tuple[dict[str, JsonValue] | None, bool]:
    """Return this call's `thinking`, and whether earlier thinking is sent back.

    Without the field a model thinks by default or not, and its thinking is sent back. With thinking off, or left out
    for this call, the API rejects a turn that contains any.
    """
    if thinking is None or not _is_on(thinking):
        return thinking, thinking is None
    if not budget:
        roomy = max_tokens >= 2 * MIN_BUDGET
        return (thinking if roomy else None), roomy
    budget = min(budget, max_tokens - MIN_BUDGET)
    if budget < MIN_BUDGET or row.thinks is False:
        return None, False
    return {**thinking, "budget_tokens": budget}, True


def _is_on(thinking: Mapping[str, JsonValue] | None) -> bool:
    return thinking is not None and thinking.get("type") != "disabled"


def _tool(tool: ToolSpec) -> bytes:
    wire: dict[str, JsonValue] = {"name": tool.name}
    if tool.description.strip():
        wire["description"] = tool.description
    wire["input_schema"] = dict(tool.parameters)
    return dump(wire)
