"""Rewrite a request so that a model accepts it, without changing its meaning. No I/O, and the same for every API.

A request is built once for all models. It may define tools that must not be used, repeat instructions in the user's
role, and contain replies with several calls. Some servers answer 400 to one of these, and then to every later request
of the conversation. `Capabilities` has a flag for each; this module has the rule of each flag.

No text, call, result or file is lost, and added texts state and request nothing. An unchanged message stays the same
object, and the same messages always give the same new objects, because encoders cache by identity
(docs/rules.md#speed).
"""

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from msgspec import structs

from turnwright.message import AnyPart, Message, TextPart, ToolCallPart, ToolResultPart, ToolSpec

from .capabilities import Capabilities
from .prefix_cache import PrefixCache
from .protocol import ModelRequest

#: Inserted between results and the user's text for servers where only the assistant may follow results. Mistral refuses
#: an empty message; a longer one could influence the model, or be repeated by it.
BRIDGE: Final = Message.assistant("OK.")
_BEGIN: Final = Message.user("Begin.")
_GO_ON: Final = Message.user("Go on.")
_NO_TOOLS: Final = Message.user("Tools are disabled now: do not call any. Answer in plain text.")
#: Some servers refuse an empty description.
_DESCRIPTION: Final = "A tool that was used earlier in this conversation."

# The names of tools that providers accept, in earlier messages too.
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64


def fit(request: ModelRequest, capabilities: Capabilities) -> ModelRequest:
    """Return a request that a model with these capabilities accepts; `request` itself if it already is one.

    The messages must be paired (docs/rules.md#pairing), and stay so. A fitted request fits.

    - `supports_tool_choice_none` is False: a request that may not use tools is sent without them. Where that is not
      possible, a message asks the model not to call any.
    - `needs_tools_if_history_has_tools`: a request without tools defines those that its messages called, by name.
    - `strict_alternation`: adjacent messages of one role are merged, later instructions become the user's, and an
      assistant's "OK." separates results from the user's text.
    - `allows_prefill` is False: a user's "Go on." follows a last message of the assistant.
    - `parallel_tool_calls` is False: a reply with several calls becomes several replies, each with its result.

    The encoder of chat completions applies `calls_per_message`, because it reads only the messages that are new.
    """
    request = _fit_tools(request, capabilities)
    messages = request.messages
    beginnings = _BEGINNINGS.get((capabilities.parallel_tool_calls, capabilities.strict_alternation))
    if beginnings is not None:
        messages = _whole(*beginnings.of(messages), capabilities)
    if not capabilities.allows_prefill and _ends_with_assistant(messages):
        messages = (*messages, _GO_ON)
    is_unchanged = messages is request.messages or messages == request.messages
    return request if is_unchanged else structs.replace(request, messages=messages)


def sendable_name(name: str) -> str:
    """Return a tool's name, or a call's id, that every provider accepts. A model may invent others."""
    return _NOT_IN_A_NAME.sub("_", name[:_LONGEST_NAME]) or "_"


def _fit_tools(request: ModelRequest, capabilities: Capabilities) -> ModelRequest:
    needs_tools, knows_none = capabilities.needs_tools_if_history_has_tools, capabilities.supports_tool_choice_none
    if request.tools and (knows_none or request.tool_choice != "none"):
        return request
    has_calls = needs_tools and any(message.calls for message in request.messages)
    if not request.tools and has_calls:
        request = structs.replace(request, tools=_describe_called_tools(request.messages), tool_choice="none")
    if not request.tools or knows_none:
        return request
    if not has_calls:
        return structs.replace(request, tools=())
    return structs.replace(request, tool_choice="auto", messages=(*request.messages, _NO_TOOLS))


def _describe_called_tools(messages: Sequence[Message]) -> tuple[ToolSpec, ...]:
    """Return minimal definitions of the tools that were called: only their names are known."""
    names = dict.fromkeys(sendable_name(call.name) for message in messages for call in message.calls)
    return tuple(ToolSpec(name, _DESCRIPTION, {"type": "object"}) for name in names)


def _ends_with_assistant(messages: Sequence[Message]) -> bool:
    last = next((message for message in reversed(messages) if not _is_silent(message)), None)
    return last is not None and last.role == "assistant" and not last.calls


def _is_silent(message: Message) -> bool:
    """Whether the message is not sent: an assistant's message that only has reasoning or bookkeeping."""
    return message.role == "assistant" and not message.text and not message.calls


def split_calls(messages: Sequence[Message], most: int) -> Sequence[Message]:
    """Split each assistant's message with more than `most` calls into several, each followed by its results.

    The messages are complete batches. Without such a message they are returned as they are.
    """
    # A message has at least as many parts as calls, and few have more than a few.
    if not any(len(message.parts) > most for message in messages):
        return messages
    out: list[Message] = []
    at = 0
    while at < len(messages):
        count = len(messages[at].calls)
        batch = messages[at : at + 1 + count]
        out += _CACHE.of(batch, _splitter(most)) if count > most else batch
        at += len(batch)
    return out


@cache
def _splitter(most: int) -> Callable[[Sequence[Message]], tuple[Message, ...]]:
    return partial(_split, most)


