r"""Turns of a fleet behind HTTP: begun, followed, answered and stopped here, and driven by workers elsewhere.

    curl localhost:8000/turns -H 'content-type: application/json' -d '{"prompt": "Count three shelves"}'
    curl -N localhost:8000/turns/TURN/events -H 'last-event-id: 3'
    curl localhost:8000/turns/TURN/answers -H 'content-type: application/json' -d '{"answers": {"approval-1": "yes"}}'

This process has no turns. Any number of it may serve, and be stopped, while turns go on; the README beside it says how
to start it and its workers. Settings: FLEET_STORE, the address of the PostgreSQL database; FLEET_TEMPORAL, HOST:PORT of
the Temporal server (without it, workers find the turns in the store); FLEET_MODEL, FLEET_HOST and FLEET_PORT.
"""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, JsonValue

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    InvalidAnswerError,
    RuntimeUnavailableError,
    SessionBusyError,
    StoreError,
    TurnAlreadyEndedError,
    TurnBusyError,
    TurnNotFoundError,
    TurnwrightError,
)
from turnwright.model import ScriptedModel
from turnwright.runtime import Local, Runtime, Temporal
from turnwright.store.postgres.store import PostgresStore
from turnwright.tools import load_tools

AGENT = Agent(name="Storekeeper", instructions="You keep a store room stocked.", steps=20)

_LOG = logging.getLogger(__name__)
#: From here on, a status says that the server is to blame.
_OURS = 500
#: The HTTP status of each error of ours, the first that fits. Any other error is the server's own fault.
STATUS: dict[type[TurnwrightError], int] = {
    TurnNotFoundError: 404,
    SessionBusyError: 409,
    TurnBusyError: 409,
    TurnAlreadyEndedError: 409,
    InvalidAnswerError: 422,
    ConfigError: 422,
    RuntimeUnavailableError: 503,
    StoreError: 503,
}


class NewTurn(BaseModel):
    """The body of a request that starts a turn."""

    prompt: str
    session: str | None = None


class Answers(BaseModel):
    """The body of a request that answers the open interrupts of a turn."""

    answers: dict[str, str]


class Message(BaseModel):
    """The body of a request with a message to a running turn."""

    text: str


class Begun(BaseModel):
    """A turn that was begun."""

    id: str


class Standing(BaseModel):
    """The state of a turn. A paused one has open `interrupts`; an ended one has `outcome` and `reason`."""

    id: str
    state: str
    outcome: str | None
    reason: str | None
    text: str
    steps: int
    interrupts: list[dict[str, JsonValue]]


def engine_of(request: Request) -> Engine:
    """The engine of this process."""
    engine: Engine = request.app.state.engine
    return engine


Ours = Annotated[Engine, Depends(engine_of)]

router = APIRouter()


@router.post("/turns", status_code=202)
async def begin(engine: Ours, new: NewTurn) -> Begun:
    """Begin a turn. A worker drives it."""
    try:
        return Begun(id=await engine.submit(AGENT, new.prompt, session=new.session))
    except RuntimeUnavailableError as error:
        if error.turn is None:
            raise
        # It is written down, and is driven when a worker finds it: begun again it would be there twice.
        return Begun(id=error.turn)


@router.get("/turns/{turn}")
async def stands(engine: Ours, turn: str) -> Standing:
    """Return the state of a turn."""
    now = await engine.get(turn)
    return Standing(
        id=now.id,
        state=now.state,
        outcome=now.outcome,
        reason=now.reason,
        text=now.text,
        steps=now.steps,
        interrupts=[interrupt.to_json() for interrupt in now.interrupts],
    )


async def known(engine: Ours, turn: str) -> str:
    """Check that the turn exists, before the first byte of an answer."""
    await engine.store.get(turn)
    return turn


@router.get("/turns/{turn}/events", response_class=EventSourceResponse)
async def follow(
    engine: Ours, turn: Annotated[str, Depends(known)], after: int = 0, last_event_id: Annotated[int, Header()] = 0
) -> AsyncIterator[ServerSentEvent]:
    """A turn's events until it ends or pauses, from where the client was. It closes its `EventSource` then."""
    async for event in engine.events(turn, after=max(after, last_event_id), wait=True):
        yield ServerSentEvent(event=event.type, id=str(event.seq), data=event.public())


@router.post("/turns/{turn}/answers", status_code=202)
async def answer(engine: Ours, turn: str, reply: Answers) -> None:
    """Answer a paused turn. A worker drives it on."""
    await engine.answer(turn, reply.answers)


@router.post("/turns/{turn}/messages", status_code=202)
async def steer(engine: Ours, turn: str, message: Message) -> None:
    """Send a message to a running turn."""
    await engine.steer(turn, message.text)


@router.delete("/turns/{turn}", status_code=204)
async def abort(engine: Ours, turn: str) -> None:
    """Stop a turn."""
    await engine.abort(turn)


async def refused(_: Request, error: Exception) -> JSONResponse:
    """Answer with the error of a request. The server's own faults go to its log alone."""
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    if status < _OURS:
        return JSONResponse({"detail": str(error)}, status)
    _LOG.error("a request failed", exc_info=error)
    return JSONResponse({"detail": "the server cannot do this now"}, status)


def make_app(store: str, temporal: str | None, model: str) -> FastAPI:
    """The application. `store` and `temporal` are addresses; `model` is the name of the workers' model."""
    runtime: Runtime = Local() if temporal is None else Temporal(temporal)
    engine = Engine(
        # Workers have the models, and their keys. Here the name is written down, and nothing is ever asked.
        model=ScriptedModel(name=model),
        tools=load_tools(str(Path(__file__).with_name("tools.py"))),
        # Clients are notified of the workers' facts, and of requests to this process.
        store=PostgresStore(store, notify=True),
        runtime=runtime,
        # So they poll only in case a worker does not notify.
        poll_interval=5.0,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engine:
            app.state.engine = engine
            yield

    app = FastAPI(lifespan=lifespan)
    app.include_router(router)
    app.add_exception_handler(TurnwrightError, refused)
    return app


if __name__ == "__main__":
    setting = os.environ.get
    app = make_app(
        setting("FLEET_STORE", "postgresql://localhost/fleet"),
        setting("FLEET_TEMPORAL") or None,
        setting("FLEET_MODEL", "gpt-5-mini"),
    )
    uvicorn.run(
        app,
        host=setting("FLEET_HOST", "127.0.0.1"),
        port=int(setting("FLEET_PORT", "8000")),
        log_level="warning",
        # Clients of a turn reconnect to another process.
        timeout_graceful_shutdown=2,
    )
