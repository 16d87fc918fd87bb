r"""The text of a question to a person: the same on a terminal, on a page and in AG-UI, with nothing left out.

The first line is the question. Every further line that a model, a tool or a server wrote begins with `| `, so that none
passes for one of ours. Invisible characters are shown as escapes (`turnwright.privacy.invisible.exact`).
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from json import dumps
from typing import Final

from pydantic import JsonValue

from turnwright._base.words import cut_clean, local_time
from turnwright.journal.standing_approvals import StandingApproval
from turnwright.privacy.invisible import exact
from turnwright.transcript.interrupt import Interrupt, default_question
from turnwright_states import InterruptKind

#: The mark of a line that a model, a tool or a server wrote.
MARK: Final = "| "
#: What an approval with `always` covers.
ALWAYS_WORDS: Final = "Allow calls with this tool and these arguments in this conversation"
#: Empty lines that are shown as they are. A longer run is one escape.
_EMPTY_LINES: Final = 3
#: A call of at most so many characters is one line.
_SHORT: Final = 120
#: Characters of a person's name.
_SHOWN_NAME: Final = 100
#: Levels of lists and objects that are indented.
_LEVELS: Final = 16


def words(interrupt: Interrupt, *, choices: bool = True) -> str:
    """Return the question and, line by line, all arguments of the call.

    Without `choices` these are left out, for a front end that shows them itself.
    """
    choice_words = f" ({' / '.join(interrupt.choices)})" if choices and interrupt.choices else ""
    first, *more_lines = _lines(f"{question(interrupt).strip()}{choice_words}")
    lines = [first, *(MARK + line for line in more_lines)]
    if interrupt.grant is not None:
        lines.append(f"this would be allowed: {_quote(interrupt.grant)}")
    if interrupt.arguments is not None and interrupt.kind is not InterruptKind.QUESTION:
        lines.append("arguments:" if interrupt.arguments else "no arguments")
        lines += [MARK + line for line in shown_arguments(interrupt.arguments)]
    return "\n".join(lines)


def question(interrupt: Interrupt) -> str:
    """Return the question as it was written: not escaped, without choices and arguments."""
    return interrupt.question or default_question(interrupt.tool, interrupt.kind)


def describe_approvals(interrupt: Interrupt) -> str:
    """Return how many of several people have approved, and who: "1 of 2: ann by slack, 19:02". Empty for one person."""
    if not interrupt.is_shared:
        return ""
    signatures = dict.fromkeys(interrupt.approved_by, "")
    for answer in interrupt.approvals_so_far:
        time = "" if answer.at is None else f", {local_time(answer.at, '%H:%M')}"
        signatures[answer.by] = f"{f' by {answer.via}' if answer.via else ''}{time}"
    people = "; ".join(exact(cut_clean(by, _SHOWN_NAME)) + words for by, words in signatures.items())
    total = len(interrupt.approved_by) + interrupt.approvals
    return f"{len(signatures)} of {total}{f': {people}' if people else ''}"


def describe_giver(approval: StandingApproval) -> str:
    """Return who gave an approval, through which channel, and when: "by ann via slack, 2026-11-28 19:02"."""
    by = exact(cut_clean(approval.by, _SHOWN_NAME)) if approval.by else "somebody unnamed"
    time = "" if approval.at is None else f", {local_time(approval.at, '%Y-%m-%d %H:%M')}"
    return f"by {by}{f' via {exact(approval.via)}' if approval.via else ''}{time}"


def call_lines(name: str, arguments: Mapping[str, JsonValue]) -> list[str]:
    """Return a call with all its arguments: in one line if that is short and plain, else one argument a line."""
    line = f"{exact(name)}({dumps(arguments, ensure_ascii=False)})"
    if len(line) <= _SHORT and exact(line).replace("\\\\", "\\") == line:
        return [line]
    return [exact(name), *(MARK + line for line in shown_arguments(arguments))]


def shown_arguments(arguments: Mapping[str, JsonValue]) -> list[str]:
    r"""Return the arguments of a call as JSON for people, each beginning on a line of its own.

    Text over several lines becomes one quoted line for each, which ends in `\n`.
    """
    return [line for name, value in arguments.items() for line in _show_value(f"{_name(name)}: ", value, 0)]


def _show_value(before: str, value: JsonValue, level: int, after: str = "") -> Iterator[str]:
    indent = "  " * min(level, _LEVELS)
    if isinstance(value, str) and "\n" in value:
        if before:
            yield f"{indent}{before.rstrip()}"
        *pieces, last = _quoted_lines(value)
        yield from (f"{indent}  {piece}" for piece in pieces)
        yield f"{indent}  {last}{after}"
    elif isinstance(value, dict | list) and value:
        open_bracket, close_bracket = "{}" if isinstance(value, dict) else "[]"
        yield f"{indent}{before}{open_bracket}"
        entries = value.items() if isinstance(value, dict) else (("", item) for item in value)
        for number, (name, item) in enumerate(entries, 1):
            inner = f"{_quote(name)}: " if isinstance(value, dict) else ""
            yield from _show_value(inner, item, level + 1, "," * (number < len(value)))
        yield f"{indent}{close_bracket}{after}"
    else:
        yield f"{indent}{before}{_quote(value) if isinstance(value, str) else dumps(value)}{after}"


def _name(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else _quote(name)


def _quote(text: str) -> str:
    return '"' + exact(text).replace('"', r"\"") + '"'


def _quoted_lines(text: str) -> Iterator[str]:
    *lines, last = text.split("\n")
    for line, run in groupby(lines):
        times = len(list(run))
        if not line and times > _EMPTY_LINES:
            yield rf'"\n{{{times}}}"'
        else:
            yield from [f'{_quote(line)[:-1]}\\n"'] * times
    if last:
        yield _quote(last)


def _lines(text: str) -> Iterator[str]:
    for line, run in groupby(text.replace("\r\n", "\n").split("\n")):
        times = len(list(run))
        yield from [rf"\n{{{times}}}"] if not line and times > _EMPTY_LINES else [exact(line)] * times
