"""A turn as one side of a comparison."""

import json
from collections.abc import Iterator, Sequence

from turnwright.driver.dependencies import Dependencies
from turnwright.message import FilePart, Message, ReasoningPart, ToolCallPart, ToolResultPart
from turnwright.model.protocol import ModelRequest
from turnwright.privacy.redaction import redactor
from turnwright_inspector.http.render import amount, dollars, seconds
from turnwright_states import State
from turnwright_states.payload import thaw

from .comparison import Side
from .request_replay import Rebuilt
from .steps import Step
from .turn_record import TurnRecord


def turn_side(turn: TurnRecord, history: Sequence[Message], setup: Dependencies) -> Side:
    """Return a turn to compare. `history` is what was said before it."""

    def find_request(step: Step) -> str:
        request = Rebuilt.of(turn, setup, history).last(step)
        return "" if request is None else "\n".join(_request_lines(turn.row.model, request))

    return Side(
        id=turn.row.id,
        figures=_figures(turn),
        limits={name: words_of(value) for name, value in turn.started.limits.model_dump(mode="json").items()},
        settings={name: words_of(value) for name, value in turn.started.model_settings.items()},
        prompt=turn.started.prompt,
        instructions=str(turn.started.agent.get("instructions") or ""),
        answer=turn.result.text,
        steps=turn.steps,
        request_of=find_request,
    )


def words_of(value: object) -> str:
    """Return a limit or a setting in words."""
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(thaw(value))


def _figures(turn: TurnRecord) -> dict[str, str]:
    result = turn.result
    reason = "" if result.reason is None or str(result.reason) == str(result.outcome) else f": {result.reason}"
    open_state = "paused" if result.state is State.PAUSED else "unfinished"
    return {
        "Outcome": f"{result.outcome or open_state}{reason}".replace("_", " "),
        "Agent": turn.row.agent,
        "Model": turn.row.model or "not named",
        "Steps": amount(result.steps),
        "Tool calls": amount(result.tool_calls),
        "Tokens": amount(result.usage.tokens),
        "Cost": dollars(result.usage.cost) if result.usage.cost else "none recorded",
        "Active time": seconds(result.seconds),
    }


def _request_lines(model: str, request: ModelRequest) -> Iterator[str]:
    yield f"model: {model or 'not named'}"
    yield f"tool_choice: {request.tool_choice}"
    if request.max_tokens is not None:
        yield f"max_tokens: {request.max_tokens}"
    for name, value in ({} if request.settings is None else request.settings.to_json()).items():
        yield f"{name}: {words_of(redactor().hide_in(value, name))}"
    for message in request.messages:
        yield from ("", f"{message.role}:", *_message_lines(message))


def _message_lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case ToolCallPart():
                yield f"{part.name}({json.dumps(redactor().hide_fields(thaw(part.arguments)), ensure_ascii=False)})"
            case ToolResultPart():
                yield f"{part.name}: {part.status}: {part.text}"
            case FilePart():
                yield f"[file {part.name or part.media_type}]"
            case ReasoningPart():
                yield f"[thinking] {part.text}"
            case _:
                yield str(getattr(part, "text", ""))