def _split(most: int, batch: Sequence[Message]) -> tuple[Message, ...]:
    """Split an assistant's message and its results into messages of at most `most` calls, followed by their results.

    The first message keeps all other parts. A result goes to the first call of its id that has none yet, because the
    ids in other providers' replies are not always unique.
    """
    reply, results, calls = batch[0], list(batch[1:]), batch[0].calls
    other_parts = tuple(part for part in reply.parts if not isinstance(part, ToolCallPart))
    messages: list[Message] = []
    for begin in range(0, len(calls), most):
        group = calls[begin : begin + most]
        messages.append(structs.replace(reply, parts=(*other_parts, *group)))
        other_parts = ()
        for call in group:
            answer = next((number for number, result in enumerate(results) if _answers(result, call)), None)
            if answer is not None:
                messages.append(results.pop(answer))
    return (*messages, *results)


def _answers(message: Message, call: ToolCallPart) -> bool:
    return any(isinstance(part, ToolResultPart) and part.call == call.id for part in message.parts)


class _FittedPrefix(NamedTuple):
    """The beginning of a conversation, fitted: finished messages, and the last messages, which share one role.

    `opened` is whether the instructions at the beginning are over.
    """

    messages: tuple[Message, ...] = ()
    last: tuple[Message, ...] = ()
    opened: bool = False


def _extend_prefix(row: _FittedPrefix, messages: Sequence[Message], *, parallel: bool, strict: bool) -> _FittedPrefix:
    new, last, has_opened = _fit_more(row, messages, parallel=parallel, strict=strict)
    return _FittedPrefix((*row.messages, *new), tuple(last), has_opened)


def _whole(row: _FittedPrefix, messages: Sequence[Message], capabilities: Capabilities) -> tuple[Message, ...]:
    parallel, strict = capabilities.parallel_tool_calls, capabilities.strict_alternation
    new, last, _ = _fit_more(row, messages, parallel=parallel, strict=strict)
    return (*row.messages, *new, *_finish_run(last, new or row.messages))


def _fit_more(
    row: _FittedPrefix, messages: Sequence[Message], *, parallel: bool, strict: bool
) -> tuple[list[Message], list[Message], bool]:
    """Fit more messages behind `row`: finished ones, the last ones, and whether the instructions are over."""
    if not parallel:
        messages = split_calls(messages, 1)
    if not strict:
        return [*messages], [], True
    new: list[Message] = []
    last, has_opened = [*row.last], row.opened
    for source in messages:
        later = source.role == "system" and has_opened
        if _is_silent(source) or (later and not source.text):
            continue
        has_opened = has_opened or source.role != "system"
        message = _CACHE.of([source], _as_user)[0] if later else source
        if last and last[0].role != message.role:
            new += _finish_run(last, new or row.messages)
            last = []
        last.append(message)
    return new, last, has_opened


def _finish_run(run: Sequence[Message], before: Sequence[Message]) -> list[Message]:
    """Merge the last messages, which share one role, and put the message before them that the role needs."""
    if not run:
        return []
    out: list[Message] = []
    role, previous_role = run[0].role, before[-1].role if before else "system"
    if role == "user" and previous_role == "tool":
        out += _CACHE.of(run[:1], _bridge)
    elif role == "assistant" and previous_role == "system":
        out.append(_BEGIN)
    out += run if len(run) == 1 or role == "tool" else _CACHE.of(run, _merge)
    return out


def _bridge(_before: Sequence[Message]) -> tuple[Message, ...]:
    # A new object each time: a constant would keep cached parts of a conversation alive.
    return (structs.replace(BRIDGE),)


def _as_user(messages: Sequence[Message]) -> tuple[Message, ...]:
    return (structs.replace(messages[0], role="user"),)


def _merge(run: Sequence[Message]) -> tuple[Message, ...]:
    """Merge messages into one, with all parts in order and a blank line between the texts of two messages."""
    parts: list[AnyPart] = []
    has_text = False
    for message in run:
        is_parted = not has_text
        for part in message.parts:
            if not isinstance(part, TextPart) or not part.text or is_parted:
                parts.append(part)
            else:
                parts.append(structs.replace(part, text=f"\n\n{part.text}"))
            is_parted = is_parted or (isinstance(part, TextPart) and bool(part.text))
        has_text = has_text or bool(message.text)
    return (structs.replace(run[0], parts=tuple(parts)),)


class _MessageCache:
    """A cache of the messages made from other messages, for as long as all of them live."""

    def __init__(self) -> None:
        self._entries: dict[tuple[object, ...], tuple[tuple[weakref.ref[Message], ...], tuple[Message, ...]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def of(
        self, messages: Sequence[Message], make: Callable[[Sequence[Message]], tuple[Message, ...]]
    ) -> tuple[Message, ...]:
        # By identity, since a message has no hash. Python reuses the id of a deleted message, so the entry is deleted
        # with it. The comparison covers another thread in between.
        key = (make, *map(id, messages))
        entry = self._entries.get(key)
        if entry is not None and all(ref() is message for ref, message in zip(entry[0], messages, strict=True)):
            return entry[1]
        fitted_messages, entries = make(messages), self._entries
        refs = tuple(weakref.ref(message, lambda _: entries.pop(key, None)) for message in messages)
        entries[key] = (refs, fitted_messages)
        return fitted_messages


_CACHE: Final = _MessageCache()
_BEGINNINGS: Final[Mapping[tuple[bool, bool], PrefixCache[_FittedPrefix]]] = {
    (parallel, strict): PrefixCache(_FittedPrefix(), partial(_extend_prefix, parallel=parallel, strict=strict))
    for parallel, strict in ((True, True), (False, False), (False, True))
}
