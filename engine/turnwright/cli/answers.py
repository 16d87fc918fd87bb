"""Reads the answers that the flags of `turnwright resume` and `turnwright answer` give."""

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
    """Return the answers by the ids of the interrupts. A flag may shorten an id to a unique beginning.

    The id of an interrupt in `answered` is accepted too: the engine then reports that another person was faster. Raises
    `InvalidAnswerError` for a text without an id, an ambiguous id, and two answers to one interrupt.
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
            raise InvalidAnswerError(name, "it is answered twice: give one answer for each", still_open)
        answers[whole] = answer
    return answers


def _whole(name: str, still_open: Sequence[str], answered: Collection[str]) -> str:
    """Return the id that begins with `name`: of an open interrupt, or else of an answered one. Else return `name`."""
    if name in still_open or name in answered:
        return name
    found = [one for one in still_open if name and one.startswith(name)]
    found = found or sorted(one for one in answered if name and one.startswith(name))
    if len(found) > 1:
        raise InvalidAnswerError(name, f"it is ambiguous: {', '.join(found)}: write more of it", still_open)
    return found[0] if found else name
