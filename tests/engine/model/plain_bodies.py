"""Requests made to fit, and their bodies, the plain way: from the first message to the last, with nothing kept.

What one message becomes is asked of the same functions; how messages are put together is written out here.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import structs

from turnwright.message import AnyPart, Message, TextPart, ToolCallPart, ToolResultPart, ToolSpec
from turnwright.model.anthropic.blocks import encode_blocks
from turnwright.model.anthropic.request import MAX_TOKENS
from turnwright.model.anthropic.settings import MIN_BUDGET
from turnwright.model.capabilities import Capabilities
from turnwright.model.fit import BRIDGE, sendable_name
from turnwright.model.openai_chat.request import to_wire
from turnwright.model.openai_responses.request import MIN_TOKENS, to_input
from turnwright.model.protocol import ModelRequest

Body = dict[str, Any]

NO_TOOLS = Message.user("Tools are disabled now: do not call any. Answer in plain text.")
GO_ON = {"type": "text", "text": "Go on."}
CACHED = {"cache_control": {"type": "ephemeral"}}


def fitted(request: ModelRequest, capabilities: Capabilities) -> ModelRequest:
    """The request, made to fit."""
    names = dict.fromkeys(sendable_name(call.name) for message in request.messages for call in message.calls)
    needed = capabilities.needs_tools_if_history_has_tools and bool(names)
    tools, choice, messages = request.tools, request.tool_choice, list(request.messages)
    if needed and not tools:
        description = "A tool that was used earlier in this conversation."
        tools, choice = tuple(ToolSpec(name, description, {"type": "object"}) for name in names), "none"
    if tools and choice == "none" and not capabilities.supports_tool_choice_none:
        if needed:
            choice = "auto"
            messages.append(NO_TOOLS)
        else:
            tools, choice = (), request.tool_choice
    if not capabilities.parallel_tool_calls:
        messages = one_by_one(messages)
    if capabilities.strict_alternation:
        messages = alternating(messages)
    heard = [message for message in messages if is_heard(message)]
    if not capabilities.allows_prefill and heard and heard[-1].role == "assistant" and not heard[-1].calls:
        messages.append(Message.user("Go on."))
    return structs.replace(request, tools=tools, tool_choice=choice, messages=tuple(messages))


def is_heard(message: Message) -> bool:
    """Whether anything of a message is sent."""
    return message.role != "assistant" or bool(message.text or message.calls)


def one_by_one(messages: Sequence[Message]) -> list[Message]:
    """A reply with several calls as one after the other."""
    out: list[Message] = []
    remaining = list(messages)
    while remaining:
        message = remaining.pop(0)
        if len(message.calls) < 2:
            out.append(message)
            continue
        results = [remaining.pop(0) for _ in message.calls]
        rest = tuple(part for part in message.parts if not isinstance(part, ToolCallPart))
        for call in message.calls:
            out.append(structs.replace(message, parts=(*rest, call)))
            rest = ()
            answer = next(result for result in results if answers(result, call))
            out.append(results.pop([result is answer for result in results].index(True)))
    return out


def answers(result: Message, call: ToolCallPart) -> bool:
    return any(isinstance(part, ToolResultPart) and part.call == call.id for part in result.parts)


def alternating(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that are sent: a role's messages in a row as one, with a bridge where a role must speak."""
    heard: list[Message] = []
    for message in filter(is_heard, messages):
        later = message.role == "system" and any(earlier.role != "system" for earlier in heard)
        if not later:
            heard.append(message)
        elif message.text:
            heard.append(structs.replace(message, role="user"))
    out: list[Message] = []
    for role, group in groupby(heard, lambda message: message.role):
        before = out[-1].role if out else "system"
        if (before, role) == ("tool", "user"):
            out.append(BRIDGE)
        if (before, role) == ("system", "assistant"):
            out.append(Message.user("Begin."))
        run = list(group)
        out += run if role == "tool" else [merged(run)]
    return out


def merged(run: Sequence[Message]) -> Message:
    """Messages of one role as one; a blank line parts the texts of two."""
    parts: list[AnyPart] = []
    for number, message in enumerate(run):
        parted = not any(message.text for message in run[:number])
        for part in message.parts:
            if isinstance(part, TextPart) and part.text and not parted:
                parts.append(structs.replace(part, text="\n\n" + part.text))
                parted = True
            else:
                parts.append(part)
    return structs.replace(run[0], parts=tuple(parts))


def chat_body(request: ModelRequest, capabilities: Capabilities) -> Body:
    """The body for chat completions."""
    messages: list[Body] = []
    file_parts: list[Any] = []
    for message in (*request.messages, None):
        if file_parts and (message is None or message.role != "tool"):
            messages += to_wire(BRIDGE, capabilities) if capabilities.strict_alternation else []
            messages.append({"role": "user", "content": file_parts})
            file_parts = []
        if message is None:
            break
        messages += to_wire(message, capabilities)
        for part in message.parts:
            if isinstance(part, ToolResultPart) and part.files:
                file_message = Message.user(f"From the result of {part.name} (call {part.call}):", part.files)
                content: Any = to_wire(file_message, capabilities)[0]["content"]
                file_parts += content
    body: Body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": messages}
    if request.tools:
        body["tools"] = [{"type": "function", "function": structs.asdict(tool)} for tool in request.tools]
        if request.tool_choice != "auto":
            body["tool_choice"] = request.tool_choice
        if not capabilities.parallel_tool_calls and request.tool_choice != "none":
            body["parallel_tool_calls"] = False
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    return body


