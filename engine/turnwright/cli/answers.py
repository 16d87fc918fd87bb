"""Reads the answers that the flags of `turnwright resume` and `turnwright answer` give."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from turnwright.errors import InvalidAnswerError
from turnwright.journal.answers import Answer, approve, read_arguments, reject, settled

from .options import AnswerFlags


def read_answers(
    flags: AnswerFlags, still_open: Sequence[str], answered_ids: Collection[str] = ()
) -> dict[str, str | Answer]:
    """Return the answers by the ids of the interrupts. A flag may shorten an id to a unique beginning.

    Arguments without an id are those of the only approval that is given, or else of the only open interrupt. The id of
    an interrupt in `answered_ids` is accepted too: the engine then reports that another person was faster. Raises
    `InvalidAnswerError` for a text or arguments without an id, an ambiguous id, and two answers to one interrupt.
    """
    pairs: list[tuple[str, str | Answer]] = []
    for text in flags.texts or ():
        name, separator, answer_text = text.partition("=")
        if not separator:
            raise InvalidAnswerError(name, "write --answer ID=TEXT", still_open)
        pairs.append((name, answer_text))
    edits = [*_with_arguments(flags, still_open)]
    pairs += [(name, approve(arguments=read_arguments(name, answer_text, still_open))) for name, answer_text in edits]
    pairs += [(name, approve()) for name in flags.approvals or () if name not in dict(edits)]
    for text in flags.results or ():
        name, separator, result = text.partition("=")
        if not separator:
            raise InvalidAnswerError(name, "write --settle ID=TEXT", still_open)
        pairs.append((name, settled(result)))
    for text in flags.rejections or ():
        name, _, words = text.partition("=")
        pairs.append((name, reject(words)))
    answers: dict[str, str | Answer] = {}
    for name, answer in pairs:
        whole = _whole(name, still_open, answered_ids)
        if whole in answers:
            raise InvalidAnswerError(name, "it is answered twice: give one answer for each", still_open)
        answers[whole] = answer
    return answers


def change_arguments(answers: Iterable[str | Answer]) -> bool:
    """Whether an answer may approve a call with other arguments, which the call's tool must check."""
    return any(
        answer.lstrip().startswith("{") if isinstance(answer, str) else answer.arguments is not None
        for answer in answers
    )


def _with_arguments(flags: AnswerFlags, still_open: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the id of each interrupt that is approved with arguments, and their JSON."""
    for text in flags.arguments or ():
        is_json = text.lstrip().startswith(("{", "["))
        name, separator, json_text = ("", "=", text) if is_json else text.partition("=")
        ids = flags.approvals or still_open
        if not separator or (not name and len(ids) != 1):
            raise InvalidAnswerError(name, "write --arguments ID=JSON", still_open)
        yield name or ids[0], json_text


def _whole(name: str, still_open: Sequence[str], answered_ids: Collection[str]) -> str:
    """Return the id that begins with `name`: of an open interrupt, or else of an answered one. Else return `name`."""
    if name in still_open or name in answered_ids:
        return name
    matches = [open_id for open_id in still_open if name and open_id.startswith(name)]
    matches = matches or sorted(open_id for open_id in answered_ids if name and open_id.startswith(name))
    if len(matches) > 1:
        raise InvalidAnswerError(name, f"it is ambiguous: {', '.join(matches)}: write more of it", still_open)
    return matches[0] if matches else name
