"""Make the page about the command line from the commands."""

import re
import typing
from collections import Counter
from enum import Enum
from typing import Any, Final

import typer

from turnwright.cli import app

HEAD: Final = """\
# Command line

`turnwright COMMAND --help` prints the same. A turn is named by its id, or a unique beginning of it. Options with
`...` may be repeated.

<!-- Made by `make reference`: edit the help of the commands, not this page. -->
"""
#: `tests/docs/test_reference.py` compares the table with the code.
EXIT_CODES: Final = """\
## Exit codes

| code | of `run`, `resume`, `fork` and `chat` |
| --- | --- |
| 0 | the turn finished, or its synthesis is done |
| 1 | the turn failed; the reason names the model, the engine, the store or a Temporal server |
| 2 | usage or configuration: an unknown turn or interrupt, a turn that has ended, an invalid agent file |
| 3 | the turn is paused. The last line shows how to answer |
| 4 | the turn reached a limit (`cap_hit`) |
| 5 | the turn repeated itself (`doom_loop`) |
| 130 | the turn was aborted |
| 143 | SIGTERM stopped the process; `resume` continues the turn |

`worker` exits with 0 after it has drained, and with 130 or 143 after a second signal.

## Shell completion

`turnwright --install-completion` installs completion for the current shell (bash, zsh, fish or PowerShell).

## Output

In a pipe, and with `TERM=dumb`, the output is plain lines. `NO_COLOR` turns colors off. Errors go to standard error.

With `--json`, `run`, `resume` and `fork` print one event per line, also those of sub-agents. The last line is the turn's own `turn_ended` or `paused`.
"""  # noqa: E501 (a paragraph is one line)
#: In a help text, what is typed stands as it is; on a page it is set as code.
_TYPED: Final = re.compile(r"`[^`]*`|(?<![\w/-])--[a-z][a-z-]*(?!\w)")
_EXIT: Final = re.compile(r"^Exit codes: ", re.MULTILINE)


#: An option that so many commands share, in the same words, is described once.
_COMMON_FROM: Final = 2
#: Described once, though its words differ: each command says "Print one JSON object", or "event", or "per line".
_JSON: Final = "- `--json`: Print one JSON object, or one per line."
_REPEATED: Final = "; may be repeated"
_PLAIN_JSON: Final = re.compile(r"- `--json`: Print one JSON (object|event)( per line)?\.")


def page() -> str:
    """Return the text of the page."""
    group: Any = typer.main.get_command(app._app(tuple(app.ROOMS)))  # noqa: SLF001 (the app is made where it is run)
    commands = group.commands
    uses = Counter(_option(one) for command in commands.values() for one in _options_of(command))
    everywhere = [line for line, count in uses.items() if count == len(commands)]
    common = {
        _spelled(one): _option(one)
        for command in commands.values()
        for one in _options_of(command)
        if _COMMON_FROM <= uses[_option(one)] < len(commands)
    }
    parts = [HEAD]
    parts += [_command(name, one, {*common.values()}, {*everywhere}) for name, one in commands.items()]
    parts += ["## Common options", "\n".join(common.values())]
    parts += ["Every command also takes:", "\n".join(everywhere)] if everywhere else []
    parts.append(EXIT_CODES)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _options_of(command: Any) -> list[Any]:  # noqa: ANN401 (Typer ships the classes of its commands as private)
    return [one for one in command.params if one.opts[0][:1] == "-" and not one.hidden and one.name != "help"]


def _command(name: str, command: Any, common: set[str], everywhere: set[str]) -> str:  # noqa: ANN401 (as above)
    arguments = [one for one in command.params if one.opts[0][:1] != "-" and not one.hidden]
    options = {_option(one): one for one in _options_of(command)}
    parts = [f"## `{name}`", *map(_marked, _paragraphs(command.help))]
    lines = [f"- `{_placeholder(one)}`: {_line(_help(one))}" for one in arguments if _placeholder(one) != "TURN"]
    lines += [line for line in options if line not in common | everywhere]
    shared = ", ".join(f"`{one.opts[0]}`" for line, one in options.items() if line in common)
    parts += ["\n".join(lines)] if lines else []
    parts += [f"[Also](#common-options): {shared}."] if shared else []
    parts.append(f"```bash\n{command.epilog}\n```")
    return "\n\n".join(parts)


def _option(option: Any) -> str:  # noqa: ANN401 (as above)
    """Return the line of a list that describes an option."""
    default = _default(option)
    said = {"": "", "required": " Required."}.get(default, f" Default: {default}.")
    line = f"- {_spelled(option)}: {_line(_help(option)).replace(_REPEATED, '')}{said}"
    return _JSON if _PLAIN_JSON.fullmatch(line) else line


def _paragraphs(text: str | None) -> list[str]:
    return [one.strip() for one in re.split(r"\n\s*\n", text or "") if one.strip()]


def _marked(text: str) -> str:
    return _EXIT.sub("**Exit codes:** ", _TYPED.sub(lambda found: f"`{found[0].strip('`')}`", text))


def _line(text: str) -> str:
    return _marked(" ".join(text.split()))


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
    value += "..." if _REPEATED in (option.help or "") else ""
    names = [*option.opts, *option.secondary_opts]
    return ", ".join(f"`{name + value}`" for name in names)


def _default(option: Any) -> str:  # noqa: ANN401 (as above)
    said = re.search(r"\[default: ([^\]]*)\]", option.help or "")
    if said:
        return _line(said[1]) if " " in said[1] else f"`{said[1]}`"
    if option.required:
        return "required"
    if option.default in (None, False, "", ()) or option.is_flag:
        return ""
    value = option.default.value if isinstance(option.default, Enum) else option.default
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
