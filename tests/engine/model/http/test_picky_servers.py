"""Servers that refuse what OpenAI's takes, in their own words, and turns that reach their limit there.

Each answers a request that it does not take with the 400 of the real one, so a turn that ends with the model's own
conclusion is one whose every request was valid. Without the flag that is named here it ends otherwise.
"""

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine, FilePart, Message, TurnResult, tool
from turnwright.model import AnthropicMessages, Capabilities, OpenAIChat
from turnwright.store import MemoryStore
from turnwright_states import Outcome

pytestmark = pytest.mark.anyio

OWN_WORDS = "Two notes are written, the third is not."
AGENT = Agent(name="Clerk", instructions="Take notes.", steps=2)

Body = dict[str, Any]


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool
async def plot() -> FilePart:
    """Draw what there is."""
    return FilePart.of(b"png", "image/png", "plot.png")


@dataclass
class Server:
    """Ask for `calls` while tools are offered and no message says to stop; `refuses` is its 400, if any."""

    refuses: Callable[[Body], str | None]
    calls: tuple[str, ...] = ("note",)
    thinks: str = ""
    #: It knows no tool choice, and always calls what it is offered.
    deaf: bool = False
    bodies: list[Body] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body: Body = json.loads(request.content)
        self.bodies.append(body)
        refused = self.refuses(body)
        if refused is not None:
            return httpx.Response(400, json={"error": {"message": refused, "type": "invalid_request_error"}})
        stopped = body.get("tool_choice") == "none" or "must stop now" in str(body["messages"])
        asks = body.get("tools") and (self.deaf or not stopped)
        return httpx.Response(200, content=_stream(self._calling() if asks else {"content": OWN_WORDS}))

    def _calling(self) -> JsonValue:
        calls: list[JsonValue] = [
            {"index": index, "id": f"c{index}", "function": {"name": name, "arguments": "{}"}}
            for index, name in enumerate(self.calls)
        ]
        return {"tool_calls": calls, **({self.thinks: "hm"} if self.thinks else {})}

    def model(self, capabilities: Capabilities) -> OpenAIChat:
        return OpenAIChat(
            "m", base_url="http://host/v1", transport=httpx.MockTransport(self), capabilities=capabilities
        )


