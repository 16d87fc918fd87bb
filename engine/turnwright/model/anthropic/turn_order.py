"""Conversations in the order of the Messages API: roles alternate, and the user comes first and last. No I/O.

A conversation is built from the blocks of its messages, behind the cached beginning of an earlier request.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, Self

from turnwright.model.http.encoding import lengthened

from .blocks import Blocks, Side

_BETWEEN: Final = {
    ("", "user"): b'{"role":"user","content":[',
    ("user", "user"): b",",
    ("user", "assistant"): b']},{"role":"assistant","content":[',
    ("assistant", "assistant"): b",",
    ("assistant", "user"): b']},{"role":"user","content":[',
}
# A conversation must begin and end with the user. One that was cut may not, nor one whose last text was blank.
_GO_ON: Final = Blocks.of("user", [{"type": "text", "text": "Go on."}])


class OpenedTurn(NamedTuple):
    """The beginning of a conversation, followed by the assistant's message or by nothing.

    `system` are the instructions. `content` are the messages without thinking, `thought` with it; both are the same
    object if there is none. The last message has the role `side`. To the API, the assistant's calls, their results and
    the texts between them are one turn, with thinking in all of it or in none. `thinks` is whether the current turn
    began with thinking; None before it begins.
    """

    system: tuple[bytes, ...] = ()
    content: tuple[bytes, ...] = ()
    thought: tuple[bytes, ...] = ()
    side: Side | Literal[""] = ""
    thinks: bool | None = None


class OrderRule:
    """A conversation: a cached beginning, and the messages added behind it."""

    def __init__(self, begun: OpenedTurn) -> None:
        self._begun = begun
        self._system = list(begun.system)
        #: Whether the instructions are over.
        self._opened = False
        self._side: Side | Literal[""] = begun.side
        #: Whether results came last. The user's texts behind them belong to the assistant's current turn.
        self._answered = False
        self._sent: list[Blocks] = []
        #: The separator before each of them.
        self._between: list[bytes] = []
        #: Whether the assistant's current turn began with thinking; None if it has not begun.
        self.thinks = begun.thinks

    def take(self, said: Iterable[Blocks]) -> Self:
        """Add messages. A user's blank text behind the assistant becomes "Go on."."""
        for blocks in said:
            self._opened = self._opened or blocks.role != "system"
            if blocks.content and self._opened:
                self._put(blocks)
            elif blocks.content:
                self._system.append(blocks.content)
            elif blocks.role == "user" and self._side == "assistant":
                self._put(_GO_ON)
        return self

    def close(self, *, prefill: bool) -> Self:
        """End the conversation with a user's message, unless the assistant's may be the last one."""
        if not self._side or (self._side == "assistant" and not prefill):
            self._put(_GO_ON)
        return self

    def begun(self) -> OpenedTurn:
        """The conversation so far, as the beginning of longer ones that continue with an assistant's message."""
        before = self._begun
        content = lengthened(before.content, self._pieces(thought=False))
        same = before.thought is before.content and all(blocks.thought is blocks.content for blocks in self._sent)
        thought = content if same else lengthened(before.thought, self._pieces(thought=True))
        return OpenedTurn(tuple(self._system), content, thought, self._side, self.thinks)

    def system(self, *, mark: bytes) -> list[bytes]:
        """Return the instructions; empty if there are none. The provider may cache up to a `mark` at their end."""
        if not self._system:
            return []
        instructions = b",".join(self._system)
        return [b'"system":[', instructions[:-1] + mark if mark else instructions, b"],"]

    def messages(self, *, thought: bool, mark: bytes) -> list[bytes]:
        """Return the messages, with or without thinking. The provider may cache up to each `mark` (see `_stable`)."""
        pieces = self._pieces(thought=thought)
        for number in _stable(self._sent) if mark else ():
            # Each separator precedes its message.
            pieces[2 * number + 1] = pieces[2 * number + 1][:-1] + mark
        begun = self._begun.thought if thought else self._begun.content
        return [b'"messages":[', *begun, *pieces, b"]}],"]

    def _put(self, blocks: Blocks) -> None:
        if not self._side and blocks.side == "assistant":
            self._put(_GO_ON)
        self._sent.append(blocks)
        self._between.append(_BETWEEN[self._side, blocks.side])
        self._side = blocks.side
        if blocks.role == "assistant":
            self.thinks = blocks.begins_with_thinking if self.thinks is None else self.thinks
            self._answered = False
        elif blocks.role == "tool":
            self._answered = True
        elif not self._answered:
            self.thinks = None

    def _pieces(self, *, thought: bool) -> list[bytes]:
        row: list[bytes] = []
        for between, blocks in zip(self._between, self._sent, strict=True):
            row += (between, blocks.thought if thought else blocks.content)
        return row


def _stable(sent: Sequence[Blocks]) -> set[int]:
    """Return the places up to which the next step's request is the same: the ends of this one and of the one before.

    Two places, because the provider looks back over twenty blocks only, and one batch may be longer. `sent` is
    everything, or the part from the last reply but one on: no mark is further back.
    """
    last = next((number for number in reversed(range(len(sent))) if sent[number].role == "assistant"), 0)
    return {_stable_before(sent, len(sent)), _stable_before(sent, last) if last else 0}


def _stable_before(sent: Sequence[Blocks], end: int) -> int:
    """Return the last place before `end` that is not a message for one call only (a hint, or to conclude).

    Such messages come last, in the user's role, and nothing distinguishes them. So a user's text behind results is
    never marked; elsewhere the first one is, which is the prompt.
    """
    begin = end
    while begin and sent[begin - 1].role in {"user", "system"}:
        begin -= 1
    if begin == end or (begin and sent[begin - 1].role == "tool"):
        return begin - 1
    return begin
