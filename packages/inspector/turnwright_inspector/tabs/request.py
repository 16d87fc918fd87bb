"""The tab of a step's request to its model, rebuilt from the journal.

The messages are those that the model's adapter received. The adapter's own request is shown in the form of chat
completions, the most common one.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs
from pydantic import ValidationError

from turnwright._base.words import collapse_whitespace
from turnwright.errors import TurnwrightError
from turnwright.message import FilePart, Message, ReasoningPart, ToolCallPart, ToolResultPart, ToolSpec
from turnwright.model.openai_chat.request import OpenAIEncoder
from turnwright.model.protocol import ModelRequest
from turnwright.privacy.redaction import redactor
from turnwright_inspector.http.render import json_text
from turnwright_inspector.views.pagination import Window
from turnwright_inspector.views.request_replay import Rebuilt, Sending
from turnwright_inspector.views.steps import Step, name_tools
from turnwright_inspector.views.text_diff import count_common
from turnwright_inspector.views.turn_record import TabContext, TurnRecord

_PREPARED: Final = (
    "A `history_processor` hook may have changed the messages before they were sent: what it did is not recorded."
)
_UNPREPARED: Final = (
    "This process has no `history_processor` hook; if the one that sent it had one, that is not recorded."
)
_TOOLS: Final = "The definitions of the tools are those of this process: a journal does not keep them."
_NAMES: Final = "The journal has the names of the tools. Their definitions are in no journal, and not in this process."
_NO_NAMES: Final = (
    "The agent may use all tools of its process. A journal has neither their names nor their definitions."
)
_HOW: Final = (
    "A process that has the tools shows them: `turnwright serve --drive --tools FILE`, or `inspector_app(engine)` with"
    " the engine of your application."
)
_BUDGET: Final = "The budget message is worded as this process would word it."
_NO_BUDGET: Final = (
    "This process does not show models their budget. If the sending process did, that text is missing here."
)
_EARLIER: Final = "Earlier messages are read from the earlier turns as they are now: a deleted turn is missing."
_UNREAD: Final = "The messages before the turn can no longer be read: they are missing here."
_SIGNED: Final = "If another model continued this turn, it received the thinking without the signatures."
_UNANSWERED: Final = "The journal has no answer to it: it may not have been sent."
_TAKEN_UP: Final = "Another driver resumed the turn in this step: the one before may have sent this too."

#: No line of the JSON text is the word that ends it, and the shell replaces nothing in it.
_CURL: Final = """\
curl "${OPENAI_BASE_URL:-https://api.openai.com/v1}/chat/completions" \\
  -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" --data-binary @- <<'JSON'"""

#: Messages a page, and characters of messages up to which the form of chat completions is shown.
_PAGE: Final = 40
_BODY: Final = 100_000


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """A message that was sent, with its number in the request and a one-line description."""

    number: int
    message: Message
    title: str


@dataclass(frozen=True, slots=True)
class RequestView:
    """The request of `step`, as its last attempt sent it.

    Of its messages there are as many as a page has: `same_messages` are those that the request before had too (or,
    for the first one, what was said before the turn), which are `same` in all, `new` those that came since. `body`
    is JSON text in the form of chat completions, and `curl` a command that sends it; of the last `unwritten`
    messages it has nothing. `tool_names` is None where they are not known; `tools` is empty without their
    definitions. `differs` says what was otherwise in what earlier attempts sent. `notes` say what may have been
    otherwise and is not recorded. `attempts` says how often it was sent. `missing` says why there is no request to
    show; then the rest is empty.
    """

    step: Step | None
    model: str = ""
    tool_choice: str = ""
    max_tokens: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    window: Window | None = None
    same: int = 0
    same_messages: tuple[ShownRequest, ...] = ()
    new: tuple[ShownRequest, ...] = ()
    first: bool = False
    tools: tuple[ToolSpec, ...] = ()
    tool_names: tuple[str, ...] | None = None
    body: str = ""
    curl: str = ""
    unwritten: int = 0
    differs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    attempts: int = 0
    missing: str = ""


