"""A page with the AI SDK's chat: it refuses the chunks that the SDK refuses, and builds the same message."""

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
_STATES = {
    "tool-input-available": "input-available",
    "tool-input-error": "output-error",
    "tool-output-available": "output-available",
    "tool-output-error": "output-error",
    "tool-output-denied": "output-denied",
}


class ChatPage:
    """The messages of a chat. Source: `processUIMessageStream` of the package `ai`, versions 6 and 7."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.transient: list[Json] = []
        self.error = ""
        self.finish: Json = {}
        #: The calls for which the SDK called `onToolCall`.
        self.to_run: list[Json] = []
        self._texts: dict[str, Json] = {}

    @property
    def last(self) -> Json:
        return self.messages[-1]

    @property
    def text(self) -> str:
        return "".join(part["text"] for part in self.last["parts"] if part["type"] == "text")

    @property
    def calls(self) -> list[Json]:
        return [part for part in self.last["parts"] if "toolCallId" in part]

    def say(self, text: str, **parts: object) -> Json:
        """Add a message of the user, and return it."""
        message = {"id": f"m{len(self.messages)}", "role": "user", "parts": [{"type": "text", "text": text}], **parts}
        self.messages.append(message)
        return message

    def respond(self, approved: bool, *, number: int = 0, reason: str | None = None) -> Json:
        """Answer an approval of the last message, as `addToolApprovalResponse` does, and return the message."""
        part = [part for part in self.calls if part["state"] == "approval-requested"][number]
        part["state"] = "approval-responded"
        part["approval"] |= {"approved": approved} | ({} if reason is None else {"reason": reason})
        return self.last

    def give_output(self, call: Json, output: object = None, *, error: str = "") -> None:
        """Give the output of a call of the page, or the error with which it failed, as `addToolOutput` does."""
        fields: Json = {"state": "output-error", "errorText": error}
        call |= fields if error else {"state": "output-available", "output": output}

    def read(self, chunks: Iterable[Json], *, resumes: bool = False) -> "ChatPage":
        """Read a stream. With `resumes`, it replays the last message."""
        self._texts = {}
        if not self.messages or self.last["role"] != "assistant":
            self.messages.append({"id": "?", "role": "assistant", "parts": []})
        for number, chunk in enumerate(chunks):
            assert (chunk["type"] == "start") == (number == 0), "a stream begins with its only start"
            assert not self.finish or number == 0, f"nothing follows the end of a stream: {chunk}"
            if number == 0:
                self.error, self.finish = "", {}
                if resumes:
                    self.last["parts"] = []
                self.last["id"] = chunk["messageId"]
            if "messageMetadata" in chunk:
                self.last["metadata"] = chunk["messageMetadata"]
            self._read(chunk["type"], chunk)
        assert self.finish or self.error, "a stream has an end"
        return self

    def _read(self, kind: str, chunk: Json) -> None:  # noqa: C901, PLR0912 (one case a chunk)
        parts = self.last["parts"]
        match kind:
            case "start-step":
                parts.append({"type": "step-start"})
            case "finish-step":
                assert not self._texts, "no text is open when a step ends"
            case "reset-step":
                while parts and parts[-1]["type"] != "step-start":
                    parts.pop()
            case "text-start" | "reasoning-start":
                assert chunk["id"] not in self._texts
                part = self._texts[chunk["id"]] = {"type": kind.removesuffix("-start"), "text": ""}
                parts.append(part)
            case "text-delta" | "reasoning-delta":
                assert chunk["delta"]
                self._texts[chunk["id"]]["text"] += chunk["delta"]
            case "text-end" | "reasoning-end":
                del self._texts[chunk["id"]]
            case "tool-input-start":
                self._announce(chunk, {"state": "input-streaming", "raw": ""})
            case "tool-input-delta":
                self._call(chunk["toolCallId"])["raw"] += chunk["inputTextDelta"]
            case "tool-input-available" | "tool-input-error":
                self._announce(chunk, {"state": _STATES[kind], "input": chunk["input"]})
            case "tool-approval-request":
                call = self._call(chunk["toolCallId"])
                call |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
            case "tool-output-available" | "tool-output-error" | "tool-output-denied":
                call = self._call(chunk["toolCallId"])
                call["state"] = _STATES[kind]
                call |= {name: chunk[name] for name in ("output", "errorText") if name in chunk}
            case "finish" | "abort":
                self.finish = chunk
            case "error":
                self.error = chunk["errorText"]
            case "start" | "message-metadata":
                pass
            case _:
                assert kind.startswith("data-"), kind
                (self.transient if chunk.get("transient") else parts).append(chunk)

    def _announce(self, chunk: Json, fields: Json) -> None:
        executed = {"providerExecuted": True} if chunk.get("providerExecuted") else {}
        for part in reversed(self.last["parts"]):
            if part.get("toolCallId") == chunk["toolCallId"]:
                assert part["type"] == ("dynamic-tool" if chunk.get("dynamic") else f"tool-{chunk['toolName']}")
                part |= {"toolName": chunk["toolName"], **fields, **executed}
                break
        else:
            self._append(chunk, fields | executed)
        if chunk["type"] == "tool-input-available" and not executed:
            self.to_run.append(self._call(chunk["toolCallId"]))

    def _append(self, chunk: Json, fields: Json) -> None:
        kind = "dynamic-tool" if chunk.get("dynamic") else f"tool-{chunk['toolName']}"
        call = {"type": kind, "toolCallId": chunk["toolCallId"], "toolName": chunk["toolName"]}
        self.last["parts"].append(call | fields)

    def _call(self, identifier: str) -> Json:
        calls: list[Json] = [part for part in self.last["parts"] if part.get("toolCallId") == identifier]
        assert calls, f'No tool invocation found for tool call ID "{identifier}".'
        return calls[-1]
