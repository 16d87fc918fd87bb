"""Makes a request that a model takes, out of one that means the same. Pure, and the same for every API.

A request is built once, for all models: definitions of tools that may not be used, instructions in the user's role
wherever they are needed, several calls in one reply. Some servers answer 400 to one of these or another, and then to
every later request of the conversation. What they take is a row of flags (`Capabilities`); each has its rule here.

Nothing is lost on the way: no text, call, result or file. What is put in claims nothing and asks for nothing.
Messages that need no change stay the objects they were, and the same messages always give the same new ones for as
long as they live, since encoders keep what they encoded by identity (DESIGN 10).
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec import structs

from turnwright.message import AnyPart, Message, TextPart, ToolCallPart, ToolResultPart, ToolSpec

from .capabilities import Capabilities
from .http.encoding import sendable_name
from .http.prefix_cache import PrefixCache
from .protocol import ModelRequest

#: Stands between results and the user where nobody but the assistant may speak after results. Mistral refuses an empty
#: one; anything longer would be words that the model never said and may go by, or repeat.
BRIDGE: Final = Message.assistant("OK.")
_BEGIN: Final = Message.user("Begin.")
_GO_ON: Final = Message.user("Go on.")
_NO_TOOLS: Final = Message.user("Tools are disabled now: do not call any. Answer in plain text.")
#: Some servers refuse an empty description.
_DESCRIPTION: Final = "A tool that was used earlier in this conversation."


def fit(request: ModelRequest, capabilities: Capabilities) -> ModelRequest:
    """Return a request that a model with these capabilities takes; `request` itself if it is one.

    The messages must be paired (DESIGN 4.8), and are so afterwards. What is fitted needs no more fitting.

    - `supports_tool_choice_none` is False: the tools are left out of a request that may not use them, or, where they
      cannot be, the model is told not to call any.
    - `needs_tools_if_history_has_tools`: a request without tools defines those that its messages called, by name.
    - `strict_alternation`: messages of one role in a row are merged, later instructions become the user's, and the
      assistant says "OK." between results and the user.
    - `allows_prefill` is False: the user says "Go on." behind an assistant's last word.
    - `parallel_tool_calls` is False: a reply with several calls is told as one after the other, each with its result.
    """
    request = _with_tools(request, capabilities)
    messages = request.messages
    beginnings = _BEGINNINGS.get((capabilities.parallel_tool_calls, capabilities.strict_alternation))
    if beginnings is not None:
        messages = _whole(*beginnings.of(messages), capabilities)
    if not capabilities.allows_prefill and _ends_with_assistant(messages):
        messages = (*messages, _GO_ON)
    unchanged = messages is request.messages or messages == request.messages
    return request if unchanged else structs.replace(request, messages=messages)


def _with_tools(request: ModelRequest, capabilities: Capabilities) -> ModelRequest:
    needs_tools, knows_none = capabilities.needs_tools_if_history_has_tools, capabilities.supports_tool_choice_none
    if request.tools and (knows_none or request.tool_choice != "none"):
        return request
    called = needs_tools and any(message.calls for message in request.messages)
    if not request.tools and called:
        request = structs.replace(request, tools=_called(request.messages), tool_choice="none")
    if not request.tools or knows_none:
        return request
    if not called:
        return structs.replace(request, tools=())
    return structs.replace(request, tool_choice="auto", messages=(*request.messages, _NO_TOOLS))


def _called(messages: Sequence[Message]) -> tuple[ToolSpec, ...]:
    """The tools that were called, with as little as defines a tool: nothing is known of them but their names."""
    names = dict.fromkeys(sendable_name(call.name) for message in messages for call in message.calls)
    return tuple(ToolSpec(name, _DESCRIPTION, {"type": "object"}) for name in names)


def _ends_with_assistant(messages: Sequence[Message]) -> bool:
    last = next((message for message in reversed(messages) if not _is_silent(message)), None)
    return last is not None and last.role == "assistant" and not last.calls


def _is_silent(message: Message) -> bool:
    """Whether nobody would hear it: an assistant's message of reasoning or bookkeeping alone is not sent."""
    return message.role == "assistant" and not message.text and not message.calls


def _one_by_one(messages: Sequence[Message]) -> list[Message]:
    out: list[Message] = []
    at = 0
    while at < len(messages):
        count = len(messages[at].calls)
        batch = messages[at : at + 1 + count]
        out += _MADE.of(batch, _told_singly) if count > 1 else batch
        at += len(batch)
    return out


def _told_singly(batch: Sequence[Message]) -> tuple[Message, ...]:
    """An assistant's message with calls and their results, as one call after the other, in the order of the calls.

    What else it holds stays with the first. A result goes with the first call of its id that has none: ids of other
    providers' replies are not always unique.
    """
    asking, results = batch[0], list(batch[1:])
    rest = tuple(part for part in asking.parts if not isinstance(part, ToolCallPart))
    told: list[Message] = []
    for call in asking.calls:
        told.append(structs.replace(asking, parts=(*rest, call)))
        rest = ()
        answer = next((number for number, result in enumerate(results) if _answers(result, call)), None)
        if answer is not None:
            told.append(results.pop(answer))
    return (*told, *results)