def view(tab_context: TabContext) -> RequestView:
    """The request of the chosen step, or of the last one."""
    steps, turn = tab_context.turn.steps, tab_context.turn
    step = tab_context.step or (steps[-1] if steps else None)
    if step is None:
        return RequestView(None, missing="The turn has not called its model yet.")
    try:
        rebuilt = Rebuilt.of(turn, tab_context.engine.setup, tab_context.history)
        sendings = rebuilt.sendings(step)
        place = steps.index(step)
        before = rebuilt.last(steps[place - 1]) if place else None
    except (TurnwrightError, ValidationError) as error:
        return RequestView(step, missing=f"The request cannot be built again: {error}")
    if not sendings:
        return RequestView(step, missing="Nothing was sent to a model here.")
    request = sendings[-1].request
    tool_names = tuple(item.name for item in request.tools) or sendings[-1].tool_names
    common = count_common(rebuilt.before if before is None else before.messages, request.messages)
    if before is None and common == 1 and not tab_context.history:
        common = 0  # the instructions alone
    window = Window.of(len(request.messages), _PAGE, tab_context.until)
    numbers = range(window.first, window.last + 1)
    shown_requests = [
        ShownRequest(number, item, title_of(item)) for number in numbers for item in (request.messages[number - 1],)
    ]
    body, written_count = _body(turn.started.model, request)
    return RequestView(
        step=step,
        model=turn.started.model,
        tool_choice=request.tool_choice,
        max_tokens=request.max_tokens,
        settings=_settings(request),
        window=window,
        same=common,
        same_messages=tuple(item for item in shown_requests if item.number <= common),
        new=tuple(item for item in shown_requests if item.number > common),
        first=before is None,
        tools=request.tools,
        tool_names=tool_names,
        body=body,
        curl=f"{_CURL}\n{body}\nJSON" if body.startswith("{") and written_count == len(request.messages) else "",
        unwritten=len(request.messages) - written_count,
        differs=tuple(_differences(sendings)),
        notes=tuple(_notes(tab_context, step, sendings[-1])),
        attempts=len(sendings),
    )


def _settings(request: ModelRequest) -> dict[str, str]:
    """Return the model settings of the request. `max_tokens` is shown by itself, and the body has `extra_body`."""
    settings = {} if request.settings is None else request.settings.to_json()
    return {name: json.dumps(value) for name, value in settings.items() if name not in ("max_tokens", "extra_body")}


def _body(model: str, request: ModelRequest) -> tuple[str, int]:
    """The request in the form of chat completions, and how many of its messages are in that."""
    size = written_count = 0
    for message in request.messages:
        if written_count and size > _BODY:
            break
        size, written_count = size + len(str(message.to_json())), written_count + 1
    try:
        body = OpenAIEncoder(model).encode(structs.replace(request, messages=request.messages[:written_count]))
        return json_text(redactor().hide_in(json.loads(body))), written_count
    except (TurnwrightError, ValueError) as error:  # chat completions have no place for everything
        return f"It has no such form: {error}", written_count


def _differences(sendings: Sequence[Sending]) -> Iterator[str]:
    last = sendings[-1].request
    for number, sending in enumerate(sendings[:-1], start=1):
        request = sending.request
        fewer = len(last.messages) - count_common(request.messages, last.messages)
        if fewer:
            yield f"Attempt {number} was sent without the last {fewer} of these messages: they came later."
        if request.max_tokens != last.max_tokens:
            yield f"Attempt {number} was sent with max_tokens {request.max_tokens}."


def _notes(tab_context: TabContext, step: Step, sending: Sending) -> Iterator[str]:
    turn, setup, request = tab_context.turn, tab_context.engine.setup, sending.request
    if not sending.answered:
        yield _UNANSWERED
    yield from _tool_notes(turn, sending)
    yield _UNPREPARED if setup.history_processor is None else _PREPARED
    if request.tool_choice != "none":
        yield _BUDGET if setup.show_budget_to_model else _NO_BUDGET
    if turn.started.continue_from is not None and not tab_context.history:
        yield _UNREAD
    elif turn.started.continue_from is not None or turn.started.session is not None:
        yield _EARLIER
    if any(step.first < span.first <= sending.after + 1 for span in turn.claim_spans):
        yield _TAKEN_UP
    has_signatures = any(
        isinstance(part, ReasoningPart) and part.details for message in request.messages for part in message.parts
    )
    if has_signatures and len(turn.claim_spans) > 1:
        yield _SIGNED


def _tool_notes(turn: TurnRecord, sending: Sending) -> Iterator[str]:
    """Say where the definitions of the tools come from, or what would make them known."""
    if sending.request.tools:
        yield _TOOLS
        return
    if sending.tool_names == ():
        return
    yield _NO_NAMES if sending.tool_names is None else _NAMES
    called_tools = name_tools(call.made.name for step in turn.steps for call in step.calls)
    if called_tools and sending.tool_names is None:
        yield f"The turn has called {called_tools}."
    yield _HOW


def title_of(message: Message) -> str:
    """Return the title of a message."""
    calls = [part.name for part in message.parts if isinstance(part, ToolCallPart)]
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    if results:
        return "; ".join(f"{part.name} {part.call} {part.status}: {part.text or 'nothing'}" for part in results)
    text = collapse_whitespace(message.text)
    if calls:
        calls_text = f"calls {name_tools(calls)}"
        return f"{text} · {calls_text}" if text else calls_text
    files = ", ".join(part.name or part.media_type for part in message.parts if isinstance(part, FilePart))
    return text or files or ("thinking" if message.parts else "nothing")
