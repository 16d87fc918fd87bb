"""The help of every command as Markdown, which the site shows on the page about the command line."""

import re
import typing
from collections import Counter
from enum import Enum
from typing import Any, Final

import typer

from turnwright.cli import app

#: In a help text, what is typed stands as it is; on a page it is set as code.
_TYPED: Final = re.compile(r"`[^`]*`|(?<![\w/-])--[a-z][a-z-]*(?!\w)")
_EXIT: Final = re.compile(r"^Exit codes: ", re.MULTILINE)


#: An option that so many commands share, in the same words, is described once.
_COMMON_FROM: Final = 2
#: Described once, though its words differ: each command says "Print one JSON object", or "event", or "per line".
_JSON: Final = "- `--json`: Print one JSON object, or one per line."
_REPEATED: Final = "; may be repeated"
_PLAIN_JSON: Final = re.compile(r"- `--json`: Print one JSON (object|event)( per line)?\.")


def commands_as_markdown() -> str:
    """Return a section for each command, and one for the options that several share."""
    group: Any = typer.main.get_command(app._app({name: app.command(name) for name in app.PLACES}))  # noqa: SLF001 (the app is made where it is run)
    commands = group.commands
    uses = Counter(_option(option) for command in commands.values() for option in _options_of(command))
    everywhere = [line for line, count in uses.items() if count == len(commands)]
    common = {
        _spelled(option): _option(option)
        for command in commands.values()
        for option in _options_of(command)
        if _COMMON_FROM <= uses[_option(option)] < len(commands)
    }
    parts = [_command(name, command, {*common.values()}, {*everywhere}) for name, command in commands.items()]
    parts += ["## Common options", "\n".join(common.values())]
    parts += ["Every command also takes:", "\n".join(everywhere)] if everywhere else []
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _options_of(command: Any) -> list[Any]:  # noqa: ANN401 (Typer ships the classes of its commands as private)
    return [param for param in command.params if param.opts[0][:1] == "-" and not param.hidden and param.name != "help"]


def _command(name: str, command: Any, common: set[str], everywhere: set[str]) -> str:  # noqa: ANN401 (as above)
    arguments = [param for param in command.params if param.opts[0][:1] != "-" and not param.hidden]
    options = {_option(option): option for option in _options_of(command)}
    parts = [f"## `{name}`", *map(_marked, _paragraphs(command.help))]
    lines = [
        f"- `{_placeholder(argument)}`: {_line(_help(argument))}"
        for argument in arguments
        if _placeholder(argument) != "TURN"
    ]
    lines += [line for line in options if line not in common | everywhere]
    shared = ", ".join(f"`{option.opts[0]}`" for line, option in options.items() if line in common)
    parts += ["\n".join(lines)] if lines else []
    parts += [f"[Also](#common-options): {shared}."] if shared else []
    parts.append(f"```bash\n{command.epilog}\n```")
    return "\n\n".join(parts)


def _option(option: Any) -> str:  # noqa: ANN401 (as above)
    """Return the line of a list that describes an option."""
    default = _default(option)
    default_text = {"": "", "required": " Required."}.get(default, f" Default: {default}.")
    line = f"- {_spelled(option)}: {_line(_help(option)).replace(_REPEATED, '')}{default_text}"
    return _JSON if _PLAIN_JSON.fullmatch(line) else line


def _paragraphs(text: str | None) -> list[str]:
    return [paragraph.strip() for paragraph in re.split(r"\n\s*\n", text or "") if paragraph.strip()]


def _marked(text: str) -> str:
    return _EXIT.sub("**Exit codes:** ", _TYPED.sub(lambda match: f"`{match[0].strip('`')}`", text))


def _line(text: str) -> str:
    return _marked(" ".join(text.split()))


def _help(parameter: Any) -> str:  # noqa: ANN401 (as above)
    """Return the help of a parameter, with its choices, without the default, which has its own column."""
    text = re.sub(r"\s*\[default: [^\]]*\]", "", parameter.help or "")
    choices = _choices(parameter.type_descriptor.annotation)
    return f"{text} One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else text


def _choices(annotation: object) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(member.value) for member in annotation]
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return [str(choice) for choice in inner]
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
    match = re.search(r"\[default: ([^\]]*)\]", option.help or "")
    if match:
        return _line(match[1]) if " " in match[1] else f"`{match[1]}`"
    if option.required:
        return "required"
    if option.default in (None, False, "", ()) or option.is_flag:
        return ""
    value = option.default.value if isinstance(option.default, Enum) else option.default
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
