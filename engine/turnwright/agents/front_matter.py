"""The YAML between two lines `---` at the top of an agent's Markdown. Every mistake is reported with its line.

PyYAML is not safe enough for untrusted files, and loses the lines. So its events are checked first, and the values are
built here from its nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from re import Pattern
from re import compile as regex
from typing import Final

import yaml

from turnwright._base.regular_files import FileTooLargeError, read_regular
from turnwright._base.words import cut_after

MAX_BYTES: Final = 1024 * 1024
#: The limits of one front matter. PyYAML is slow, and real front matters have at most a few dozen lines.
MAX_FRONT_MATTER: Final = 64 * 1024
MAX_VALUES: Final = 1000
MAX_NESTING: Final = 8
#: The maximum number of open brackets, in texts too. PyYAML's time grows with the square of this number.
MAX_BRACKETS: Final = 64
TOO_LARGE: Final = f"is larger than {MAX_BYTES // 1024} KiB: name an agent file, or split it"

_SHOWN: Final = 60
_QUOTES: Final = "a text that contains `: ` or starts with a special character needs quotes"
# PyYAML follows YAML 1.1, where 010 is eight and 1:30 is ninety.
_WHOLE: Final = regex(r"[-+]?(?:0|[1-9][0-9_]{0,999})")
_FRACTION: Final = regex(r"[-+]?(?:[0-9_.]+(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))")
_BRACKET: Final = regex(r"[\[\]{}]")
_TAG: Final = "tag:yaml.org,2002:"
#: A key of the outermost mapping with a text that contains a colon, which YAML would read as a mapping.
_LOOSE: Final[Pattern[str]] = regex(r"""(?m)^([A-Za-z_][\w-]*[ \t]*:[ \t]+)(?![|>"'\[{#])(\S.*:.*)$""")

Loc = tuple[str | int, ...]


class UnreadableFileError(Exception):
    """A file that cannot be read as text. `line` is None if the error has no line."""

    def __init__(self, why: str, line: int | None = None) -> None:
        self.why = why
        self.line = line
        super().__init__(why)


def read_text(path: Path) -> str:
    """Return the text of an agent file. Raises `UnreadableFileError`, also if it is not UTF-8 or exceeds 1 MiB."""
    try:
        return read_regular(path, MAX_BYTES).decode()
    except FileTooLargeError:
        raise UnreadableFileError(TOO_LARGE) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UnreadableFileError(f"is not UTF-8 text (byte {error.start}): save it as UTF-8", line) from None
    except FileNotFoundError:
        raise UnreadableFileError("there is no such file: name an agent file, or create this one") from None
    except IsADirectoryError:
        raise UnreadableFileError("is a directory: name a file in it, such as AGENTS.md") from None
    except PermissionError:
        raise UnreadableFileError("may not be read: change its permissions") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character in it
        why = getattr(error, "strerror", None) or error
        raise UnreadableFileError(f"cannot be read: {why}") from None


def in_lines(text: str) -> list[str]:
    """Return the lines of a text, with the line endings of any system."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")


@dataclass
class FrontMatter:
    """One front matter: `text` is between its two lines `---`, and `line` is the file's line of the first of these.

    `mistakes` are the mistakes found, each with its place in the front matter and its line, and `notes` the warnings.
    """

    line: int
    text: str
    lines: dict[Loc, int] = field(default_factory=dict)
    mistakes: list[tuple[Loc, int, str]] = field(default_factory=list)
    notes: list[tuple[Loc, int, str]] = field(default_factory=list)

    def read(self, *, loose: bool = False) -> dict[str, object] | None:
        """Return the values by their keys, or None after a mistake that prevents reading.

        With `loose`, in invalid YAML `key: a text: with a colon` is read as a text, as opencode does.
        """
        if loose and not self._is_yaml():
            self.text = _LOOSE.sub(
                lambda match: f"{match[1]}'{match[2].rstrip().replace(chr(39), chr(39) * 2)}'", self.text
            )
        try:
            return self._read_values()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.wrong(
                (), f"is not YAML: {escape_and_cut(str(error.problem))} ({_QUOTES})", mark.index if mark else None
            )
        except yaml.reader.ReaderError as error:
            self.wrong((), f"is not YAML: character U+{error.character:04X} is not allowed", error.position)
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # such as an escape above U+10FFFF
            self.wrong((), f"is not YAML: {escape_and_cut(str(error))}")
        return None

    def wrong(self, loc: Loc, message: str, index: int | None = None) -> None:
        """Note a mistake. `index` is its position in `text`; by default, the line is that of the nearest key."""
        self.mistakes.append((loc, self.line_of(loc) if index is None else self._line(index), message))

    def note(self, loc: Loc, message: str) -> None:
        """Note a warning, at the line of the nearest key."""
        self.notes.append((loc, self.line_of(loc), message))

    def line_of(self, loc: Loc) -> int:
        """Return the file's line of a place in the front matter, or of the nearest known place around it."""
        known_lines = (self.lines[loc[:end]] for end in range(len(loc), 0, -1) if loc[:end] in self.lines)
        return next(known_lines, self.line)

    def _is_yaml(self) -> bool:
        """Whether the front matter can be parsed up to its first forbidden event, which `read` reports."""
        if self._find_size_problem() is not None:
            return True
        try:
            for _ in self._check_events():
                pass
        except (yaml.YAMLError, ValueError, OverflowError):
            return False
        return True

    def _find_size_problem(self) -> tuple[int | None, str] | None:
        """Return the position and the reason if the text is too large for PyYAML, which has not seen it yet."""
        if len(self.text) > MAX_FRONT_MATTER:
            return None, f"is a front matter of more than {MAX_FRONT_MATTER // 1024} KiB: move text below it"
        depth = 0
        for mark in _BRACKET.finditer(self.text):
            depth = depth + 1 if mark[0] in "[{" else max(depth - 1, 0)
            if depth > MAX_BRACKETS:
                return mark.start(), f"is nested more than {MAX_NESTING} deep"
        return None

    def _read_values(self) -> dict[str, object] | None:
        problem = self._find_size_problem()
        if problem is not None:
            self.wrong((), problem[1], problem[0])
            return None
        if not self._is_plain():
            return None
        root = yaml.compose(self.text, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            content = (
                "nothing" if root is None else "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
            )
            self.wrong((), f"the front matter must have keys such as `name: Refactorer`, but it has {content}")
            return None
        return self._read_mapping(root, ())

    def _is_plain(self) -> bool:
        """Whether the YAML has no forbidden event. Checked before anything is built from it."""
        for event, why in self._check_events():
            if why is not None:
                self.wrong((), why, event.start_mark.index if event.start_mark else None)
                return False
        return True

    def _check_events(self) -> Iterator[tuple[yaml.Event, str | None]]:
        """Yield the events of the YAML, each with its problem or None. The first problem is the last event."""
        depth = 0
        for count, event in enumerate(yaml.parse(self.text, Loader=yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            why = None
            if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
                why = "YAML's anchors (&) and aliases (*) are not allowed: put a text that starts with one in quotes"
            elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
                why = "YAML's tags (!) are not allowed: put a text that starts with one in quotes"
            elif isinstance(event, yaml.DocumentStartEvent) and (event.explicit or count > 1):
                why = "the front matter must be one YAML document, without markers of its own"
            elif depth > MAX_NESTING:
                why = f"is nested more than {MAX_NESTING} deep"
            elif count > MAX_VALUES:
                why = f"has more than {MAX_VALUES} values"
            yield event, why
            if why is not None:
                return

    def _read_mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, value in node.value:
            key_loc = (*loc, str(key.value))
            if not isinstance(key, yaml.ScalarNode):
                self.wrong(loc, "a key must be a word", key.start_mark.index)
            elif key.value in values:
                self.wrong(key_loc, f"is given twice: line {self.lines[key_loc]} has it too", key.start_mark.index)
            else:
                self.lines[key_loc] = self._line(key.start_mark.index)
                values[key.value] = self._read_value(value, key_loc)
        return values

    def _read_value(self, node: yaml.Node, loc: Loc) -> object:
        self.lines.setdefault(loc, self._line(node.start_mark.index))
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self._read_value(item, (*loc, index)) for index, item in enumerate(node.value)]
        return self._scalar(str(node.value), node.tag.removeprefix(_TAG), loc)

    def _scalar(self, text: str, kind: str, loc: Loc) -> object:
        match kind:
            case "null" if not text:
                self.wrong(loc, "has no value: write one, write `null`, or leave the key out")
            case "null":
                return None
            case "bool":
                return text.lower() in {"true", "yes", "on"}
            case "int" if _WHOLE.fullmatch(text):
                return int(text.replace("_", ""))
            case "float" if _FRACTION.fullmatch(text):
                return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
            case "int" | "float":
                self.wrong(loc, f"must be a plain decimal number, not {escape_and_cut(text)}")
            case _:  # text, also where YAML reads dates and merge keys
                return text
        return None

    def _line(self, index: int) -> int:
        """Return the file's line of a position. PyYAML's own count knows more line endings than Markdown."""
        return self.line + 1 + self.text.count("\n", 0, index)


def path_of(loc: Loc) -> str | None:
    """Return a place in the front matter as one short line, such as `budget.tokens`. None means all of it."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{escape_and_cut(part)}" for part in loc)
    return "".join(parts).removeprefix(".") or None


def escape_and_cut(text: str) -> str:
    """Return a text in one line, cut if it is long."""
    short = cut_after(text, _SHOWN, "...")
    return short if short.isprintable() else repr(short)
