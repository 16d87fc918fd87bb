"""Tools that the editor runs: its files, with changes that are not saved, and its terminals.

They are tools of the turn's client: a call waits, and the door settles it with the editor's answer.
"""

import json
import ntpath
import posixpath
from collections.abc import Collection, Mapping, MutableMapping
from typing import Final, Literal

import anyio
from acp import RequestError, schema
from acp.interfaces import Client
from pydantic import JsonValue

from turnwright import ExternalTool, external_tool
from turnwright._base.words import cut_clean
from turnwright.journal.answers import Answer, settled
from turnwright.tools.result import ToolResult, cap
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.items import clean
from turnwright_states import InterruptKind

READ_FILE, WRITE_FILE, RUN_COMMAND = "editor_read_file", "editor_write_file", "editor_run_command"
#: The icons of these tools in editors.
KINDS: Final[Mapping[str, Literal["read", "edit", "execute"]]] = {
    READ_FILE: "read",
    WRITE_FILE: "edit",
    RUN_COMMAND: "execute",
}
#: The fields of a result's data that is shown as a diff.
DIFF_FIELDS: Final = frozenset({"path", "old_text", "new_text"})
#: The most bytes of a diff in an update, as JSON: some clients read lines of at most 64 KiB.
_LARGEST_DIFF: Final = 32 * 1024
#: The most bytes of a file, below the limit of a result.
_MOST_TEXT: Final = 60 * 1024
#: The most bytes of a command's output, and the seconds to end a command after a cancellation.
_MOST_OUTPUT: Final = 48 * 1024
_TO_END: Final = 2.0
#: Characters of an editor's message in an error.
_SHOWN: Final = 200

_IN_FOLDER: Final = "an absolute path, or one relative to the folder of the session; files outside of it are refused"
_PATH: Final[JsonValue] = {"type": "string", "description": f"The file: {_IN_FOLDER}."}
_LINE: Final[JsonValue] = {"type": "integer", "minimum": 1}


class _RefusedError(Exception):
    """A call that is not sent to the editor. The message is for the model."""


def offer_tools(
    capabilities: schema.ClientCapabilities | None, taken_names: Collection[str]
) -> tuple[ExternalTool, ...]:
    """Return the tools that a client can run. A name that the engine has is left out."""
    files = None if capabilities is None else capabilities.fs
    tools: list[ExternalTool] = []
    if files is not None and files.read_text_file:
        tools.append(
            external_tool(
                name=READ_FILE,
                description="Read a text file as the person's editor has it, with changes that are not saved.",
                parameters=_object(["path"], path=_PATH, line=_LINE, limit=_LINE),
                read_only=True,
            )
        )
    if files is not None and files.write_text_file:
        tools.append(
            external_tool(
                name=WRITE_FILE,
                description="Write a whole text file in the person's editor, or make a new one.",
                parameters=_object(["path", "content"], path=_PATH, content={"type": "string"}),
                needs_approval=True,
            )
        )
    if capabilities is not None and capabilities.terminal:
        folder: JsonValue = {"type": "string", "description": f"Where it runs: {_IN_FOLDER}."}
        arguments: JsonValue = {"type": "array", "items": {"type": "string"}}
        tools.append(
            external_tool(
                name=RUN_COMMAND,
                description="Run a command in a terminal of the person's editor, and return its output at its end.",
                parameters=_object(["command"], command={"type": "string"}, args=arguments, cwd=folder),
                needs_approval=True,
            )
        )
    return tuple(tool for tool in tools if tool.name not in taken_names)


def is_editor_call(interrupt: Interrupt) -> bool:
    """Return whether an open interrupt is a call that the editor runs."""
    return interrupt.kind is InterruptKind.RESULT and interrupt.tool in KINDS and ":" not in interrupt.call


