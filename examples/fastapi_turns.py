r"""Turns behind HTTP, with FastAPI: `python examples/fastapi_turns.py` serves them on port 8000 (no network, no key).

Needs FastAPI and uvicorn: `pip install 'turnwright[examples]'`. Then, in another terminal:

    curl -N localhost:8000/turns -H 'content-type: application/json' -d '{"prompt": "Delete old.log"}'
    curl -N localhost:8000/turns/TURN/answers -H 'content-type: application/json' \
         -d '{"answers": {"approval-1": "yes"}}'
    curl -N localhost:8000/turns/TURN/events -H 'last-event-id: 3'

A turn belongs to the server, not to the request that started it. A client that disconnects does not stop it, and
reconnects with the id of its last event, as a browser's `EventSource` does. When the server restarts after a crash, it
resumes unfinished turns. Replace the model, the tools and the agent of this file by yours.
"""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import anyio
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    InvalidAnswerError,
    SessionBusyError,
    TurnAlreadyEndedError,
    TurnBusyError,
    TurnNotFoundError,
    TurnwrightError,
    tool,
)
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for

AGENT = Agent(name="Cleaner", instructions="You keep a folder tidy.", steps=10)

#: The HTTP status of each error of ours. Any other error is the server's own fault.
STATUS: dict[type[Exception], int] = {
    TurnNotFoundError: 404,
    SessionBusyError: 409,
    TurnBusyError: 409,
    TurnAlreadyEndedError: 409,
    InvalidAnswerError: 422,
    ConfigError: 422,
}

_LOG = logging.getLogger(__name__)


@tool(needs_approval=True)
async def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def say(request: ModelRequest) -> ModelResponse:
    """A scripted model in place of yours: it deletes the requested files, and then ends."""
    last = request.messages[-1]
    if last.role == "tool":
        return ModelResponse(text="Done. I have deleted it, and nothing else was touched.")
    return asks_for(("delete_file", {"path": last.text.split()[-1]}), text="Let me see.")


class NewTurn(BaseModel):
    """The body of a request that starts a turn."""

    prompt: str
    session: str | None = None


class Answers(BaseModel):
    """The body of a request that answers the open interrupts of a turn."""

    answers: dict[str, str]


@dataclass
class Followed:
    """The events of a response: those of a turn, after its `seq`-th fact."""

    turn: str
    seq: int


# These run before the first byte of an answer, so what is refused has a status of its own.


async def begun(request: Request, new: NewTurn) -> Followed:
    """Begin a turn. The engine drives it, whatever becomes of this request."""
    engine: Engine = request.app.state.engine
    handle = await engine.start(AGENT, new.prompt, session=new.session)
    return Followed(handle.id, 0)


async def attached(request: Request, turn: str, last_event_id: Annotated[int, Header()] = 0) -> Followed:
    """Attach to a turn."""
    engine: Engine = request.app.state.engine
    await engine.get(turn)
    return Followed(turn, last_event_id)


async def answered(
    request: Request, turn: str, reply: Answers, last_event_id: Annotated[int, Header()] = 0
) -> Followed:
    """Answer a turn, which the engine then drives on."""
    engine: Engine = request.app.state.engine
    await engine.attach(turn, AGENT).answer(reply.answers)
    return Followed(turn, last_event_id)


router = APIRouter()


async def events_of(request: Request, followed: Followed) -> AsyncIterator[ServerSentEvent]:
    """The turn's events until it ends, pauses, or the client goes away."""
    engine: Engine = request.app.state.engine
    async for event in engine.events(followed.turn, after=followed.seq):
        # A piece of a reply has the id of the fact before it: who attaches again gets the reply as a whole.
        yield ServerSentEvent(event=event.type, id=str(event.seq), data=event.public())


@router.post("/turns", response_class=EventSourceResponse)
async def begin(request: Request, followed: Annotated[Followed, Depends(begun)]) -> AsyncIterator[ServerSentEvent]:
    """Begin a turn and follow it."""
    async for event in events_of(request, followed):
        yield event


@router.get("/turns/{turn}/events", response_class=EventSourceResponse)
async def attach(request: Request, followed: Annotated[Followed, Depends(attached)]) -> AsyncIterator[ServerSentEvent]:
    """Follow a turn from where the client was."""
    async for event in events_of(request, followed):
        yield event


@router.post("/turns/{turn}/answers", response_class=EventSourceResponse)
async def answer(request: Request, followed: Annotated[Followed, Depends(answered)]) -> AsyncIterator[ServerSentEvent]:
    """Answer a paused turn, and follow it from where the client was."""
    async for event in events_of(request, followed):
        yield event


@router.delete("/turns/{turn}", status_code=204)
async def abort(request: Request, turn: str) -> None:
    """Stop a turn."""
    engine: Engine = request.app.state.engine
    await engine.abort(turn)


async def refused(_: Request, error: Exception) -> JSONResponse:
    """Answer with the error of a request. The server's own faults go to its log alone."""
    status = STATUS.get(type(error))
    if status is None:
        _LOG.error("a request failed", exc_info=error)
        return JSONResponse({"detail": "the server cannot do this now"}, 500)
    return JSONResponse({"detail": str(error)}, status)


def make_app(store: str) -> FastAPI:
    """The application. `store` is the address of a store."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        model = ScriptedModel(say, repeat=True)
        async with Engine(model=model, tools=[delete_file], store=store) as engine, anyio.create_task_group() as group:
            app.state.engine = engine
            group.start_soon(engine.run_worker)
            yield
            # Running turns are released, here and by the engine, and resumed when the server starts again.
            group.cancel_scope.cancel()

    app = FastAPI(lifespan=lifespan)
    app.include_router(router)
    app.add_exception_handler(TurnwrightError, refused)
    return app


if __name__ == "__main__":
    app = make_app(os.environ.get("TURNWRIGHT_STORE", "sqlite:///turns.db"))
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="warning")
