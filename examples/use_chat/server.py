"""A chat page with the AI SDK's `useChat`: `python examples/use_chat/server.py` serves it on port 8000 (no key).

Build the page first, in this folder: `npm install && npm run build`. A refund waits for an approval on the page. Reload
it in the middle: the approval is still there, and a running turn continues. Replace the model by yours, and `authorize`
by your login. Needs `pip install 'turnwright-protocols[ui]' uvicorn`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from turnwright import Agent, Engine, tool
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright_protocols.ui import Gate, ui_routes

HERE = Path(__file__).parent


@tool(needs_approval=True)
async def refund(order: str, amount: float) -> str:
    """Refund an amount for an order."""
    return f"refunded {amount:g} for {order}"


async def reply(request: ModelRequest) -> ModelResponse | str:
    """A scripted model in place of yours."""
    await anyio.sleep(0.2)
    last = request.messages[-1]
    return "Done." if last.role == "tool" else asks_for(("refund", {"order": last.text, "amount": 20}))


def authorize(_request: Request, _chat: str) -> bool:
    """Allow everyone: this server listens to this machine alone."""
    return True


def make_app(engine: Engine, agent: Agent, built: Path = HERE / "build") -> Starlette:
    """Serve the chat, and the page that was built into a folder."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with engine, anyio.create_task_group() as group:
            group.start_soon(engine.run_worker)  # turns that a crash left
            yield
            group.cancel_scope.cancel()

    pages = [
        Route("/", lambda _request: FileResponse(HERE / "index.html")),
        Route("/page.js", lambda _request: FileResponse(built / "page.js")),
    ]
    return Starlette(routes=[*ui_routes(engine, [agent], Gate(authorize)), *pages], lifespan=lifespan)


if __name__ == "__main__":
    shop = Engine(model=ScriptedModel(reply, repeat=True), tools=[refund], store="sqlite:///turns.db")
    uvicorn.run(make_app(shop, Agent(name="Clerk")), port=8000)
