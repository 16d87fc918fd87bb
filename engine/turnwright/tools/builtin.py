"""The built-in tools of the command line: they read the workspace and ask the user."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue

from turnwright._base.words import collapse_whitespace, cut_clean, escape_unprintable
from turnwright_states import Decision, InterruptKind

from .context import Ask, ToolContext
from .errors import ToolFailedError, ToolInputError
from .files import listing, portion
from .function_tool import F_co, FunctionTool, tool
from .search import search
from .tool import Tool
from .workspace import Workspace

_SECONDS = 30.0
_REASON_LIMIT = 300

PathInside = Annotated[str, Field(description="A path in the project's folder, or a path with granted read access.")]


def builtin_tools(root: Path) -> list[Tool]:
    """Make the built-in tools: `list_files`, `read_file`, `search_files`, `ask_user_input`, `request_read_access`.

    They only read, and only below the folder `root` and below paths that a person grants during the turn. All of them
    may run again after a crash. Raises `ConfigError` if `root` is not a folder.
    """
    workspace = Workspace(root)

    @tool(read_only=True, timeout=_SECONDS)
    def list_files(context: ToolContext, path: PathInside = ".", *, recursive: bool = False) -> str:
        """List the files and folders in a folder of the project, at most 500 of them.

        Args:
            recursive: Whether to list the folders below as well.
        """
        return listing(workspace.place(path, context.grants), recursive=recursive)

    @tool(read_only=True, timeout=_SECONDS)
    def read_file(
        context: ToolContext,
        path: PathInside,
        offset: Annotated[int, Field(ge=1)] = 1,
        limit: Annotated[int, Field(ge=1)] | None = None,
    ) -> str:
        """Read a text file of the project. A long file is cut, with a notice that names the next `offset`.

        Args:
            offset: The number of the first line to read, counted from 1.
            limit: The maximum number of lines to read.
        """
        return portion(workspace.place(path, context.grants), offset=offset, limit=limit)

    @tool(read_only=True, timeout=_SECONDS)
    def search_files(
        context: ToolContext,
        pattern: Annotated[str, Field(min_length=1, max_length=1000)],
        path: PathInside = ".",
        glob: Annotated[str, Field(min_length=1, max_length=200)] | None = None,
        *,
        regex: bool = False,
    ) -> str:
        """Find the lines that contain a text, in one file or in all files below a folder. Case-sensitive.

        Args:
            pattern: The text to find; with `regex`, a regular expression.
            glob: Search only files whose name or path matches, for example `*.py` or `src/**/*.md`.
            regex: Whether `pattern` is a Python regular expression.
        """
        return search(workspace.place(path, context.grants), pattern, glob=glob, regex=regex)

    def ask_user_input(
        context: ToolContext, question: Annotated[str, Field(min_length=1)], choices: list[str] | None = None
    ) -> str:
        """Ask the user a question, and wait for the answer. Ask only what you cannot find out yourself.

        Args:
            question: The complete question.
            choices: Answers to choose from, if there are only a few.
        """
        del question, choices  # the person has seen them
        reply = next((answer for answer in reversed(context.answers) if answer.decision == Decision.REPLY), None)
        if reply is None:
            raise ToolFailedError("the user was not asked")
        return reply.text or "(the user gave an empty answer)"

    def request_read_access(context: ToolContext, path: str, reason: str = "") -> str:
        """Ask the user for permission to read a file or folder outside the project, until the turn ends.

        Args:
            path: The file or the folder.
            reason: Why you need it. The user reads this.
        """
        del reason  # the person has seen it
        real = workspace.resolve(path)
        shown_path = escape_unprintable(str(real))
        if not workspace.allows(real, context.grants):
            raise ToolFailedError(
                f"access to {shown_path} was not granted; the path may have changed since the question"
            )
        if _has(context, Decision.APPROVE):
            return f"Access granted: you may read {shown_path} now."
        return f"You may already read {shown_path}."

    for reader in (list_files, read_file, search_files):
        reader.asks_with_context = False
    return [
        list_files,
        read_file,
        search_files,
        _QuestionTool(ask_user_input, read_only=True),
        _ReadAccessTool(workspace, request_read_access),
    ]


class _QuestionTool(FunctionTool[F_co]):
    def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        values = self.plain(arguments)
        if _has(context, Decision.REPLY):
            return None
        choices = values["choices"]
        return Ask(
            kind=InterruptKind.QUESTION,
            question=str(values["question"]),
            choices=tuple(str(choice) for choice in choices) if isinstance(choices, list) else (),
        )


class _ReadAccessTool(FunctionTool[F_co]):
    """Asks for permission to read a path. The person sees and grants the path with all links resolved."""

    def __init__(self, workspace: Workspace, function: F_co) -> None:
        super().__init__(function, read_only=True)
        self._workspace = workspace

    def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        values = self.plain(arguments)
        try:
            real = self._workspace.resolve(str(values["path"]))
            grant = str(real)
            grant.encode()
        except (ToolFailedError, UnicodeEncodeError) as error:
            raise ToolInputError(f"path: {error}") from None
        # An approved call does not ask again. If its link leads elsewhere by now, the call fails when it runs.
        if self._workspace.allows(real, context.grants) or _has(context, Decision.APPROVE):
            return None
        reason = escape_unprintable(cut_clean(collapse_whitespace(str(values["reason"])), _REASON_LIMIT))
        return Ask(
            kind=InterruptKind.GRANT,
            question=f"Allow reading {escape_unprintable(grant)}?" + (f" {reason}" if reason else ""),
            grant=grant,
        )


def _has(context: ToolContext, decision: Decision) -> bool:
    return any(answer.decision == decision for answer in context.answers)
