"""A tool call in one row: `look_up(word="alpha")`, what it gave, and what opens below it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from turnwright._base.words import collapse_whitespace, cut_after
from turnwright.message import ToolCallPart, ToolResultPart
from turnwright.privacy.redaction import redactor
from turnwright.store import TurnRow
from turnwright_states.payload import thaw

from .rule_decisions import DecisionRow
from .steps import StepCall

#: Characters of the call, of one of its arguments, and of its result. A screen shows fewer.
_CALL: Final = 160
_ARGUMENT: Final = 60
_RESULT: Final = 200
#: The names of arguments that are a path, and the languages of files by their endings.
_PATHS: Final = ("path", "file_path", "file", "filename")
_LANGUAGES: Final = {
    **{
        name: name
        for name in (
            "c",
            "cpp",
            "css",
            "go",
            "html",
            "ini",
            "java",
            "json",
            "php",
            "sql",
            "toml",
            "xml",
            "yaml",
            "diff",
        )
    },
    "cs": "csharp",
    "js": "javascript",
    "py": "python",
    "rb": "ruby",
    "rs": "rust",
    "sh": "bash",
    "ts": "typescript",
    "tsx": "typescript",
    "yml": "yaml",
}
#: The most characters of a secret behind the shown part of a result.
_EDGE: Final = 16_384


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call. `made` and `gave` are the call and its result in a line, without secrets.

    `language` is that of a result that is a file's content, by the ending of its path; empty for an unknown one.

    `status` is as in `StepCall`, or `interrupted` if it ran when the driver died. `seconds` is None until it has ended.
    `raw` is what the model wrote where that is not a JSON object. `child` is the id of the turn that it drove, and
    `sub_turn` that turn's row. `decisions` are those of rules about it.
    """

    id: str
    name: str
    made: str
    gave: str
    status: str
    seconds: float | None
    arguments: Mapping[str, JsonValue]
    raw: str
    language: str
    result: ToolResultPart | None
    child: str | None
    sub_turn: TurnRow | None
    decisions: tuple[DecisionRow, ...] = ()


def call_row(
    part: ToolCallPart,
    result: ToolResultPart | None,
    call: StepCall | None,
    children: Mapping[str, TurnRow],
    decisions: Sequence[DecisionRow] = (),
) -> CallRow:
    """Return the row of a call. `call` is what the journal's steps say of it, None where they do not know it.

    `decisions` are those of rules about the call.
    """
    raw = call.made.raw if call is not None else ""
    arguments = redactor().hide_fields(thaw(part.arguments))
    status = call.status if call is not None else "open" if result is None else str(result.status)
    return CallRow(
        id=part.id,
        name=part.name,
        made=f"{part.name}({_line(raw, _CALL) if raw else _in_line(arguments)})",
        gave="" if result is None else _line(result.text, _RESULT),
        status=status,
        seconds=None if call is None else call.seconds,
        arguments=part.arguments,
        raw=raw or "",
        language=_language(part.arguments),
        result=result,
        child=None if call is None else call.child,
        sub_turn=children.get(part.id),
        decisions=tuple(decisions),
    )


def _language(arguments: Mapping[str, JsonValue]) -> str:
    path = next((value for name in _PATHS if isinstance(value := arguments.get(name), str)), "")
    _, dot, ending = path.rpartition(".")
    return _LANGUAGES.get(ending.lower(), "") if dot else ""


def _in_line(arguments: Mapping[str, JsonValue]) -> str:
    """`word="alpha", most=3`, as far as there is room."""
    words: list[str] = []
    size = 0
    for name, value in arguments.items():
        argument = f"{name}={cut_after(json.dumps(value, ensure_ascii=False), _ARGUMENT)}"
        size += len(argument)
        if words and size > _CALL:
            words.append("…")
            break
        words.append(argument)
    return ", ".join(words)


def _line(text: str, most: int) -> str:
    """The beginning of a text in one line. Secrets are hidden first, because half of one is not recognized."""
    return cut_after(collapse_whitespace(redactor().hide(text[: most + _EDGE])), most)
