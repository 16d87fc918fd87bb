"""The records of Codex's sessions: their types, and what a run has of them."""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnwright_audit.trajectories.atif import ResultStatus, StepMetrics
from turnwright_audit.trajectories.shapes import BROKEN, json_text

from .chat_messages import Content, text_of

_DENIED: Final = re.compile(r"(?:[\w ]{0,40} )?(?:rejected|denied) by (?:the )?user")
_CANCELED: Final = re.compile(r"aborted(?: by user)?\b")
_EXIT: Final = re.compile(r"(?:Exit code:|Process exited with code) (-?\d+)")
#: How the texts begin that Codex gives the model when a tool could not run. These have no exit code.
_FAILED: Final = re.compile(
    r"apply_patch (?:verification|handler) failed|failed to parse |failed in sandbox|execution error: "
    r"|unsupported call: |(?:exec_command|write_stdin) failed|tool call (?:error|failed)"
)
_HEAD: Final = 400


class Usage(Struct):
    """The tokens of a request, or of all requests so far. The input includes what was cached."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def metrics(self) -> StepMetrics:
        """The tokens as those of a step."""
        return StepMetrics(self.input_tokens, self.output_tokens, self.cached_input_tokens)

    def includes(self, before: "Usage") -> bool:
        """Whether these tokens may be those of all requests since the others were counted, and of those before."""
        return all((getattr(self, name) or 0) >= (getattr(before, name) or 0) for name in self.__struct_fields__)

    def since(self, before: "Usage | None") -> "Usage":
        """Return what was used since these tokens had been used."""
        before = before or Usage()
        names = self.__struct_fields__
        return Usage(*(max((getattr(self, name) or 0) - (getattr(before, name) or 0), 0) for name in names))


class Info(Struct):
    """The tokens in an event. It is repeated when the next request starts."""

    total_token_usage: Usage | None = None
    last_token_usage: Usage | None = None


class Item(Struct):
    """An item of a conversation, or the content of any other record."""

    type: str = ""
    id: str | None = None
    timestamp: str | None = None
    cli_version: str | None = None
    model: str | None = None
    role: str | None = None
    content: Content = None
    summary: Content = None
    name: str | None = None
    arguments: Any = None
    input: Any = None
    call_id: str | None = None
    status: str | None = None
    action: Any = None
    output: Any = None
    result: Any = None
    execution: str | None = None
    tools: Any = None
    message: Any = None
    kind: str | None = None
    info: Info | None = None


class Line(Item):
    """A record with a payload, or a bare item, or the header before it."""

    payload: Item | None = None
    record_type: str | None = None


class Document(Struct):
    """A session in one document."""

    session: Item | None = None
    items: list[Item] | None = None


class _Metadata(Struct):
    """The end of a command."""

    exit_code: int


class _ShellOutput(Struct):
    """The output of a command in older versions, which is JSON in a text."""

    output: str
    metadata: _Metadata


_SHELL: Final = msgspec.json.Decoder(_ShellOutput)


def output_of(output: Any) -> tuple[str, bool | None]:  # noqa: ANN401
    """Return the text of an output, and whether it says that the call failed."""
    has_failed = None
    if isinstance(output, str):
        inner = _shell_output(output)
        if inner is not None:
            return inner
        match = _EXIT.search(output, 0, _HEAD)
        return output, None if match is None else match[1] != "0"
    if isinstance(output, dict):
        success = output.get("success")
        has_failed = not success if isinstance(success, bool) else None
        output = output.get("content", output)
    return text_of(output) if isinstance(output, list) and output else json_text(output), has_failed


def _shell_output(output: str) -> tuple[str, bool | None] | None:
    """Return the output that older versions wrote as JSON, with the exit code beside it."""
    if not output.startswith('{"output"'):
        return None
    try:
        shell_output = _SHELL.decode(output)
    except BROKEN:
        return None
    return shell_output.output, shell_output.metadata.exit_code != 0


def status_of(text: str, *, failed: bool | None) -> ResultStatus:
    """Return how a call ended, by the text of its output."""
    head = text[:_HEAD]
    if _DENIED.match(head):
        return "denied"
    if _CANCELED.match(head):
        return "canceled"
    return "error" if failed or (failed is None and _FAILED.match(head)) else "ok"