def responses_body(request: ModelRequest, capabilities: Capabilities) -> Body:
    """The body for the Responses API."""
    items = [item for message in request.messages for item in to_input(message)]
    body: Body = {"model": "m", "stream": True, "store": False, "input": items}
    body["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        body["tools"] = [{"type": "function", **structs.asdict(tool), "strict": False} for tool in request.tools]
        if request.tool_choice != "auto":
            body["tool_choice"] = request.tool_choice
        if not capabilities.parallel_tool_calls and request.tool_choice != "none":
            body["parallel_tool_calls"] = False
    if request.max_tokens is not None:
        body["max_output_tokens"] = max(request.max_tokens, MIN_TOKENS)
    return body


#: A message: its role, its blocks without what was thought, and with it.
Sent = tuple[str, list[Body], list[Body]]


def messages_body(
    request: ModelRequest, capabilities: Capabilities, *, cache: bool, thinking: Mapping[str, Any] | None
) -> Body:
    """The body for the Messages API."""
    number = next((n for n, message in enumerate(request.messages) if message.role != "system"), len(request.messages))
    system = [block for message in request.messages[:number] for block in blocks(message, thought=True)]
    entries = conversation(request.messages[number:], prefill=capabilities.allows_prefill)
    budget = (thinking or {}).get("budget_tokens", 0)
    most = MAX_TOKENS + budget
    max_tokens = most if request.max_tokens is None else min(most, request.max_tokens)
    thinks = thinking is not None and max_tokens >= 2 * MIN_BUDGET and not (budget and begun_without_thinking(entries))
    body: Body = {"model": "m", "stream": True, "max_tokens": max_tokens}
    if thinking is not None and thinks:
        body["thinking"] = {**thinking, **({"budget_tokens": min(budget, max_tokens - MIN_BUDGET)} if budget else {})}
    rows = [(role, [*(thought if thinks or thinking is None else content)]) for role, content, thought in entries]
    for number in stable([role for role, _ in rows]) if cache else ():
        rows[number][1][:] = marked(rows[number][1], cache=True)
    sides = groupby(rows, lambda row: "assistant" if row[0] == "assistant" else "user")
    body["messages"] = [{"role": side, "content": [block for _, row in run for block in row]} for side, run in sides]
    if system:
        body["system"] = marked(system, cache=cache)
    if request.tools:
        body["tools"] = marked([described(tool) for tool in request.tools], cache=cache)
        choice = {"none": "none", "required": "auto" if thinks else "any", "auto": "auto"}[request.tool_choice]
        alone = {"disable_parallel_tool_use": True} if choice != "none" and not capabilities.parallel_tool_calls else {}
        body.update({"tool_choice": {"type": choice, **alone}} if choice != "auto" or alone else {})
    return body


def conversation(messages: Sequence[Message], *, prefill: bool) -> list[Sent]:
    """Return the messages that are sent behind the instructions."""
    entries: list[Sent] = []
    go_on = ("user", [GO_ON], [GO_ON])
    for message in messages:
        content = blocks(message, thought=False)
        if content:
            entries.append((message.role, content, blocks(message, thought=True)))
        elif message.role == "user" and entries and entries[-1][0] == "assistant":
            entries.append(go_on)
    if not entries or entries[0][0] == "assistant":
        entries.insert(0, go_on)
    return [*entries, go_on] if entries[-1][0] == "assistant" and not prefill else entries


def marked(row: list[Body], *, cache: bool) -> list[Body]:
    return [*row[:-1], {**row[-1], **CACHED} if cache else row[-1]]


def blocks(message: Message, *, thought: bool) -> list[Body]:
    encoded = encode_blocks(message)
    decoded: list[Body] = json.loads(b"[" + (encoded.thought if thought else encoded.content) + b"]")
    return decoded


def described(tool: ToolSpec) -> Body:
    words = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name, **words, "input_schema": tool.parameters}


def begun_without_thinking(entries: Sequence[Sent]) -> bool:
    """Whether the assistant's turn at hand began without thinking: replies, results, and what is said behind these."""
    first: list[Body] | None = None
    results = False
    for role, _, thought in entries:
        if role == "assistant":
            first, results = first or thought, False
        elif role == "tool":
            results = True
        elif not results:
            first = None
    return first is not None and "thinking" not in first[0]["type"]


def stable(roles: Sequence[str]) -> set[int]:
    """Return the places of marks: the end, and before the last reply."""
    replies = [number for number, role in enumerate(roles) if role == "assistant"]
    return {stable_before(roles, len(roles)), stable_before(roles, replies[-1]) if replies else 0}


def stable_before(roles: Sequence[str], end: int) -> int:
    """The last place before `end` that is not a word for one call only."""
    begin = max((number + 1 for number in range(end) if roles[number] in {"assistant", "tool"}), default=0)
    return begin - 1 if begin == end or (begin and roles[begin - 1] == "tool") else begin
