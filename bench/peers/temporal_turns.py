"""Temporal: a workflow whose model calls and tool calls are activities, on its server for development.

python -m bench.peers.temporal_turns
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, ClassVar, Final

from bench.measure import main
from bench.peers.history import check
from bench.servers import Server, running
from bench.yardstick import PROMPT, Script, Subject, look
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

QUEUE: Final = "turns"
LONGEST: Final = timedelta(seconds=60)

Message = dict[str, Any]


class Running:
    """The script of the turn that runs, and the results that its model has been sent."""

    script: ClassVar[Script]


@activity.defn
async def ask_model(messages: list[Message]) -> Message:
    """The fake model."""
    move = await Running.script.reply()
    if not move.calls:
        check(Running.script, sum(message["role"] == "tool" for message in messages))
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in move.calls]
    return {"role": "assistant", "content": move.text, "tool_calls": calls}


@activity.defn
async def call_tool(call: Message) -> Message:
    """One call."""
    return {"role": "tool", "tool_call_id": call["id"], "content": await look(**json.loads(call["arguments"]))}


@workflow.defn
class Loop:
    """A turn."""

    @workflow.run
    async def run(self, prompt: str) -> str:
        """Each call of the model has all messages as its input."""
        messages: list[Message] = [{"role": "user", "content": prompt}]
        while True:
            reply = await workflow.execute_activity(ask_model, messages, start_to_close_timeout=LONGEST)
            messages.append(reply)
            if not reply["tool_calls"]:
                return str(reply["content"])
            calls = reply["tool_calls"]
            messages += await asyncio.gather(
                *(workflow.execute_activity(call_tool, call, start_to_close_timeout=LONGEST) for call in calls)
            )


class Temporal(Subject):
    """The workflow, with a worker in this process."""

    name = "Temporal, development server"
    packages = ("temporalio",)
    durable = True
    store_kind = "Temporal"
    is_slow = True
    notes: ClassVar[tuple[str, ...]] = (
        "Each model call and each tool call is an activity; the server keeps its input, which is the whole history.",
        "The workflow runs without Temporal's sandbox, which is the leaner way. The server stores in SQLite.",
    )
    _server: Server

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """A server and a worker."""
        self._numbers = itertools.count()
        with running("temporal") as self._server:
            self._client = await Client.connect(self._server.address)
            async with Worker(
                self._client,
                task_queue=QUEUE,
                workflows=[Loop],
                activities=[ask_model, call_tool],
                workflow_runner=UnsandboxedWorkflowRunner(),
            ):
                yield

    def server_cpu(self) -> float:
        """The CPU of the server."""
        return self._server.cpu()

    async def turn(self, script: Script) -> str:
        """One turn."""
        Running.script = script
        return await self._client.execute_workflow(Loop.run, PROMPT, id=f"turn-{next(self._numbers)}", task_queue=QUEUE)


if __name__ == "__main__":
    main(Temporal())
