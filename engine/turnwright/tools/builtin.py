"""The tools that the command line brings: they read the workspace, and ask the person in front of it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

from pydantic import Field, JsonValue

from turnwright_states import Decision, InterruptKind

from .context import Ask, ToolContext
from .errors import ToolFailedError, ToolInputError
from .files import listing, portion
from .search import search
from .text import one_line, shorten
from .tool import FunctionTool, Tool, tool
from .workspace import Workspace

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_SECONDS = 30.0
_REASON_LIMIT = 300

PathInside = Annotated[
    str, Field(description="A path below the project's folder, or one for which read access was granted.")
]


def builtin_tools(root: Path) -> list[Tool]:
    """Make the built-in tools: `list_files`, `read_file`, `search_files`, `ask_user_input`, `request_read_access`.

    They read only, and only below the folder `root`, except for what a person grants during the turn. They may all
    run again after a crash. Raises `ConfigError` if `root` is not a folder. Source: DESIGN 9.
    """
    workspace = Workspace(root)

    @tool(read_only=True, timeout=_SECONDS)
    def list_files(context: ToolContext, path: PathInside = ".", *, recursive: bool = False) -> str:
        """List the files and folders in a folder of the project, at most 500 of them.

        Args:
            recursive: Whether to list what is in the folders below as well.
        """
        return listing(workspace.place(path, context.grants), recursive=recursive)

    @tool(read_only=True, timeout=_SECONDS)
    def read_file(
        context: ToolContext,
        path: PathInside,
        offset: Annotated[int, Field(ge=1)] = 1,
        limit: Annotated[int, Field(ge=1)] | None = None,
    ) -> str:
        """Read a text file of the project. A long file comes in portions, with a notice of where to go on.

        Args:
            offset: The number of the first line to read; lines count from 1.
            limit: How many lines to read at most.
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
        """Find the lines that hold a text, in one file or in all files below a folder. Upper and lower case differ.

        Args:
            pattern: The text to find; with `regex`, a regular expression.
            glob: Search only files whose name or path fits, for example `*.py` or `src/**/*.md`.
            regex: Whether `pattern` is a regular expression, as Python knows them.
        """
        return search(workspace.place(path, context.grants), pattern, glob=glob, regex=regex)

    def ask_user_input(
        context: ToolContext, question: Annotated[str, Field(min_length=1)], choices: list[str] | None = None
    ) -> str:
        """Ask the user a question, and wait for the answer. Ask only what you cannot find out yourself.

        Args:
            question: The question, in full.
            choices: Answers to choose from, if there are only a few.
        """
        del question, choices  # the person has seen them
        reply = next((answer for answer in reversed(context.answers) if answer.decision == Decision.REPLY), None)
        if reply is None:
            raise ToolFailedError("the user was not asked")
        return reply.text or "(the user gave an empty answer)"

    def request_read_access(context: ToolContext, path: str, reason: str = "") -> str:
        """Ask the user for leave to read a file or folder outside the project. It holds until the turn ends.

        Args:
            path: The file or the folder.
            reason: What you need it for; the user reads this.
        """
        del reason  # the person has seen it
        real = workspace.resolve(path)
        shown = one_line(str(real))
        if not workspace.allows(real, context.grants):
            raise ToolFailedError(f"access to {shown} was not granted; it may lead elsewhere since the user was asked")
        if _has(context, Decision.APPROVE):
            return f"Access granted: you may read {shown} now."
        return f"You may already read {shown}."

    return [
        list_files,
        read_file,
        search_files,
        _Question(ask_user_input, read_only=True),
        _Access(workspace, request_read_access),
    ]


class _Question(FunctionTool[P, R_co]):
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


class _Access(FunctionTool[P, R_co]):
    """Waits for leave to read a path; what the person sees and grants is where the path really leads."""

    def __init__(self, workspace: Workspace, function: Callable[P, R_co]) -> None:
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
        # A granted call does not ask again, even if its link leads elsewhere since: it fails when it runs.
        if self._workspace.allows(real, context.grants) or _has(context, Decision.APPROVE):
            return None
        reason = one_line(shorten(" ".join(str(values["reason"]).split()), _REASON_LIMIT))
        return Ask(
            kind=InterruptKind.GRANT,
            question=f"Allow reading {one_line(grant)}?" + (f" {reason}" if reason else ""),
            grant=grant,
        )


def _has(context: ToolContext, decision: Decision) -> bool:
    return any(answer.decision == decision for answer in context.answers)
