"""Answers as flags give them: for `turnwright resume`, which goes on with them, and `turnwright answer`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from turnwright.errors import InvalidAnswerError
from turnwright.journal.answers import Answer, approve, reject


@dataclass(frozen=True, slots=True)
class AnswerFlags:
    """The values of the flags: texts (`ID=TEXT`) of `text_flag`, approvals (`ID`), rejections (`ID[=WORDS]`)."""

    text_flag: str
    texts: Sequence[str]
    approvals: Sequence[str]
    rejections: Sequence[str]


def read_answers(
    flags: AnswerFlags, still_open: Sequence[str], answered: Collection[str] = ()
) -> dict[str, str | Answer]:
    """Return the answers by the ids of the interrupts, each of which may be given by its beginning.

    Also of one in `answered`: whoever takes the answers says then that somebody was faster. Raises `InvalidAnswerError`
    for a text without an id, for an id that begins several, and for two answers to one interrupt.
    """
    given: list[tuple[str, str | Answer]] = []
    for text in flags.texts:
        name, separator, said = text.partition("=")
        if not separator:
            raise InvalidAnswerError(name, f"write {flags.text_flag} ID=TEXT", still_open)
        given.append((name, said))
    given += [(name, approve()) for name in flags.approvals]
    for text in flags.rejections:
        name, _, words = text.partition("=")
        given.append((name, reject(words)))
    answers: dict[str, str | Answer] = {}
    for name, answer in given:
        whole = _whole(name, still_open, answered)
        if whole in answers:
            raise InvalidAnswerError(name, "it is answered twice: give one answer to each", still_open)
        answers[whole] = answer
    return answers


def _whole(name: str, still_open: Sequence[str], answered: Collection[str]) -> str:
    """Return the id of the open interrupt that begins so, or else of the answered one; any other name as it is."""
    if name in still_open or name in answered:
        return name
    found = [one for one in still_open if name and one.startswith(name)]
    found = found or sorted(one for one in answered if name and one.startswith(name))
    if len(found) > 1:
        raise InvalidAnswerError(name, f"it is the beginning of {', '.join(found)}: write more of it", still_open)
    return found[0] if found else name
