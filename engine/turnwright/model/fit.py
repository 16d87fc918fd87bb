"""Makes a request that a model takes, out of one that means the same. Pure, and the same for every API.

A request is built once, for all models: definitions of tools that may not be used, instructions in the user's role
wherever they are needed, several calls in one reply. Some servers answer 400 to one of these or another, and then to
every later request of the conversation. What they take is a row of flags (`Capabilities`); each has its rule here.

Nothing is lost on the way: no text, call, result or file. What is put in claims nothing and asks for nothing.
Messages that need no change stay the objects they were, and the same messages always give the same new ones for as
long as they live, since encoders keep what they encoded by identity (DESIGN 10).
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from turnwright.message import AnyPart, Message, TextPart, ToolCallPart, ToolResultPart

from .capabilities import Capabilities
from .encoding import sendable_name
from .protocol import Request, ToolSpec

#: Stands between results and the user where nobody but the assistant may speak after results. Mistral refuses an empty
#: one; anything longer would be words that the model never said and may go by, or repeat.
BRIDGE: Final = Message.assistant("OK.")
_BEGIN: Final = Message.user("Begin.")
_GO_ON: Final = Message.user("Go on.")
_NO_TOOLS: Final = Message.user("Tools are disabled now: do not call any. Answer in plain text.")
#: Some servers refuse an empty description.
_DESCRIPTION: Final = "A tool that was used earlier in this conversation."


def fit(request: Request, capabilities: Capabilities) -> Request:
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
    if not capabilities.parallel_tool_calls:
        messages = _one_by_one(messages)
    if capabilities.strict_alternation:
        messages = _alternating(messages)
    if not capabilities.allows_prefill and _ends_with_assistant(messages):
        messages = (*messages, _GO_ON)
    return request if messages == request.messages else replace(request, messages=messages)


def _with_tools(request: Request, capabilities: Capabilities) -> Request:
    needed = capabilities.needs_tools_if_history_has_tools and any(message.calls for message in request.messages)
    if not request.tools and needed:
        request = replace(request, tools=_called(request.messages), tool_choice="none")
    if not request.tools or request.tool_choice != "none" or capabilities.supports_tool_choice_none:
        return request
    if not needed:
        return replace(request, tools=())
    return replace(request, tool_choice="auto", messages=(*request.messages, _NO_TOOLS))


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


def _one_by_one(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    out: list[Message] = []
    at = 0
    while at < len(messages):
        count = len(messages[at].calls)
        batch = messages[at : at + 1 + count]
        out += _MADE.of(batch, _told_singly) if count > 1 else batch
        at += len(batch)
    return tuple(out)


def _told_singly(batch: Sequence[Message]) -> tuple[Message, ...]:
    """An assistant's message with calls and their results, as one call after the other, in the order of the calls.

    What else it holds stays with the first. A result goes with the first call of its id that has none: ids of other
    providers' replies are not always unique.
    """
    asking, results = batch[0], list(batch[1:])
    rest = tuple(part for part in asking.parts if not isinstance(part, ToolCallPart))
    told: list[Message] = []
    for call in asking.calls:
        told.append(asking.model_copy(update={"parts": (*rest, call)}))
        rest = ()
        answer = next((number for number, result in enumerate(results) if _answers(result, call)), None)
        if answer is not None:
            told.append(results.pop(answer))
    return (*told, *results)


def _answers(message: Message, call: ToolCallPart) -> bool:
    return any(isinstance(part, ToolResultPart) and part.call == call.id for part in message.parts)


def _alternating(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    out: list[Message] = []
    for run in _runs(messages):
        role, before = run[0].role, out[-1].role if out else "system"
        if role == "user" and before == "tool":
            out.append(BRIDGE)
        elif role == "assistant" and before == "system":
            out.append(_BEGIN)
        out += run if len(run) == 1 or role == "tool" else _MADE.of(run, _merged)
    return tuple(out)


def _runs(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages that are heard, those of one role in a row together. Only the first run may be instructions."""
    run: list[Message] = []
    begun = False
    for each in messages:
        if _is_silent(each) or (each.role == "system" and begun and not each.text):
            continue
        begun = begun or each.role != "system"
        message = _MADE.of([each], _as_user)[0] if each.role == "system" and begun else each
        if run and run[0].role != message.role:
            yield run
            run = []
        run.append(message)
    if run:
        yield run


def _as_user(messages: Sequence[Message]) -> tuple[Message, ...]:
    return (messages[0].model_copy(update={"role": "user"}),)


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
                parts.append(part.model_copy(update={"text": f"\n\n{part.text}"}))
            parted = parted or (isinstance(part, TextPart) and bool(part.text))
        said = said or bool(message.text)
    return (run[0].model_copy(update={"parts": tuple(parts)}),)


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
