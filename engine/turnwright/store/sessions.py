"""Sessions, as a query shows them, and their titles."""

from dataclasses import dataclass
from typing import Final

from turnwright._base.words import collapse_controls
from turnwright.errors import ConfigError, need_kind

#: The longest title, in characters.
MOST_TITLE: Final = 200
#: The longest title that is made of a prompt, in characters.
_MOST_DEFAULT: Final = 60


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session: the turns of a conversation, without those of sub-agents.

    `title` is the title that was set, or else the beginning of the first prompt. `turns` counts the turns. `created_at`
    is when the first of them was created, `updated_at` when the last one was written to, in seconds since the Unix
    epoch. `open_turn` is the turn that has not ended: it runs, is paused or was released. `number` orders sessions by
    the creation of their last turns, independent of the clock.

    Damaged columns have empty values: `""`, 0 or None.
    """

    id: str
    title: str
    turns: int
    created_at: float
    updated_at: float
    open_turn: str | None
    number: int


def default_title(prompt: str) -> str:
    """Return the beginning of a prompt as a title: its first line that is not blank, at most 60 characters.

    A longer line is cut after a word, or in a word of more than 30 characters, and ends with `...`. The title is empty
    for a blank prompt.
    """
    lines = map(collapse_controls, prompt[: 100 * _MOST_DEFAULT].splitlines())
    line = next(filter(None, lines), "")
    if len(line) <= _MOST_DEFAULT:
        return line
    beginning = line[: _MOST_DEFAULT - 3]
    words = beginning if line[len(beginning)] == " " else beginning.rpartition(" ")[0]
    return (words if len(words) >= _MOST_DEFAULT // 2 else beginning).rstrip() + "..."


def need_session_id(session: str) -> None:
    """Raise `ConfigError` for anything but text. A store would take None as every session."""
    need_kind("session", session, str, "the id of a session")


def checked_title(title: str) -> str:
    """Return a title on one line. Raises `ConfigError` for a blank one, or one of more than 200 characters."""
    if not isinstance(title, str):
        raise ConfigError(f"the title must be text, not {type(title).__name__}")
    line = collapse_controls(title)
    if not line:
        raise ConfigError("the title is blank")
    if len(line) > MOST_TITLE:
        raise ConfigError(f"the title has {len(line)} characters: a title has at most {MOST_TITLE}")
    try:
        line.encode()
    except UnicodeEncodeError:
        raise ConfigError("the title has half a surrogate pair") from None
    return line
