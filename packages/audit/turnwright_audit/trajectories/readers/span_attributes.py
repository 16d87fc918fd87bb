"""The attributes of spans of models, tools and agents, in each known convention."""

import ast
from typing import Final, Literal

import msgspec
from pydantic import JsonValue

from turnwright_audit.trajectories.atif import StepMetrics
from turnwright_audit.trajectories.shapes import join_texts, json_text

from .span_dump import Span
from .span_messages import as_value, reply_messages

Kind = Literal["model", "tool", "agent"]

_OPERATIONS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("chat", "text_completion", "completion", "generate_content", "call_llm", "responses"), "model"),
    "execute_tool": "tool",
    "invoke_agent": "agent",
}
_KINDS: Final[dict[str, Kind]] = {"LLM": "model", "TOOL": "tool", "AGENT": "agent"}
_TOOL_NAMES: Final = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
_ARGUMENTS: Final = (
    *("gen_ai.tool.call.arguments", "gen_ai.tool.args", "tool_arguments", "tool_call.function.arguments"),
    *("ai.toolCall.args", "gcp.vertex.agent.tool_call_args", "traceloop.entity.input", "input.value"),
)
#: The name of spans that show the results of other spans together.
_MERGED: Final = "(merged tools)"
#: Longer texts are not parsed as Python.
_LONGEST_LITERAL: Final = 64 * 1024
_RESULTS: Final = (
    *(
        "gen_ai.tool.call.result",
        "tool_response",
        "gen_ai.output",
        "genai.output",
        "ai.toolCall.result",
        "gcp.vertex.agent.tool_response",
    ),
    *("traceloop.entity.output", "output.value"),
)


def kind_of(span: Span) -> Kind | None:
    """Return what a span is; None if it is neither a model call, nor a tool, nor an agent."""
    kind = span.text("openinference.span.kind")
    if kind:
        return _KINDS.get(kind.upper())
    operation = span.text("gen_ai.operation.name")
    if operation:
        return _OPERATIONS.get(operation) if span.text("gen_ai.tool.name") != _MERGED else None
    if span.text("traceloop.span.kind") in {"tool", "agent"}:
        return "tool" if span.text("traceloop.span.kind") == "tool" else "agent"
    if tool := span.text("gen_ai.tool.name", "ai.toolCall.name"):
        return None if tool == _MERGED else "tool"
    if span.text("llm.request.type", "gen_ai.request.model", "gen_ai.response.model"):
        return "model"
    return "agent" if span.text("agent_name") else None


def tool_name(span: Span) -> str:
    """Return the tool that a span ran."""
    return span.text(*_TOOL_NAMES) or span.name.removeprefix("execute_tool ")


def agent_name(span: Span) -> str:
    """Return the name of the agent of a span."""
    keys = ("gen_ai.agent.name", "agent.name", "agent_name", "traceloop.entity.name")
    return span.text(*keys) or span.service or span.name


def call_id(span: Span) -> str:
    """Return the id of the call that a tool's span names; nothing if it names none."""
    return span.text("gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id", "tool.id")


def model(span: Span) -> str:
    """Return the name of the model."""
    keys = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id", "model_name")
    return span.text(*keys)


def finish_reason(span: Span) -> str:
    """Return why the model stopped."""
    reasons = as_value(span.attributes.get("gen_ai.response.finish_reasons"))
    if isinstance(reasons, list):
        reasons = reasons[-1] if reasons else None
    return reasons if isinstance(reasons, str) else span.text("llm.finish_reason", "ai.response.finishReason")


def metrics(span: Span) -> StepMetrics | None:
    """Return the tokens and the cost of a model call."""
    prompt = span.number("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
    completion = span.number(
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
    )
    cached_tokens = span.number(
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.details.cache_read_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    )
    cost = span.number("operation.cost", "gen_ai.usage.cost", "llm.cost.total")
    if cost is None:
        parts = [span.number(f"gen_ai.usage.{direction}_cost") for direction in ("input", "output")]
        cost = sum(part or 0.0 for part in parts) if any(part is not None for part in parts) else None
    if prompt is completion is cached_tokens is cost is None:
        return None
    tokens = [None if count is None else int(count) for count in (prompt, completion, cached_tokens)]
    return StepMetrics(prompt_tokens=tokens[0], completion_tokens=tokens[1], cached_tokens=tokens[2], cost_usd=cost)


def tool_result(span: Span) -> str | None:
    """Return the result of a tool; None if the span has none."""
    result = next((span.attributes[key] for key in _RESULTS if key in span.attributes), None)
    if result is None and span.events:
        result = join_texts(*(message.text for message in reply_messages(span)))
    return (None if result is None else json_text(result)) or span.error or None


def arguments(span: Span) -> JsonValue:
    """Return the arguments of a tool's span."""
    arguments = next((span.attributes[key] for key in _ARGUMENTS if key in span.attributes), None)
    value = as_value(as_value(arguments))  # some exporters encode the text once more
    if isinstance(value, str):
        value = _literal(value)
    if not isinstance(value, dict):
        return arguments
    if "kwargs" in value and "args" in value:  # smolagents
        keyword_values, positional_values = value["kwargs"], value["args"]
        keyword_values = keyword_values if isinstance(keyword_values, dict) else {}
        return {**keyword_values, "args": positional_values} if positional_values else keyword_values
    return value


def _literal(text: str) -> JsonValue:
    """Return the object that a text shows as Python does, as LangChain's tracers write them; else None."""
    if not text.startswith("{'") or len(text) > _LONGEST_LITERAL:
        return None
    try:
        literal = ast.literal_eval(text)
        msgspec.json.encode(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return literal if isinstance(literal, dict) and all(isinstance(key, str) for key in literal) else None
