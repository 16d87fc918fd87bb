"""Requests of A2A to an application, and the task that a stream leads to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from tests.protocols.asgi import Client, Json, Reply

VERSION = {"a2a-version": "1.0"}


def message(*parts: object, task: str = "", context: str = "", **fields: object) -> Json:
    """Return a message of the user, whose parts are texts or parts."""
    content = [{"text": part} if isinstance(part, str) else part for part in parts]
    body = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": content}
    return {**body, "taskId": task, "contextId": context, **fields}


async def call(client: Client, method: str, params: object, **fields: object) -> Reply:
    """Send a call of JSON-RPC."""
    return await client.send(
        "POST", "/", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **fields}, headers=VERSION
    )


async def send(client: Client, *parts: object, task: str = "", context: str = "", **configuration: object) -> Json:
    """Send a message, and return the task."""
    params = {"message": message(*parts, task=task, context=context), "configuration": configuration}
    answer = (await call(client, "SendMessage", params)).json()
    assert "result" in answer, answer
    task_sent: Json = answer["result"]["task"]
    return task_sent


def answer_of(task: Json) -> str:
    """Return the text of a task's artifacts."""
    return "".join(part.get("text", "") for artifact in task.get("artifacts", []) for part in artifact["parts"])


def state_of(task: Json) -> str:
    """Return the state of a task, without its prefix."""
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


@dataclass
class TaskView:
    """A task as a client has it that reads a stream."""

    task: Json = field(default_factory=dict)
    states: list[str] = field(default_factory=list)

    def read(self, events: Sequence[Json]) -> "TaskView":
        """Apply the events of a stream."""
        for event in events:
            if "task" in event:
                self.task = event["task"]
            elif "statusUpdate" in event:
                self.task["status"] = event["statusUpdate"]["status"]
                self.task["metadata"] = event["statusUpdate"]["metadata"]
                self.states.append(state_of(self.task))
            else:
                self._add(event["artifactUpdate"])
        return self

    def _add(self, update: Json) -> None:
        artifact = update["artifact"]
        artifacts = self.task.setdefault("artifacts", [])
        if update.get("append"):
            (before,) = artifacts
            before["parts"] += artifact["parts"]
        else:
            artifacts[:] = [artifact]