def _answers(message: Message, call: ToolCallPart) -> bool:
    return any(isinstance(part, ToolResultPart) and part.call == call.id for part in message.parts)


class _Row(NamedTuple):
    """The beginning of a conversation, made to fit: what is done, and the messages of one role that come last.

    `opened` is whether the instructions at the beginning are over: only the first messages may be some.
    """

    done: tuple[Message, ...] = ()
    last: tuple[Message, ...] = ()
    opened: bool = False


def _longer(row: _Row, messages: Sequence[Message], *, parallel: bool, strict: bool) -> _Row:
    new, last, opened = _taken(row, messages, parallel=parallel, strict=strict)
    return _Row((*row.done, *new), tuple(last), opened)


def _whole(row: _Row, rest: Sequence[Message], capabilities: Capabilities) -> tuple[Message, ...]:
    parallel, strict = capabilities.parallel_tool_calls, capabilities.strict_alternation
    new, last, _ = _taken(row, rest, parallel=parallel, strict=strict)
    return (*row.done, *new, *_ended(last, new or row.done))


def _taken(
    row: _Row, messages: Sequence[Message], *, parallel: bool, strict: bool
) -> tuple[list[Message], list[Message], bool]:
    """What is done with more messages behind a row, what comes last, and whether the instructions are over."""
    if not parallel:
        messages = _one_by_one(messages)
    if not strict:
        return [*messages], [], True
    new: list[Message] = []
    last, opened = [*row.last], row.opened
    for each in messages:
        later = each.role == "system" and opened
        if _is_silent(each) or (later and not each.text):
            continue
        opened = opened or each.role != "system"
        message = _MADE.of([each], _as_user)[0] if later else each
        if last and last[0].role != message.role:
            new += _ended(last, new or row.done)
            last = []
        last.append(message)
    return new, last, opened


def _ended(run: Sequence[Message], before: Sequence[Message]) -> list[Message]:
    """Messages of one role in a row, which nothing more will come to, as one; and before them whoever has to speak."""
    if not run:
        return []
    out: list[Message] = []
    role, heard = run[0].role, before[-1].role if before else "system"
    if role == "user" and heard == "tool":
        out += _MADE.of(run[:1], _bridge)
    elif role == "assistant" and heard == "system":
        out.append(_BEGIN)
    out += run if len(run) == 1 or role == "tool" else _MADE.of(run, _merged)
    return out


def _bridge(_before: Sequence[Message]) -> tuple[Message, ...]:
    # One of its own each time: what is kept of a conversation must not be kept for as long as a constant lives.
    return (structs.replace(BRIDGE),)


def _as_user(messages: Sequence[Message]) -> tuple[Message, ...]:
    return (structs.replace(messages[0], role="user"),)


def _merged(run: Sequence[Message]) -> tuple[Message, ...]:
    """One message of all the parts, in their order, with a blank line between the texts of two messages."""
    parts: list[AnyPart] = []
    said = False
    for message in run:
        parted = not said
        for part in message.parts:
            if not isinstance(part, TextPart) or not part.text or parted:
                parts.append(part)
            else:
                parts.append(structs.replace(part, text=f"\n\n{part.text}"))
            parted = parted or (isinstance(part, TextPart) and bool(part.text))
        said = said or bool(message.text)
    return (structs.replace(run[0], parts=tuple(parts)),)


class _Made:
    """Remembers what was made of which messages, for as long as all of them live."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[tuple[weakref.ref[Message], ...], tuple[Message, ...]]] = {}

    def __len__(self) -> int:
        return len(self._made)

    def of(
        self, messages: Sequence[Message], make: Callable[[Sequence[Message]], tuple[Message, ...]]
    ) -> tuple[Message, ...]:
        # By identity, since a message has no hash. An id is given again once its message is gone, so the entry goes
        # with it; what is found is compared all the same, for another thread may come in between.
        key = (make, *map(id, messages))
        known = self._made.get(key)
        if known is not None and all(ref() is message for ref, message in zip(known[0], messages, strict=True)):
            return known[1]
        made, kept = make(messages), self._made
        refs = tuple(weakref.ref(message, lambda _: kept.pop(key, None)) for message in messages)
        kept[key] = (refs, made)
        return made


_MADE: Final = _Made()
_BEGINNINGS: Final[Mapping[tuple[bool, bool], PrefixCache[_Row]]] = {
    (parallel, strict): PrefixCache(_Row(), partial(_longer, parallel=parallel, strict=strict))
    for parallel, strict in ((True, True), (False, False), (False, True))
}