def _stream(delta: JsonValue) -> bytes:
    chunks: list[JsonValue] = [
        {"choices": [{"index": 0, "delta": delta}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


# What is refused.


def mistral(body: Body) -> str | None:
    roles = [message["role"] for message in body["messages"]]
    for before, after in itertools.pairwise(roles):
        if (before, after) == ("tool", "user") or after == "system":
            return f"Unexpected role '{after}' after role '{before}'"
    if roles[-1] not in {"user", "tool"}:
        return "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
    return None


def mistral_template(body: Body) -> str | None:
    """As the template that comes with the weights counts: calls and results are not turns."""
    turns = [m["role"] for m in body["messages"] if m["role"] != "tool" and not m.get("tool_calls")]
    turns = turns[1:] if turns[0] == "system" else turns
    if any((role == "user") != (number % 2 == 0) for number, role in enumerate(turns)):
        return "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
    return None


def bedrock(body: Body) -> str | None:
    if "tools" not in body and any(message.get("tool_calls") for message in body["messages"]):
        return "The toolConfig field must be defined when using toolUse and toolResult content blocks."
    if body.get("tool_choice") == "none":
        return "Bedrock doesn't support tool_choice=none. To drop it from the call, set `litellm.drop_params=True`."
    return None


def litellm(body: Body) -> str | None:
    if "tools" not in body and any(message.get("tool_calls") for message in body["messages"]):
        return (
            "litellm.UnsupportedParamsError: Anthropic doesn't support tool calling without `tools=` param specified."
        )
    return None


def llama(body: Body) -> str | None:
    if any(len(message.get("tool_calls") or ()) > 1 for message in body["messages"]):
        return "This model only supports single tool-calls at once!"
    return None


def deepseek(body: Body) -> str | None:
    if any(message["role"] == "assistant" and "reasoning_content" not in message for message in body["messages"]):
        return "The `reasoning_content` in the thinking mode must be passed back to the API."
    return None


def cerebras(body: Body) -> str | None:
    for number, message in enumerate(body["messages"]):
        if "reasoning_content" in message:
            return f"messages.{number}.assistant.reasoning_content: property is unsupported"
        if message.get("tool_calls") and not message.get("reasoning"):
            return f"messages.{number}.assistant.reasoning: what was sent must come back"
    return None


def claude(body: Body) -> str | None:
    if body["messages"][-1]["role"] == "assistant":
        return "This model does not support assistant message prefill. The conversation must end with a user message."
    return None


FIELDS = frozenset({"role", "content", "name", "refusal", "audio", "tool_calls", "tool_call_id"})
IMAGES = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif", "webp"))


def openai(body: Body) -> str | None:
    for number, message in enumerate(body["messages"]):
        for field_name in message.keys() - FIELDS:
            return f"Unknown parameter: 'messages[{number}].{field_name}'."
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url" and not part["image_url"]["url"].startswith(("https://", *IMAGES)):
                return "You uploaded an unsupported image. Please make sure your image is valid."
            if part["type"] == "file" and not part["file"]["file_data"].startswith("data:application/pdf;base64,"):
                return "Invalid file data. Expected a base64-encoded data URL with an application/pdf MIME type."
            if part["type"] not in {"text", "image_url", "file"}:
                return f"Invalid value: '{part['type']}'."
    return None


def nothing(_: Body) -> None:
    return None


STRICT = Capabilities(strict_alternation=True)
NO_NONE = Capabilities(supports_tool_choice_none=False)
BEDROCK = Capabilities(needs_tools_if_history_has_tools=True, supports_tool_choice_none=False)
OWED = Capabilities(reasoning_field="reasoning_content", reasoning_required=True)

PICKY = [
    pytest.param(Server(mistral), STRICT, id="mistral"),
    pytest.param(Server(mistral, calls=("note", "plot")), STRICT, id="mistral-pictures"),
    pytest.param(Server(mistral_template), STRICT, id="mistral-template"),
    pytest.param(Server(bedrock), BEDROCK, id="bedrock"),
    pytest.param(Server(llama, calls=("note", "note", "plot")), Capabilities(parallel_tool_calls=False), id="llama"),
    pytest.param(Server(cerebras, thinks="reasoning"), Capabilities(reasoning_field="reasoning"), id="cerebras"),
    pytest.param(Server(nothing, deaf=True), NO_NONE, id="ollama"),
]
# What it refuses says what it wants, so the flag only saves the first refusal.
CORRECTING = [
    pytest.param(Server(deepseek, thinks="reasoning_content"), OWED, id="deepseek"),
    pytest.param(Server(deepseek), OWED, id="deepseek-that-did-not-think"),
]


async def run(server: Server, capabilities: Capabilities) -> TurnResult:
    async with server.model(capabilities) as model:
        return await Engine(model=model, tools=[note, plot]).run(AGENT, "Take three notes.")


@pytest.mark.parametrize(("server", "capabilities"), [*PICKY, *CORRECTING])
async def test_turn_at_the_cap_concludes_in_the_models_words(server: Server, capabilities: Capabilities) -> None:
    turn = await run(server, capabilities)
    assert (turn.outcome, turn.text, turn.error) == (Outcome.CAP_HIT, OWN_WORDS, "")
    assert turn.steps == 2


@pytest.mark.parametrize(("server", "capabilities"), PICKY)
async def test_turn_at_the_cap_without_the_flag_gets_no_conclusion(server: Server, capabilities: Capabilities) -> None:
    assert capabilities != Capabilities()
    turn = await run(server, Capabilities())
    assert turn.text != OWN_WORDS


@pytest.mark.parametrize(("server", "capabilities"), CORRECTING)
async def test_turn_without_the_flag_is_refused_once(server: Server, capabilities: Capabilities) -> None:
    server.bodies.clear()
    first, second = [await run(server, flags) for flags in (capabilities, Capabilities())]
    assert [turn.text for turn in (first, second)] == [OWN_WORDS, OWN_WORDS]
    assert [deepseek(body) is not None for body in server.bodies] == [False] * 3 + [False, True, False, False]


async def test_call_in_a_conclusion_with_callable_tools_is_refused() -> None:
    """A server that needs the tools and knows no `none`, and a model that does not listen: it never runs."""
    server = Server(bedrock, deaf=True)
    turn = await run(server, BEDROCK)
    assert (turn.outcome, turn.steps, turn.tool_calls) == (Outcome.CAP_HIT, 2, 2)
    assert re.match(r"Stopped at the step limit \(2 of 2\)\. The model gave no summary\.", turn.text)
    assert "do not call any" in server.bodies[-1]["messages"][-1]["content"]


@pytest.mark.parametrize("refuses", [bedrock, litellm])
async def test_agent_without_tools_continues_a_session_with_tool_calls(refuses: Callable[[Body], str | None]) -> None:
    server = Server(refuses)
    async with server.model(BEDROCK) as model:
        engine = Engine(model=model, tools=[note])
        await engine.run(AGENT, "Take three notes.", session="s1")
        turn = await engine.run(Agent(name="Reader", tools=(), steps=1), "What is noted?", session="s1")
    assert turn.error == ""
    assert [tool["function"]["name"] for tool in server.bodies[-1]["tools"]] == ["note"]


@pytest.mark.parametrize("refuses", [mistral, mistral_template])
async def test_user_and_assistant_alternate_for_any_history(refuses: Callable[[Body], str | None]) -> None:
    """Imported history, and the budget message behind each step's results."""
    server = Server(refuses)
    async with server.model(STRICT) as model:
        engine = Engine(model=model, tools=[note], show_budget_to_model=True)
        history = [Message.user("One."), Message.user("Two."), Message.system("Be kind.")]
        first = await engine.run(AGENT, "Take three notes.", session="s1", message_history=history)
        second = await engine.run(AGENT, "And now?", session="s1")
    assert [turn.text for turn in (first, second)] == [OWN_WORDS, OWN_WORDS]


async def test_conversation_ending_with_the_assistant_gets_a_user_message() -> None:
    async def prepare(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return (*messages, Message.assistant("So far so good."))

    for capabilities, error in ((Capabilities(), False), (Capabilities(allows_prefill=True), True)):
        server = Server(claude)
        async with server.model(capabilities) as model:
            engine = Engine(model=model, tools=[note], history_processor=prepare)
            turn = await engine.run(Agent(name="Clerk", steps=2), "Take three notes.")
        assert ("must end with a user message" in turn.error) is error


# What is sent of files, and of what was thought.


@tool
async def record() -> tuple[FilePart, ...]:
    """Hand over one of each."""
    kinds = ("image/png", "image/svg+xml", "image/*", "application/pdf", "text/csv", "audio/wav", "application/zip")
    return tuple(FilePart.of(b"file", media_type) for media_type in kinds)


async def test_file_of_any_kind_spoils_no_turn() -> None:
    server = Server(openai, calls=("record",))
    async with server.model(Capabilities()) as model:
        engine = Engine(model=model, tools=[record])
        first = await engine.run(AGENT, "Record it.", session="s1", files=[FilePart.of(b"ID3", "audio/mpeg", "a.mp3")])
        second = await engine.run(AGENT, "And now?", session="s1")
    assert [(turn.text, turn.error) for turn in (first, second)] == [(OWN_WORDS, ""), (OWN_WORDS, "")]
    words = str(server.bodies[-1]["messages"])
    assert "A file, a.mp3 (audio/mpeg), cannot be shown here." in words
    assert "A file, (text/csv), holds:" in words


@dataclass
class Sealing(Server):
    """Seals what it thinks, as OpenRouter does."""

    def _calling(self) -> JsonValue:
        details: JsonValue = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]
        call: JsonValue = {"index": 0, "id": "c", "function": {"name": "note", "arguments": "{}"}}
        return {"reasoning_details": details, "tool_calls": [call]}


@pytest.mark.parametrize(
    ("capabilities", "is_accepted"), [(Capabilities(reasoning_details=False), True), (None, False)]
)
async def test_session_may_continue_at_a_server_without_details(
    capabilities: Capabilities | None, *, is_accepted: bool
) -> None:
    """The model has the same name at both. Where it was begun, what was sealed goes back."""
    store = MemoryStore()
    begun, later = Sealing(nothing), Server(openai)
    async with begun.model(Capabilities()) as model:
        await Engine(model=model, tools=[note], store=store).run(AGENT, "Take three notes.", session="s1")
    assert begun.bodies[-1]["messages"][2]["reasoning_details"] == [
        {"type": "reasoning.encrypted", "data": "x", "index": 0}
    ]
    async with later.model(capabilities or Capabilities()) as model:
        turn = await Engine(model=model, tools=[note], store=store).run(AGENT, "And now?", session="s1")
    assert (turn.text == OWN_WORDS) is is_accepted
    assert ("reasoning_details" in turn.error) is not is_accepted


THOUGHT: list[Body] = [
    {"type": "thinking", "thinking": "First.", "signature": "s1"},
    {"type": "text", "text": "I take notes. "},
    {"type": "redacted_thinking", "data": "d2"},
    {"type": "tool_use", "id": "toolu_1", "name": "note", "input": {"n": 1}},
    {"type": "thinking", "thinking": "Then.", "signature": "s3"},
    {"type": "text", "text": "And another."},
    {"type": "tool_use", "id": "toolu_2", "name": "note", "input": {"n": 2}},
]


def interleaved(request: httpx.Request) -> httpx.Response:
    """Thinks between what it says and what it asks for, and wants it back at its place."""
    messages = json.loads(request.content)["messages"]
    latest = next((message["content"] for message in reversed(messages) if message["role"] == "assistant"), None)
    content: list[Body] = THOUGHT if latest is None else [{"type": "text", "text": OWN_WORDS}]
    nowhere: Body = {"type": None}
    for number, pair in enumerate(itertools.zip_longest(THOUGHT, latest or THOUGHT, fillvalue=nowhere)):
        expected, block = (entry if "thinking" in str(entry["type"]) else {"type": entry["type"]} for entry in pair)
        if expected != block:
            words = (
                f"messages.1.content.{number}: `thinking` or `redacted_thinking` blocks in the latest assistant message"
                " cannot be modified. These blocks must remain as they were in the original response."
            )
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
            return httpx.Response(400, json=error)
    return httpx.Response(
        200,
        json={
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": "end_turn" if latest else "tool_use",
        },
    )


async def test_reasoning_between_calls_goes_back_in_place() -> None:
    model = AnthropicMessages(
        "claude-m", base_url="http://host", api_key="k", transport=httpx.MockTransport(interleaved)
    )
    async with model:
        turn = await Engine(model=model, tools=[note]).run(Agent(name="Clerk"), "Take two notes.")
    assert (turn.text, turn.error, turn.tool_calls) == (OWN_WORDS, "", 2)
