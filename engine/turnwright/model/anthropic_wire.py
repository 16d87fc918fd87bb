"""A request as the Messages API wants it on the wire. No I/O."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.errors import ConfigError

from .anthropic_blocks import Blocks, encode_blocks
from .capabilities import Capabilities
from .encoding import Kept, checked_extra, dump
from .protocol import Request, ToolChoice, ToolSpec

#: What a request is made of here, so that nobody else may set it.
RESERVED: Final = frozenset({"model", "messages", "system", "tools", "stream", "max_tokens", "thinking"})
#: The API wants a bound in every request. This one is taken by every Claude since 3.5 and by the servers of others,
#: which refuse what is above a model's own; it is more than a step needs, and what is not written costs nothing.
MAX_TOKENS: Final = 8192
#: The API refuses a smaller budget for thinking. As much is kept free of it for the answer.
MIN_BUDGET: Final = 1024

_DEFAULTS: Final = Capabilities()
_CACHE: Final[dict[str, JsonValue]] = {"cache_control": {"type": "ephemeral"}}
_CACHED: Final = b"," + dump(_CACHE)[1:]
_TURNS: Final = {
    ("", "user"): b'{"role":"user","content":[',
    ("assistant", "user"): b']},{"role":"user","content":[',
    ("user", "assistant"): b']},{"role":"assistant","content":[',
}
# A conversation has to begin with the user and to end with her: one that was cut may not, nor one whose last word was a
# blank.
_GO_ON: Final = Blocks.of("user", [{"type": "text", "text": "Go on."}])


class Encoder:
    """Makes the body of a request, and keeps each message's encoded form for as long as the message lives.

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
        self._kept = Kept(encode_blocks)

    def encode(self, request: Request) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`.

        Instructions at the beginning are the system prompt, later ones the user's words. Results follow their calls
        in one message of the user's, before what she says.

        A budget for thinking leaves `MIN_BUDGET` of `max_tokens` to the answer; where that leaves less than
        `MIN_BUDGET`, this one call does without thinking, and without the thinking of before: a conclusion, say, which
        thoughts would leave no room for. With a budget, so it does in a turn that was begun without thinking. The API
        refuses to be made to use a tool while it thinks: then it may choose.
        """
        said = list(map(self._kept.of, request.messages))
        front = next((number for number, blocks in enumerate(said) if blocks.role != "system"), len(said))
        system = [blocks.content for blocks in said[:front] if blocks.content]
        sent = self._conversation(said[front:])
        max_tokens = self._max_tokens if request.max_tokens is None else min(self._max_tokens, request.max_tokens)
        thinking, thought = self._thinking_for(max_tokens, sent)
        body: dict[str, JsonValue] = {"model": self._model, "max_tokens": max_tokens, "stream": True}
        if thinking is not None:
            body["thinking"] = thinking
        if request.tools:
            body["tools"] = self._tools(request.tools)
            choice: ToolChoice = request.tool_choice
            if request.first and choice == "auto":
                choice = self._tool_choice_first or choice
            body["tool_choice"] = self._choice(choice, thinks=_is_on(thinking))
        body.update(self._extra_body)
        rest = dump({name: value for name, value in body.items() if value is not None})
        wire = [b'{"messages":[', *_messages(sent, _stable(sent) if self._cache else (), thought=thought), b"],"]
        if system:
            instructions = b",".join(system)
            wire += [b'"system":[', instructions[:-1] + _CACHED if self._cache else instructions, b"],"]
        return b"".join([*wire, rest[1:]])

    @property
    def remembered(self) -> int:
        """How many messages are kept encoded."""
        return len(self._kept)

    def _conversation(self, said: Sequence[Blocks]) -> list[Blocks]:
        """What is sent of the messages behind the instructions. The user says "Go on." where she said a blank."""
        sent: list[Blocks] = []
        for blocks in said:
            if blocks.content:
                sent.append(blocks)
            elif blocks.role == "user" and sent and sent[-1].role == "assistant":
                sent.append(_GO_ON)
        if not sent or sent[0].role == "assistant":
            sent.insert(0, _GO_ON)
        if sent[-1].role == "assistant" and not self._prefill:
            sent.append(_GO_ON)
        return sent

    def _thinking_for(self, max_tokens: int, sent: Sequence[Blocks]) -> tuple[dict[str, JsonValue] | None, bool]:
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
        if budget < MIN_BUDGET or not _begun_with_thinking(sent):
            return None, False
        return {**self._thinking, "budget_tokens": budget}, True

    def _tools(self, tools: Sequence[ToolSpec]) -> list[JsonValue]:
        described: list[JsonValue] = []
        for number, tool in enumerate(tools, 1):
            wire: dict[str, JsonValue] = {"name": tool.name}
            if tool.description.strip():
                wire["description"] = tool.description
            wire["input_schema"] = dict(tool.parameters)
            described.append({**wire, **_CACHE} if self._cache and number == len(tools) else wire)
        return described

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


def _messages(sent: Sequence[Blocks], marked: Collection[int], *, thought: bool) -> list[bytes]:
    """The messages on the wire, those of one side together. `marked` are the places up to which they may be kept."""
    wire: list[bytes] = []
    side = ""
    for blocks in sent:
        speaker = blocks.side
        wire.append(b"," if speaker == side else _TURNS[side, speaker])
        wire.append(blocks.thought if thought else blocks.content)
        side = speaker
    for number in marked:
        # Before each message stands what parts it from the one before.
        wire[2 * number + 1] = wire[2 * number + 1][:-1] + _CACHED
    return [*wire, b"]}"]


def _stable(sent: Sequence[Blocks]) -> set[int]:
    """Where the next step's request will still be as it is: at the end of this one, and of the one before.

    The provider looks back for what it kept over twenty blocks only, and one batch may be longer than that.
    """
    last = next((number for number in reversed(range(len(sent))) if sent[number].role == "assistant"), 0)
    return {_stable_before(sent, len(sent)), _stable_before(sent, last) if last else 0}


def _stable_before(sent: Sequence[Blocks], end: int) -> int:
    """The last place before `end` that is no word for one call only: a hint, or the instruction to conclude.

    Those are said last, in the user's role, and nothing marks them. So of what the user says behind results nothing
    is marked, and elsewhere the first of it, which is the prompt.
    """
    begin = end
    while begin and sent[begin - 1].role in {"user", "system"}:
        begin -= 1
    if begin == end or (begin and sent[begin - 1].role == "tool"):
        return begin - 1
    return begin


def _begun_with_thinking(sent: Sequence[Blocks]) -> bool:
    """Whether the assistant's turn at hand began with thinking, or has not begun.

    Its calls, their results and what was said with them are one turn to the API, which thinks all through it or not.
    """
    first = None
    for number in reversed(range(len(sent))):
        blocks = sent[number]
        if blocks.role == "assistant":
            first = blocks
        elif blocks.role != "tool" and not _behind_results(sent, number):
            break
    return first is None or first.begins_with_thinking


def _behind_results(sent: Sequence[Blocks], number: int) -> bool:
    while number and sent[number].role in {"user", "system"}:
        number -= 1
    return sent[number].role == "tool"
