r"""A chat service of a shop: `python examples/chat_service.py` serves it on port 8000 (no network, no key).

    curl localhost:8000/chat -H 'content-type: application/json' \
         -d '{"session": "s1", "user": "ann", "text": "My wheel is broken, refund 20"}'
    curl 'localhost:8000/answers?turn=TURN&interrupt=approval-1' -H 'content-type: application/json' \
         -d '{"order": "wheel", "amount": 15}'

A refund waits for a person, who may change the amount. A turn survives `kill -9`: the next start resumes it, and no
refund is paid twice. Replace the model by yours. Needs `pip install 'turnwright[examples]'`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, JsonValue

from turnwright import Agent, Compact, Engine, ToolContext, TurnInfo, TurnResult, approve, reject, tool
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for

FOLDER = Path(os.environ.get("CHAT_FOLDER", "."))


@dataclass
class Shop:
    """The objects that tools use. Each driver of a turn makes its own."""

    user: str
    refunds: Path


async def open_shop(turn: TurnInfo) -> Shop:
    """Make the dependencies of a turn from its metadata."""
    return Shop(str(turn.metadata["user"]), FOLDER / "refunds")


class Reply(BaseModel):
    """The typed answer of a turn."""

    text: str
    refunded: float = 0.0


@tool(needs_approval=True, idempotent=True, on_crash="rerun")
async def refund(ctx: ToolContext[Shop], order: str, amount: float) -> str:
    """Refund an amount for an order."""
    ctx.deps.refunds.mkdir(exist_ok=True)
    # One file for each call, so a call that runs again pays nothing again.
    (ctx.deps.refunds / ctx.idempotency_key.replace(":", "-")).write_text(f"{ctx.deps.user} {order} {amount:g}")
    return f"refunded {amount:g}"


async def say(request: ModelRequest) -> ModelResponse | str:
    """A scripted model in place of yours, which takes its time."""
    await anyio.sleep(0.2)
    last = request.messages[-1]
    if "only your summary of it will remain" in last.text:
        return "The customer wrote several times."
    if last.role == "tool":
        done = str(last.parts[0].to_json()["text"]).splitlines()[-1]
        return asks_for(("final_result", {"text": f"Done: {done}."}))
    if "refund" in last.text:
        return asks_for(("refund", {"order": "wheel", "amount": float(last.text.split()[-1])}))
    return asks_for(("final_result", {"text": f"You wrote: {last.text}"}))


AGENT = Agent(
    name="Clerk",
    instructions="You help customers of a shop.",
    output_type=Reply,
    compaction=Compact(at_tokens=2_000, keep_steps=4),
    steps=6,
)
ENGINE = Engine(
    model=ScriptedModel(say, repeat=True),
    deps=open_shop,
    tools=[refund],
    agents=[AGENT],
    store=f"sqlite:///{FOLDER}/chat.db",
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Continue, beside the requests, the turns that a crash left, and those that another process answers."""
    async with ENGINE, anyio.create_task_group() as group:
        group.start_soon(ENGINE.run_worker)
        yield
        group.cancel_scope.cancel()


app = FastAPI(lifespan=lifespan)


def shown(turn: TurnResult[Reply]) -> dict[str, object]:
    """Return a turn as JSON: its answer, or what it waits for."""
    waiting = [
        {"id": interrupt.id, "tool": interrupt.tool, "arguments": interrupt.arguments} for interrupt in turn.interrupts
    ]
    return {"turn": turn.id, "state": turn.state, "reply": turn.output, "waiting": waiting}


@app.post("/chat")
async def chat(message: dict[str, str]) -> dict[str, object]:
    """Run a turn until it ends or waits for a person."""
    return shown(await ENGINE.run(AGENT, message["text"], session=message["session"], metadata=message))


@app.post("/answers")
async def answer(turn: str, interrupt: str, arguments: dict[str, JsonValue] | None = None) -> dict[str, object]:
    """Approve a call with these arguments, or reject it without any. Run the turn until it ends or waits again."""
    decision = reject() if arguments is None else approve(arguments=arguments)
    return shown(await ENGINE.resume(turn, {interrupt: decision}, agent=AGENT))


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), log_level="warning")
