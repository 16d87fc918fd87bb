"""The subject of the judges: one agent whose behavior is the first word of the last user message."""

import asyncio
from collections.abc import Mapping, Sequence

import anyio
import anyio.lowlevel
from typing_extensions import override

from turnwright import Agent, Engine, Later, StoreError, ToolContext, Usage, agent_tool, tool
from turnwright.journal.answers import Authorize
from turnwright.model import ModelError, ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.store import Claim, MemoryStore, NewTurn, SessionInfo, Status, Store, TurnRow
from turnwright_states import Cause, Finish
from turnwright_states.facts import Fact

AGENT = Agent(name="Subject", instructions="Do what the word says.", steps=4)
HELPER = Agent(name="Helper", description="Does a part.", steps=2)
HOST = "secret-host.internal"


@tool(read_only=True)
async def look(name: str) -> str:
    """Look a thing up."""
    return f"{name} is blue"


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool
async def choose(context: ToolContext) -> str:
    """Ask the person."""
    return "the choice is " + context.ask("Which color?", ["red", "green"])


@tool
async def wait(context: ToolContext) -> str:
    """Work for 30 seconds, with progress."""
    for second in range(30):
        context.progress(second, total=30, message="working")
        await asyncio.sleep(1)
    return "waited"


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("the tool is broken")


@tool
async def render() -> Later:
    """Render a film elsewhere."""
    return Later()


TOOLS = [look, pay, choose, wait, broken, render, agent_tool(HELPER, name="helper")]
OWN_TOOLS = {tool.name for tool in TOOLS}
USAGE = Usage(input_tokens=7, output_tokens=5)


def read_words(request: ModelRequest) -> tuple[str, str]:
    """Return the text of the last user message, and of the newest tool result after it."""
    text, result = "", ""
    for message in request.messages:
        if message.role == "user" and not message.text.startswith("["):
            text, result = message.text.strip(), ""
        elif message.role == "tool":
            result = str(message.parts[-1].to_json()["text"])
    return text, result


REPLIES: Mapping[str, ModelResponse | ModelError] = {
    "tool": asks_for(("look", {"name": "sky"}), text="I look.", usage=USAGE),
    "approve": asks_for(("pay", {"amount": 5}), text="I pay."),
    "both": asks_for(("pay", {"amount": 5}), ("pay", {"amount": 500})),
    "ask": asks_for(("choose", {})),
    "mixed": asks_for(("choose", {}), ("pay", {"amount": 5})),
    "slow": asks_for(("wait", {})),
    "job": asks_for(("render", {})),
    "job-and-pay": asks_for(("render", {}), ("pay", {"amount": 5})),
    "job-and-ask": asks_for(("render", {}), ("choose", {})),
    "broken": asks_for(("broken", {})),
    "doom": asks_for(("look", {"name": "the same"})),
    "think": ModelResponse(reasoning="First I think.", text="Then I answer.", usage=USAGE),
    "cut": ModelResponse(text="This sentence is not", finish=Finish.LENGTH, usage=USAGE),
    "filter": ModelError("refused by the filter", cause=Cause.CONTENT_FILTER),
    "fail": ModelError(f"HTTP 401 from {HOST}", cause=Cause.AUTHENTICATION, status=401),
    "long": ModelResponse(text="".join(map(str, range(45_000)))[:200_000], usage=USAGE),
}


def reply(request: ModelRequest) -> ModelResponse | ModelError:
    """Do what the word says."""
    text, result = read_words(request)
    word, _, rest = text.partition(" ")
    word = word.lower()
    if request.tool_choice == "none":
        return ModelResponse(text="Here is what I have so far.", usage=USAGE)
    if word == "cap":
        return asks_for(("look", {"name": f"thing {len(request.messages)}"}), text="Still looking.")
    if result and word != "doom":
        return ModelResponse(text=f"Result: {result}", usage=USAGE)
    client_tools = [tool.name for tool in request.tools or () if tool.name not in OWN_TOOLS]
    calls = [(name, {"location": "Graz"}) for name in client_tools]
    answer = REPLIES.get(word)
    if calls and word in ("what", "use", "mix"):
        answer = asks_for(*calls, *([("pay", {"amount": 5})] if word == "mix" else []), usage=USAGE)
    elif word == "delegate":
        answer = asks_for(("helper", {"prompt": rest or "say part one"}))
    if answer is not None:
        return answer
    return ModelResponse(text=_echo(word, text, request), usage=USAGE)


def _echo(word: str, text: str, request: ModelRequest) -> str:
    answer = f"You said: {text}"
    if word == "recall":
        earlier = [message.text for message in request.messages if message.role == "user"][:-1]
        answer = "You said: " + " | ".join(earlier)
    elif word == "files":
        answer = f"parts: {[part.type for part in request.messages[-1].parts]}"
    return answer


class UnreachableStore(MemoryStore):
    """A store to which no turn can be written."""

    @override
    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        raise OSError(f"no route to {HOST}")

    @override
    async def sessions(self, *, limit: int | None = None, before: int | None = None) -> list[SessionInfo]:
        raise OSError(f"no route to {HOST}")


class StrictStore(MemoryStore):
    """A store that cannot look up NUL, as PostgreSQL cannot."""

    @override
    async def get(self, turn_id: str) -> TurnRow:
        _need_text(turn_id)
        return await super().get(turn_id)

    @override
    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        _need_text(turn_id)
        return await super().facts(turn_id, after)


def _need_text(value: str) -> None:
    if "\0" in value:
        raise StoreError("text fields cannot contain NUL")


async def journal(engine: Engine) -> dict[str, object]:
    """Return everything that the store has."""
    rows = await engine.turns()
    return {row.id: (row.session, await engine.store.facts(row.id), await engine.store.inbox(row.id)) for row in rows}


async def settle_job(engine: Engine) -> None:
    """Give the film of the only turn as soon as nothing else is asked."""
    with anyio.fail_after(10):
        while True:
            await anyio.lowlevel.checkpoint()
            for row in await engine.turns(live=True):
                turn = await engine.get(row.id)
                open_ = [question for question in turn.interrupts if question.id not in turn.answered]
                if turn.paused and [question.tool for question in open_] == ["render"]:
                    await engine.settle(open_[0].key, "film.mp4")
                    return


def make_engine(store: str | Store = "memory:", *, authorize: Authorize | None = None) -> Engine:
    """Make an engine that runs the subject."""
    model = ScriptedModel(reply, repeat=True, stream_calls=True, name="subject")
    return Engine(
        model=model, tools=TOOLS, agents=[AGENT, HELPER], store=store, poll_interval=0.02, authorize=authorize
    )
