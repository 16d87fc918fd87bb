"""Adds the items of OpenAI's responses to a run: messages, reasoning, calls and their outputs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from turnwright.model.openai_responses.kept_items import ITEM, KEPT, REASONING, SHOWN
from turnwright.model.openai_responses.reply_builder import PENDING, ResponseBuilder
from turnwright.model.protocol import ModelResponse
from turnwright_audit.trajectories.atif import ResultStatus, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, json_text

from .chat_messages import SYSTEM_ROLES, Content, named_by_hash, readable_parts, text_of
from .model_replies import add_call, add_reply, count_unreadable_call, read_reply

_CALL: Final = "_call"
_OUTPUT: Final = "_call_output"
#: Types of calls that have the name of a tool. The name of any other is its type.
_NAMED: Final = frozenset({"custom_tool_call", "mcp_call"})
#: States of a hosted call that has no result yet.
_RUNNING: Final = frozenset({"in_progress", "searching", "interpreting", "generating", "calling"})
_FAILED: Final = frozenset({"failed", "incomplete"})


class Item(Struct):
    """An item of the input or of the output."""

    type: str = ""
    role: str = ""
    id: str | None = None
    call_id: str | None = None
    content: Content = None
    summary: Content = None
    name: str = ""
    arguments: Any = None
    input: Any = None
    output: Any = None
    status: str | None = None
    error: Any = None
    action: Any = None
    actions: Any = None
    operation: Any = None
    queries: Any = None
    code: str | None = None
    results: Any = None
    outputs: Any = None
    result: Any = None
    approve: bool | None = None
    approval_request_id: str | None = None

    @property
    def key(self) -> tuple[object, ...] | None:
        """The part that two copies of an item have in common; None of reasoning, which a copy may leave out.

        A prompt of the system may have the time in it.
        """
        if self.type == "reasoning":
            return None
        if self.role:
            return (self.role,) if self.role in SYSTEM_ROLES else (self.role, text_of(self.content))
        return self.type, self.call_id or self.id or self.approval_request_id, str(self.output or self.arguments)

    @property
    def is_of_model(self) -> bool:
        """Whether a model has written it."""
        return self.role == "assistant" or self.type == "reasoning" or self.type.endswith(_CALL)


_ITEM: Final = Shape(Item)


def read_response(response: Mapping[str, Any]) -> ModelResponse:
    """Decode a response that was recorded whole, whether it had ended or not. Its `output` has readable items."""
    status = response.get("status")
    known_status = None if status in PENDING else status
    reply = read_reply(ResponseBuilder, {**response, "status": known_status})
    return reply if known_status or response.get("incomplete_details") else replace(reply, finish_reason=status)


def readable_items(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Return items of a response as the client reads them."""
    return [_readable_item(item) for item in items]


def _readable_item(item: Item) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(item).items() if value is not None}
    if item.role and item.type != REASONING:
        fields |= {"type": "message", "content": readable_parts(item.content)}
    return fields


class Items:
    """A run that grows by items. Items of the model that follow one another are one reply."""

    def __init__(self, run: RunBuilder) -> None:
        self.run = run
        self._output: list[Item] = []
        self._approvals: dict[str, Item] = {}

    def add_reply(self, reply: ModelResponse, *, at: str | None = None) -> TrajectoryStep:
        """Add a reply, with the calls and results of hosted tools in it."""
        self.flush()
        step = add_reply(self.run, replace(reply, calls=()), at=at)
        for item in _kept_items(reply):
            if item.is_of_model:
                self._add_call(step, item)
            else:
                self._add_other(item)
        for call in reply.calls:
            add_call(self.run, step, call)
        return step

    def add(self, item: Item) -> bool:
        """Add an item; False if it is none."""
        if item.is_of_model:
            self._output.append(item)
        elif item.type or item.role:
            self.flush()
            self._add_other(item)
        return bool(item.type or item.role)

    def flush(self) -> None:
        """Add the items of the model that came last as one reply."""
        output, self._output = self._output, []
        if output:
            self.add_reply(read_response({"output": readable_items(output)}))

    def _add_other(self, item: Item) -> None:
        """Add an item that is not the model's."""
        if item.type == "mcp_approval_request":
            self._approvals[item.id or ""] = item
        elif item.type == "mcp_approval_response":
            self._approve(item)
        elif item.type.endswith(_OUTPUT):
            has_failed = item.status == "failed"
            self.run.result(item.call_id or item.id, _text(item.output), status="error" if has_failed else None)
        elif item.role:
            text = text_of(item.content)
            _ = self.run.user(text) if item.role == "user" else self.run.system(text)

    def _add_call(self, step: TrajectoryStep, item: Item) -> None:
        """Add the call of a hosted tool, which has its result in itself, or of a custom tool."""
        name = item.name or ("" if item.type in _NAMED else item.type[: -len(_CALL)])
        if not name:
            count_unreadable_call(self.run, step, item.call_id or item.id or "")
            return
        call_id = item.call_id or item.id
        call = self.run.call(call_id, name, _arguments(item), step=step)
        if item.call_id is None and item.status not in _RUNNING:
            values = (item.output, item.outputs, item.results, item.result)
            value = next((value for value in values if value is not None), None)
            has_failed = item.error is not None or item.status in _FAILED
            text = _text(item.error if value is None else value)
            status: ResultStatus = "error" if has_failed else "ok"
            self.run.result(call_id or call.tool_call_id, text, status=status, hosted=True)

    def _approve(self, item: Item) -> None:
        request = self._approvals.pop(item.approval_request_id or "", None)
        if request is not None and request.name and item.approve is False:
            call = self.run.call(request.id, request.name, request.arguments)
            self.run.result(call.tool_call_id, "", status="denied")


def _kept_items(reply: ModelResponse) -> Iterator[Item]:
    """Yield the items of a reply that are neither a text, nor reasoning, nor the call of a function."""
    for detail in reply.reasoning_details:
        item = _ITEM.convert(detail.get(ITEM) or detail.get(SHOWN)) if detail.get("type") == KEPT else None
        if item is not None and item.type and item.type != REASONING:
            yield item


def _arguments(item: Item) -> Any:  # noqa: ANN401 (any JSON)
    if item.type == "custom_tool_call":
        return {"input": item.input}
    if item.code is not None:
        return {"code": item.code}
    candidates = (item.arguments, item.action, item.operation)
    arguments = next((value for value in candidates if value is not None), None)
    if arguments is not None:
        return arguments
    fields = {"queries": item.queries, "actions": item.actions}
    return {name: value for name, value in fields.items() if value is not None}


def _text(output: object) -> str:
    if isinstance(output, list) and all(
        isinstance(part, Mapping) and str(part.get("type")).startswith("input_") for part in output
    ):
        return text_of(output)
    if isinstance(output, Mapping) and "image_url" in output:
        return named_by_hash(str(output.get("type")), output)
    return json_text(output)
