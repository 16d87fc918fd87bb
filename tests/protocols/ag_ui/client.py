"""A client of AG-UI 1.0 for tests: it refuses what the protocol's own client refuses, and keeps the same messages."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ag_ui.core import BaseEvent, Event, RunAgentInput, UserMessage
from pydantic import TypeAdapter

from turnwright_protocols.ag_ui import to_sse

Json = dict[str, Any]

_EVENT: TypeAdapter[BaseEvent] = TypeAdapter(Event)


def asked(*messages: UserMessage, run: str = "r1") -> RunAgentInput:
    """Return a client's run input."""
    return RunAgentInput(thread_id="s1", run_id=run, messages=list(messages))


def heard(events: Iterable[BaseEvent]) -> "Client":
    """Return a client that has received this stream to its end."""
    client = Client()
    client.hear(events)
    client.end()
    return client


class ViolatedError(AssertionError):
    """The stream is none of the protocol's."""


class Client:
    """Holds the conversation. `hear` takes the events of one stream; `attach` begins another, and keeps what it has.

    Source: the rules of "Runs and Steps", "Streaming Messages", "Subagents" and "State" of the specification.
    """

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.events: list[Json] = []
        self.attach()

    def attach(self) -> None:
        """A new stream: nothing is open, whatever was cut off before."""
        #: The last event of each run of this stream.
        self.ends: list[Json] = []
        self._stream = 0
        self._run: str | None = None
        self._failed = self._closed = False
        self._open: set[tuple[str, str]] = set()
        self._owners: dict[tuple[str, str], str | None] = {}
        self._gone: set[str] = set()

    def hear(self, events: Iterable[BaseEvent]) -> None:
        """Take events as they come over the wire. Raises `ViolatedError`."""
        for event in events:
            frame = to_sse(event)
            assert frame.startswith("data: ")
            assert frame.endswith("\n\n")
            line = json.loads(frame.removeprefix("data: "))
            assert all(value is not None for name, value in line.items() if name != "result"), line
            _EVENT.validate_python(line)
            self.events.append(line)
            self._verify(line)
            self._apply(line)

    def end(self) -> None:
        """Check that the stream is over: its last event must be its only end."""
        self._rule(self._closed or self._failed, "the stream ends with its run")

    def types(self) -> list[str]:
        """Return the types of the received events; a custom event is listed by its name."""
        return [event["name"] if event["type"] == "CUSTOM" else event["type"] for event in self.events]

    def custom(self, name: str) -> list[Json]:
        """The values of the custom events of that name."""
        return [event["value"] for event in self.events if event.get("name") == name]

    def text(self, role: str = "assistant") -> list[str]:
        """Return the texts of a role's messages, without empty ones."""
        return [message["content"] for message in self.messages if message["role"] == role and message.get("content")]

    # The rules.

    def _rule(self, holds: bool, rule: str) -> None:
        if not holds:
            raise ViolatedError(f"{rule}: after {json.dumps(self.events[-3:])}")

    def _verify(self, event: Json) -> None:
        kind = event["type"]
        self._stream += 1
        self._rule(kind in ("RUN_STARTED", "RUN_ERROR") or self._stream > 1, "a stream begins with RUN_STARTED")
        self._rule(not self._failed, "nothing follows RUN_ERROR")
        self._rule(not self._closed or kind in ("RUN_STARTED", "RUN_ERROR"), "nothing but a run follows RUN_FINISHED")
        if kind == "RUN_STARTED":
            self._rule(self._run is None, "one run at a time")
            assert event["protocolVersion"] == "1.0"
            self._run, self._closed = event["runId"], False
            self._open, self._owners, self._gone = set(), {}, set()
        elif kind == "RUN_FINISHED":
            self._rule(event["runId"] == self._run, "a run ends with its own id")
            self._rule(not self._open, f"all is closed before the run ends, and not {self._open}")
            self._run, self._closed = None, True
            self.ends.append(event)
        elif kind == "RUN_ERROR":
            self._failed, self._run = True, None
            self.ends.append(event)
        elif kind.startswith("SUBAGENT_"):
            self._verify_subagent(event)
        else:
            self._verify_pairs(event)

    def _verify_subagent(self, event: Json) -> None:
        name, parent = event["subagentRunId"], event.get("parentSubagentRunId")
        if event["type"] == "SUBAGENT_STARTED":
            self._rule(name not in self._gone, "an invocation begins once in a run")
            self._rule(parent is None or ("subagent", parent) in self._open, "its parent is there")
            self._begin("subagent", name, event)
        else:
            self._finish("subagent", name, event)
            self._gone.add(name)

    def _verify_pairs(self, event: Json) -> None:
        pairs = {
            "TEXT_MESSAGE": ("text", "messageId"),
            "TOOL_CALL": ("call", "toolCallId"),
            "REASONING_MESSAGE": ("reasoning", "messageId"),
            "REASONING": ("span", "messageId"),
        }
        kind, owner = event["type"], event.get("subagentRunId")
        if kind in ("STEP_STARTED", "STEP_FINISHED"):
            step = f"{owner or ''} {event['stepName']}"
            (self._begin if kind == "STEP_STARTED" else self._finish)("step", step, event)
            return
        prefix, _, move = kind.rpartition("_")
        if prefix not in pairs or move not in ("START", "CONTENT", "ARGS", "END"):
            return
        entity, field = pairs[prefix]
        if move == "START":
            self._begin(entity, event[field], event)
        elif move == "END":
            self._finish(entity, event[field], event)
        else:
            self._rule((entity, event[field]) in self._open, f"{kind} continues what is open")
            self._rule(bool(event["delta"]), "a delta says something")
            self._rule(self._owners[entity, event[field]] == owner, "what continues is its owner's")

    def _begin(self, entity: str, name: str, event: Json) -> None:
        self._rule((entity, name) not in self._open, f"{entity} {name} is open already")
        owner = event.get("subagentRunId")
        self._rule(self._owners.setdefault((entity, name), owner) == owner, f"{entity} {name} is somebody else's")
        self._open.add((entity, name))

    def _finish(self, entity: str, name: str, event: Json) -> None:
        self._rule((entity, name) in self._open, f"{entity} {name} is not open")
        self._rule(self._owners[entity, name] == event.get("subagentRunId"), f"{entity} {name} is somebody else's")
        self._open.discard((entity, name))

    # The messages.

    def _apply(self, event: Json) -> None:
        match event["type"]:
            case "MESSAGES_SNAPSHOT":
                self._reconcile(event["messages"])
            case "TEXT_MESSAGE_START":
                self._message(event["messageId"], event["role"], event)
            case "REASONING_MESSAGE_START":
                self._message(event["messageId"], "reasoning", event)
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                message = self._find(event["messageId"])
                message["content"] = (message.get("content") or "") + event["delta"]
            case "TOOL_CALL_START":
                parent = self._message(event["parentMessageId"], "assistant", event)
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                assert call["id"] not in {earlier["id"] for earlier in self._calls()}, "a call is sent once"
                parent.setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                call = next(candidate for candidate in self._calls() if candidate["id"] == event["toolCallId"])
                call["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                fields = ("toolCallId", "content", "metadata", "subagentRunId")
                message = {"id": event["messageId"], "role": "tool"}
                self.messages.append(message | {name: event[name] for name in fields if name in event})
            case "ACTIVITY_SNAPSHOT":
                message = self._message(event["messageId"], "activity", event)
                message |= {"activityType": event["activityType"], "content": event["content"]}
            case _:
                pass

    def _calls(self) -> list[Json]:
        return [call for message in self.messages for call in message.get("toolCalls", ())]

    def _find(self, name: str) -> Json:
        return next(message for message in self.messages if message["id"] == name)

    def _message(self, name: str, role: str, event: Json) -> Json:
        for message in self.messages:
            if message["id"] == name:
                return message
        owner = {"subagentRunId": event["subagentRunId"]} if "subagentRunId" in event else {}
        self.messages.append({"id": name, "role": role, **owner})
        return self.messages[-1]

    def _reconcile(self, snapshot: list[Json]) -> None:
        new_messages = {message["id"]: message for message in snapshot}
        assert len(new_messages) == len(snapshot), "an id belongs to one message"
        roles = {message["role"] for message in snapshot}
        # What agents do not keep stays, unless the snapshot has some of it.
        spared = {"activity", "reasoning"} - roles
        kept_messages = [
            new_messages.pop(m["id"], m) for m in self.messages if m["id"] in new_messages or m["role"] in spared
        ]
        self.messages = json.loads(json.dumps([*kept_messages, *new_messages.values()]))


def comparable(messages: Iterable[Mapping[str, Any]]) -> tuple[list[str], dict[str, Json]]:
    """Messages as far as two clients must agree: the order of those that are not results, and what each one says.

    Arguments that are not a JSON object count as none, as in a transcript; reasoning that was void is empty.
    """
    by_id: dict[str, Json] = {}
    for message in messages:
        fields = {name: value for name, value in message.items() if value not in (None, [], "")}
        if fields["role"] == "activity" or (fields["role"] == "reasoning" and "content" not in fields):
            continue
        for call in fields.get("toolCalls", ()):
            call["function"]["arguments"] = _object(call["function"]["arguments"])
        by_id[fields["id"]] = fields
    order = [name for name, fields in by_id.items() if fields["role"] not in ("tool", "reasoning")]
    return order, by_id


def _object(arguments: str) -> object:
    try:
        read = json.loads(arguments)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