class EditorCalls:
    """Runs the calls of one session at its client. `terminals` gets the terminal of each call, by the call's id."""

    def __init__(
        self, client: Client, session: str, cwd: str, terminals: MutableMapping[str, schema.TerminalToolCallContent]
    ) -> None:
        self._client = client
        self._session = session
        self._cwd = cwd
        self._terminals = terminals

    async def run(self, interrupt: Interrupt, call: str, *, again: bool) -> Answer:
        """Run a call, and return its result as the answer.

        With `again`, an earlier process may have run it already: a command does not run twice, and its outcome is
        unknown.
        """
        arguments = interrupt.arguments or {}
        try:
            if interrupt.tool == READ_FILE:
                return settled(await self._read(arguments))
            if interrupt.tool == WRITE_FILE:
                return settled(await self._write(arguments))
            if again:
                return settled(error="the agent ended while the command ran: its outcome is unknown")
            return settled(await self._run_command(arguments, call))
        except _RefusedError as refusal:
            return settled(error=str(refusal))
        except RequestError as error:
            return settled(error=f"the editor refused: {clean(cut_clean(str(error), _SHOWN))}")

    async def preview(self, interrupt: Interrupt) -> list[schema.FileEditToolCallContent]:
        """Return the diff of a call that asks for approval; empty for other calls, and for a diff that is too large."""
        if interrupt.tool != WRITE_FILE or interrupt.arguments is None:
            return []
        try:
            path = self._resolve(interrupt.arguments.get("path"))
        except _RefusedError:
            return []
        diff = read_diff(await self._compare(path, interrupt.arguments.get("content")))
        return [] if diff is None else [diff]

    async def _read(self, arguments: Mapping[str, JsonValue]) -> ToolResult:
        path, line, limit = self._resolve(arguments.get("path")), arguments.get("line"), arguments.get("limit")
        response = await self._client.read_text_file(
            session_id=self._session,
            path=path,
            line=line if isinstance(line, int) else None,
            limit=limit if isinstance(limit, int) else None,
        )
        return ToolResult(cap(clean(response.content), _MOST_TEXT))

    async def _write(self, arguments: Mapping[str, JsonValue]) -> ToolResult:
        path, content = self._resolve(arguments.get("path")), arguments.get("content")
        if not isinstance(content, str):
            raise _RefusedError("content: must be a text")
        diff = await self._compare(path, content)
        await self._client.write_text_file(session_id=self._session, path=path, content=content)
        return ToolResult(f"wrote {len(content):,} characters to {path}", None if read_diff(diff) is None else diff)

    async def _compare(self, path: str, content: JsonValue) -> dict[str, JsonValue]:
        """Return the data of a diff between the editor's file and its new content."""
        try:
            old_text = clean((await self._client.read_text_file(session_id=self._session, path=path)).content)
        except RequestError:  # there is no such file, or the editor reads none
            old_text = None
        return {"path": path, "old_text": old_text, "new_text": content}

    async def _run_command(self, arguments: Mapping[str, JsonValue], call: str) -> ToolResult:
        command, words = arguments.get("command"), arguments.get("args") or []
        if not isinstance(command, str) or not isinstance(words, list) or not command.strip():
            raise _RefusedError("command: must be a text, and args a list of texts")
        folder = self._resolve(arguments.get("cwd") or self._cwd)
        handle = await self._client.create_terminal(
            session_id=self._session,
            command=command,
            args=[str(word) for word in words],
            cwd=folder,
            output_byte_limit=_MOST_OUTPUT,
        )
        terminal = {"session_id": self._session, "terminal_id": handle.terminal_id}
        self._terminals[call] = schema.TerminalToolCallContent(type="terminal", terminal_id=handle.terminal_id)
        is_over = False
        try:
            await self._client.session_update(self._session, self._show_terminal(call))
            status = await self._client.wait_for_terminal_exit(**terminal)
            output = await self._client.terminal_output(**terminal)
            is_over = True
        finally:
            with anyio.move_on_after(_TO_END, shield=True):
                if not is_over:
                    await self._client.kill_terminal(**terminal)
                await self._client.release_terminal(**terminal)
        ending = f"exit code {status.exit_code}" if status.signal is None else f"ended by signal {clean(status.signal)}"
        notice = "[the beginning of the output is cut]\n" if output.truncated else ""
        return ToolResult(cap(f"{ending}\n{notice}{clean(output.output)}", _MOST_TEXT))

    def _show_terminal(self, call: str) -> schema.ToolCallProgress:
        return schema.ToolCallProgress(
            tool_call_id=call,
            status="in_progress",
            content=[self._terminals[call]],
            session_update="tool_call_update",
        )

    def _resolve(self, path: JsonValue) -> str:
        """Return an absolute path in the session's folder. Raises `_RefusedError` for another one."""
        paths = posixpath if self._cwd.startswith("/") else ntpath
        if not isinstance(path, str) or not path.strip() or "\0" in path or clean(path) != path:
            raise _RefusedError("path: must be the path of a file")
        root: str = paths.normpath(self._cwd)
        full_path: str = paths.normpath(paths.join(self._cwd, path))
        try:
            is_inside = paths.normcase(paths.commonpath([root, full_path])) == paths.normcase(root)
        except ValueError:  # another drive
            is_inside = False
        if not is_inside:
            raise _RefusedError(f"path: {full_path} is outside of the session's folder {root}")
        return full_path


def read_diff(data: object) -> schema.FileEditToolCallContent | None:
    """Return the data of a result as a diff, if it is one that fits into a line."""
    if not isinstance(data, Mapping) or data.keys() != DIFF_FIELDS:
        return None
    path, old_text, new_text = data["path"], data["old_text"], data["new_text"]
    if not isinstance(path, str) or not isinstance(old_text, str | None) or not isinstance(new_text, str):
        return None
    if len(json.dumps([path, old_text, new_text])) > _LARGEST_DIFF:
        return None
    return schema.FileEditToolCallContent(
        type="diff", path=clean(path), old_text=None if old_text is None else clean(old_text), new_text=clean(new_text)
    )


def _object(required_names: list[str], **properties: JsonValue) -> dict[str, JsonValue]:
    return {"type": "object", "properties": properties, "required": [*required_names], "additionalProperties": False}
