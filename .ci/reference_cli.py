"""The page about the command line, out of the commands themselves."""

import re
import typing
from enum import Enum
from typing import Any, Final

import typer

from turnwright.cli import app

HEAD: Final = """\
# Command line

Every command of `turnwright`, with its arguments, options, defaults and exit codes. `turnwright COMMAND --help` says
the same.

<!-- Made by `make reference` from the commands: edit their help, not this page. -->
"""
#: `tests/docs/test_reference.py` compares the table with the code.
EXIT_CODES: Final = """\
## Exit codes

| code | of `run`, `resume` and `fork` |
| --- | --- |
| 0 | the turn finished, or its synthesis is done |
| 1 | the turn failed: the model, the engine, the store or a Temporal server. The reason names which |
| 2 | usage or configuration: an unknown turn or interrupt, a turn that has ended, an invalid agent file |
| 3 | the turn is paused. The last line shows how to answer |
| 4 | the turn reached a limit (`cap_hit`) |
| 5 | the turn repeated itself (`doom_loop`) |
| 130 | the turn was aborted |
| 143 | SIGTERM stopped the process. The turn has not ended, and `resume` continues it |

`worker` exits with 0 after it has drained, and with 130 or 143 if a second signal stopped it.

`verify`, `replay`, `trace` and `fuzz` exit with 0 if every check holds, with 1 if one is violated, with 2 after a usage error, and with 6 if the result is inconclusive.

## Output

With `--json`, a command prints one event a line, sub-agents' events included. Each event has its `turn`. The last line is the turn's own `turn_ended` or `paused`. Errors go to standard error.
"""  # noqa: E501 (a paragraph is one line)
#: In a help text, what is typed stands as it is; on a page it is set as code.
_TYPED: Final = re.compile(r"`[^`]*`|(?<![\w/-])--[a-z][a-z-]*(?!\w)")
_EXIT: Final = re.compile(r"^Exit codes: ", re.MULTILINE)


def page() -> str:
    """The page."""
    group: Any = typer.main.get_command(app._app(tuple(app.ROOMS)))  # noqa: SLF001 (the app is made where it is run)
    commands = group.commands
    shared = set.intersection(*({one.name for one in command.params} for command in commands.values())) - {"help"}
    index = ["| command | |", "| --- | --- |"]
    index += [f"| [`{name}`](#{name}) | {_cell(_paragraphs(one.help)[0])} |" for name, one in commands.items()]
    parts = [HEAD, "\n".join(index), *(_command(name, one, shared) for name, one in commands.items())]
    if shared:
        options = [one for one in next(iter(commands.values())).params if one.name in shared]
        parts += ["## Options of every command", _options(options)]
    parts.append(EXIT_CODES)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _command(name: str, command: Any, shared: set[str]) -> str:  # noqa: ANN401 (Typer ships the classes of its commands as private)
    arguments = [one for one in command.params if one.opts[0][:1] != "-" and not one.hidden]
    options = [one for one in command.params if one.opts[0][:1] == "-" and not one.hidden]
    options = [one for one in options if one.name not in shared | {"help"}]
    usage = " ".join(["turnwright", name, *map(_placeholder, arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"## `{name}`", f"```text\n{usage}\n```", *map(_marked, _paragraphs(command.help))]
    if arguments:
        rows = [f"| `{_piped(_placeholder(one))}` | {_cell(_help(one))} |" for one in arguments]
        parts.append("\n".join(["| argument | |", "| --- | --- |", *rows]))
    if options:
        parts.append(_options(options))
    return "\n\n".join(parts)


def _options(options: list[Any]) -> str:
    rows = [(_spelled(one), _cell(_help(one)), _default(one)) for one in options]
    if not any(default for _, _, default in rows):
        return "\n".join(["| option | |", "| --- | --- |", *(f"| {name} | {said} |" for name, said, _ in rows)])
    lines = [f"| {name} | {said} | {default} |" for name, said, default in rows]
    return "\n".join(["| option | | default |", "| --- | --- | --- |", *lines])


def _paragraphs(text: str | None) -> list[str]:
    return [one.strip() for one in re.split(r"\n\s*\n", text or "") if one.strip()]


def _marked(text: str) -> str:
    return _EXIT.sub("**Exit codes:** ", _TYPED.sub(lambda found: f"`{found[0].strip('`')}`", text))


def _cell(text: str) -> str:
    return _piped(_marked(" ".join(text.split())))


def _piped(text: str) -> str:
    """Return the text in a form that fits into a cell of a table, also in code."""
    return text.replace("|", "\\|")


def _help(parameter: Any) -> str:  # noqa: ANN401 (as above)
    """Return the help of a parameter, with its choices, without the default, which has its own column."""
    text = re.sub(r"\s*\[default: [^\]]*\]", "", parameter.help or "")
    choices = _choices(parameter.type_descriptor.annotation)
    return f"{text} One of {', '.join(f'`{one}`' for one in choices)}." if choices else text


def _choices(annotation: object) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(one.value) for one in annotation]
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return [str(one) for one in inner]
    return next(filter(None, map(_choices, inner)), [])


def _placeholder(argument: Any) -> str:  # noqa: ANN401 (as above)
    word = (argument.metavar or argument.name).upper().strip("[]{}")
    word += "..." if argument.nargs == -1 else ""
    return word if argument.required else f"[{word}]"


def _spelled(option: Any) -> str:  # noqa: ANN401 (as above)
    value = "" if option.is_flag else " " + (option.metavar or option.name.upper()).strip("[]")
    if "=" in value and option.metavar:
        value = f" {option.metavar}"
    names = [*option.opts, *option.secondary_opts]
    return ", ".join(f"`{_piped(name + value)}`" for name in names)


def _default(option: Any) -> str:  # noqa: ANN401 (as above)
    said = re.search(r"\[default: ([^\]]*)\]", option.help or "")
    if said:
        return _cell(said[1])
    if option.required:
        return "required"
    if option.default in (None, False, "", ()) or option.is_flag:
        return ""
    value = option.default.value if isinstance(option.default, Enum) else option.default
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
