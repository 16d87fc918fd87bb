"""The items of a reply that must be sent back unchanged, and their order. No I/O.

A reply of the Responses API is a list of items: reasoning, messages, calls of our tools, and items of hosted tools.
Ours has a text, a reasoning and calls. So `ModelResponse.reasoning_details` has an entry for each encrypted reasoning
and each item of a hosted tool: `{"type": "openai_response", "item": {...}}`. An entry with `shown` instead of `item` is
for people only. If the order differs from the usual one (those items, one text, the calls), or a text has a phase, a
last entry records it: `{"type": "openai_response", "order": ["item", 6, "item", {"text": 9, "phase": "final_answer"},
"call"]}`. A number is the length of a text; a blank line separates two texts. The sources that the texts name are in an
entry with `annotations`, as the API describes them; they are not sent back.

Source: "Reasoning models" and "Migrate to the Responses API" of OpenAI's documentation.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.message import Message, ReasoningPart, TextPart, ToolCallPart
from turnwright.model.fit import sendable_name
from turnwright.model.http.encoding import dump, replies_of

Item = dict[str, JsonValue]

#: The `type` of the entries.
KEPT: Final = "openai_response"
REASONING: Final = "reasoning"
ITEM: Final = "item"
SHOWN: Final = "shown"
CALL: Final = "call"
#: Between the texts of two messages in one reply.
BLANK_LINE: Final = "\n\n"

#: Hosted tools do not produce these: the server waits for an output that only a client can give.
_UNANSWERED: Final = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "custom_tool_call",
        "local_shell_call",
        "mcp_approval_request",
    }
)


def is_encrypted(item: Mapping[str, JsonValue]) -> bool:
    """Whether the item is encrypted reasoning. The server, which stores nothing, would not find any other."""
    content = item.get("encrypted_content")
    return item.get("type") == REASONING and isinstance(content, str) and bool(content)


def entries(items: Sequence[Item], *, partners: bool) -> tuple[Mapping[str, JsonValue], ...]:
    """Return the entries of the reasoning and hosted items of a reply, without reasoning that is not encrypted.

    `partners` is whether all reasoning of the reply is encrypted. Otherwise its other items are only shown, because the
    server rejects them without their reasoning.
    """
    sendable_items = [item for item in items if item.get("type") != REASONING or is_encrypted(item)]
    return tuple({"type": KEPT, ITEM if partners and _is_sent(item) else SHOWN: dict(item)} for item in sendable_items)


def is_sent(entry: Mapping[str, JsonValue]) -> bool:
    """Whether the item of an entry is sent back."""
    return ITEM in entry


def order_entry(row: Sequence[str | tuple[int, str]]) -> tuple[Mapping[str, JsonValue], ...]:
    """Make the entry for the order of a reply: `ITEM`, `CALL`, and the length and the phase of each text.

    It is empty where the usual order is right, or nothing needs to be at its place.
    """
    ranks = [0 if entry == ITEM else 2 if entry == CALL else 1 for entry in row]
    phases = [entry[1] for entry in row if isinstance(entry, tuple)]
    usual = ranks == sorted(ranks) and not any(phases)
    if usual or not (ITEM in row or any(phases)):
        return ()
    order: list[JsonValue] = []
    for entry in row:
        if isinstance(entry, str):
            order.append(entry)
        else:
            length, phase = entry
            order.append({"text": length, "phase": phase} if phase else length)
    return ({"type": KEPT, "order": order},)


def items_of(message: Message, *, reasoning: bool, ids: bool) -> list[Item]:
    """Return an assistant's message as input items, with the kept items at their places; none without text or calls.

    The usual order is used if a text or the calls were changed after the reply. Reasoning without an item behind it is
    left out, because the server rejects it. `reasoning` is whether reasoning is sent, with the items that belong to it;
    `ids` is whether kept items are sent with their ids.
    """
    if not message.text and not message.calls:
        return []
    row: list[Item] = []
    for reasoning_part, parts in replies_of(message):
        row += _reply(reasoning_part, parts, reasoning=reasoning, ids=ids)
        while row and row[-1].get("type") == REASONING:
            row.pop()
    return row


def _reply(
    reasoning_part: ReasoningPart | None, parts: Sequence[TextPart | ToolCallPart], *, reasoning: bool, ids: bool
) -> Iterator[Item]:
    details = [detail for detail in (reasoning_part.details if reasoning_part else ()) if detail.get("type") == KEPT]
    kept_items = [dict(item) for detail in details if isinstance(item := detail.get(ITEM), Mapping)]
    if not reasoning and any(item.get("type") == REASONING for item in kept_items):
        kept_items = []
    kept_items = [_make_sendable(item, ids=ids) for item in kept_items]
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    calls = [_call(part) for part in parts if isinstance(part, ToolCallPart)]
    order = next((detail["order"] for detail in details if "order" in detail), None)
    items, call_items, offset = iter(kept_items), iter(calls), 0
    for entry in _choose_order(order, len(kept_items), text, len(calls)):
        if isinstance(entry, str):
            yield next(items if entry == ITEM else call_items)
            continue
        length, phase = entry
        if length:
            yield _make_message(text[offset : offset + length], phase)
        offset += length + len(BLANK_LINE)


def _choose_order(order: JsonValue, item_count: int, text: str, calls: int) -> list[str | tuple[int, str]]:
    """Return the recorded order if it fits the message, else the usual one."""
    entries_read = map(_read, order) if isinstance(order, list) else ()
    row = [entry for entry in entries_read if entry is not None]
    lengths = [entry[0] for entry in row if isinstance(entry, tuple)]
    fits = (row.count(ITEM), row.count(CALL)) == (item_count, calls) and _splits(text, lengths)
    return row if fits else [*[ITEM] * item_count, (len(text), ""), *[CALL] * calls]


def _splits(text: str, lengths: Sequence[int]) -> bool:
    """Whether texts of these lengths, with a blank line between two, make `text`."""
    offset = 0
    for number, length in enumerate(lengths):
        if number:
            if text[offset : offset + len(BLANK_LINE)] != BLANK_LINE:
                return False
            offset += len(BLANK_LINE)
        offset += length
    return offset == len(text)


def _read(entry: JsonValue) -> str | tuple[int, str] | None:
    if isinstance(entry, str):
        return entry if entry in (ITEM, CALL) else None
    length, phase = (entry.get("text"), entry.get("phase")) if isinstance(entry, dict) else (entry, "")
    if isinstance(length, bool) or not isinstance(length, int) or length <= 0:
        return None
    return length, phase if isinstance(phase, str) else ""


def _is_sent(item: Item) -> bool:
    return item.get("type") not in _UNANSWERED


def _make_sendable(item: Item, *, ids: bool) -> Item:
    """Return a kept item without its id, unless `ids`; reasoning without the fields that the server rejects."""
    if item.get("type") == REASONING:
        # The server requires a summary, and rejects a status and an empty content.
        fields = {name: value for name, value in item.items() if value and name != "status"}
        item = {**fields, "summary": item.get("summary") or []}
    return item if ids else {name: value for name, value in item.items() if name != "id"}


def _make_message(text: str, phase: str) -> Item:
    item: Item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {**item, "phase": phase} if phase else item


def _call(call: ToolCallPart) -> Item:
    arguments = dump(dict(call.arguments)).decode()
    return {"type": "function_call", "call_id": call.id, "name": sendable_name(call.name), "arguments": arguments}
