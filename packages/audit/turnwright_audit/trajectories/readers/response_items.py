"""Adds the items of OpenAI's responses to a run: messages, reasoning, calls and their outputs."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnwright_audit.trajectories.atif import ResultStatus, StepExtra, StepMetrics, StepNotes, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder

from .chat_messages import Content, named_by_hash, text_of

_CALL: Final = "_call"
_OUTPUT: Final = "_call_output"
#: Types of calls that have the name of a tool. The name of any other is its type.
_NAMED: Final = frozenset({"function_call", "custom_tool_call", "mcp_call"})
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
        """The part that two copies of an item have in common; None of reasoning, which a copy may leave out."""
        if self.type == "reasoning":
            return None
        if self.role:
            return self.role, text_of(self.content)
        return self.type, self.call_id or self.id or self.approval_request_id, str(self.output or self.arguments)

    @property
    def is_of_model(self) -> bool:
        """Whether a model has written it."""
        return self.role == "assistant" or self.type == "reasoning" or self.type.endswith(_CALL)


class Items:
    """A run that grows by items. Items of the model that follow one another are one reply."""

    def __init__(self, run: RunBuilder) -> None:
        self.run = run
        self._reply: TrajectoryStep | None = None
        self._approvals: dict[str, Item] = {}

    def response(
        self,
        output: Iterable[Item],
        *,
        model: str | None = None,
        metrics: StepMetrics | None = None,
        stop: str | None = None,
        at: str | None = None,
    ) -> TrajectoryStep:
        """Add the output of one response as one reply."""
        reply = self._reply = self.run.reply(at=at, model=model, metrics=metrics, stop_reason=stop)
        for item in output:
            if item.type == "message":
                item.role = item.role or "assistant"
            self.add(item)
            self._reply = reply  # outputs of hosted calls are part of it
        self._reply = None
        return reply

    def add(self, item: Item) -> bool:
        """Add an item; False if it is none."""
        if item.is_of_model:
            self._reply = self._reply or self.run.reply()
            self._add_to(self._reply, item)
        elif item.type == "mcp_approval_request":
            self._approvals[item.id or ""] = item
        elif item.type == "mcp_approval_response":
            self._approve(item)
        elif item.type.endswith(_OUTPUT):
            self._reply = None
            failed = item.status == "failed"
            self.run.result(item.call_id or item.id, _text(item.output), status="error" if failed else None)
        elif item.role:
            self._reply = None
            text = text_of(item.content)
            _ = self.run.user(text) if item.role == "user" else self.run.system(text)
        return bool(item.type or item.role)

    def _add_to(self, reply: TrajectoryStep, item: Item) -> None:
        if item.type == "reasoning":
            text = text_of(item.summary) or text_of(item.content)
            reply.reasoning_content = _joined(reply.reasoning_content, text) or None
        elif item.role:
            reply.message = _joined(str(reply.message), text_of(item.content))
        else:
            self._call(reply, item)

    def _call(self, reply: TrajectoryStep, item: Item) -> None:
        name = item.name or ("" if item.type in _NAMED else item.type[: -len(_CALL)])
        if not name:
            reply.extra = reply.extra or StepExtra()
            reply.extra.turnwright = reply.extra.turnwright or StepNotes()
            reply.extra.turnwright.unreadable_calls += 1
            return
        own = item.call_id or item.id
        made = self.run.call(own, name, _arguments(item), step=reply)
        if item.call_id is None and item.type != "function_call" and item.status not in _RUNNING:
            found = next(
                (one for one in (item.output, item.outputs, item.results, item.result) if one is not None), None
            )
            failed = item.error is not None or item.status in _FAILED
            status: ResultStatus = "error" if failed else "ok"
            self.run.result(own or made.tool_call_id, _text(item.error if found is None else found), status=status)

    def _approve(self, item: Item) -> None:
        asked = self._approvals.pop(item.approval_request_id or "", None)
        if asked is not None and asked.name and item.approve is False:
            made = self.run.call(asked.id, asked.name, asked.arguments)
            self.run.result(made.tool_call_id, "", status="denied")


def _arguments(item: Item) -> Any:  # noqa: ANN401 (any JSON)
    if item.type == "custom_tool_call":
        return {"input": item.input}
    if item.code is not None:
        return {"code": item.code}
    given = (item.arguments, item.action, item.operation)
    found = next((one for one in given if one is not None), None)
    if found is not None:
        return found
    return {key: one for key, one in (("queries", item.queries), ("actions", item.actions)) if one is not None}


def _text(output: object) -> str:
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, list) and all(
        isinstance(one, Mapping) and str(one.get("type")).startswith("input_") for one in output
    ):
        return text_of(output)
    if isinstance(output, Mapping) and "image_url" in output:
        return named_by_hash(str(output.get("type")), output)
    return msgspec.json.encode(output).decode()


def _joined(before: str | None, text: str) -> str:
    return f"{before}\n{text}" if before and text else before or text
