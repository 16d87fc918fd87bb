"""A conversation as the Messages API wants it: sides take turns, and the user has the first word and the last. No I/O.

It is put together from the blocks of its messages, behind what was put together for an earlier request.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, Self

from turnwright.model.http.encoding import dump, lengthened

from .blocks import Blocks, Side

#: A field behind an object's last one. Up to where it stands the provider may keep what it is sent.
CACHED: Final = b"," + dump({"cache_control": {"type": "ephemeral"}})[1:]

_BETWEEN: Final = {
    ("", "user"): b'{"role":"user","content":[',
    ("user", "user"): b",",
    ("user", "assistant"): b']},{"role":"assistant","content":[',
    ("assistant", "assistant"): b",",
    ("assistant", "user"): b']},{"role":"user","content":[',
}
# A conversation has to begin with the user and to end with her: one that was cut may not, nor one whose last word was a
# blank.
_GO_ON: Final = Blocks.of("user", [{"type": "text", "text": "Go on."}])


class OpenedTurn(NamedTuple):
    """The beginning of a conversation, behind which the assistant speaks, or nothing.

    `system` are the instructions. Of the messages, `content` is without the thinking, `thought` with it, and the same
    object where there is none; the last one is `side`'s. The assistant's calls, their results and what was said with
    them are one turn to the API, which thinks all through it or not: `thinks` is whether the turn at hand began with
    thinking, and None before it begins.
    """

    system: tuple[bytes, ...] = ()
    content: tuple[bytes, ...] = ()
    thought: tuple[bytes, ...] = ()
    side: Side | Literal[""] = ""
    thinks: bool | None = None


class OrderRule:
    """A conversation: a beginning, and what is taken in behind it."""

    def __init__(self, begun: OpenedTurn) -> None:
        self._begun = begun
        self._system = list(begun.system)
        #: Whether the instructions are over.
        self._opened = False
        self._side: Side | Literal[""] = begun.side
        #: Whether results came last, but for the user's words, which then belong to the assistant's turn at hand.
        self._answered = False
        self._sent: list[Blocks] = []
        #: What stands before each of them.
        self._between: list[bytes] = []
        #: Whether the assistant's turn at hand began with thinking; None if it has not begun.
        self.thinks = begun.thinks

    def take(self, said: Iterable[Blocks]) -> Self:
        """Take in messages. Where the user said a blank behind the assistant, she says "Go on."."""
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
        """Let the user have the last word, unless the assistant's may be it, and it is one."""
        if not self._side or (self._side == "assistant" and not prefill):
            self._put(_GO_ON)
        return self

    def begun(self) -> OpenedTurn:
        """The conversation so far, as the beginning of longer ones, which go on with an assistant's message."""
        before = self._begun
        content = lengthened(before.content, self._pieces(thought=False))
        same = before.thought is before.content and all(blocks.thought is blocks.content for blocks in self._sent)
        thought = content if same else lengthened(before.thought, self._pieces(thought=True))
        return OpenedTurn(tuple(self._system), content, thought, self._side, self.thinks)

    def system(self, *, cache: bool) -> list[bytes]:
        """The instructions, up to which the provider may keep the request with `cache`; nothing if there are none."""
        if not self._system:
            return []
        instructions = b",".join(self._system)
        return [b'"system":[', instructions[:-1] + CACHED if cache else instructions, b"],"]

    def messages(self, *, thought: bool, cache: bool) -> list[bytes]:
        """The messages, with what was thought or without. With `cache` the provider may keep them (see `_stable`)."""
        pieces = self._pieces(thought=thought)
        for number in _stable(self._sent) if cache else ():
            # Before each stands what parts it from the one before.
            pieces[2 * number + 1] = pieces[2 * number + 1][:-1] + CACHED
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
    """Where the next step's request will still be as it is: at the end of this one, and of the one before.

    The provider looks back for what it kept over twenty blocks only, and one batch may be longer than that. `sent`
    holds what stands behind the last reply but one, and that, or everything: no mark is further back.
    """
    last = next((number for number in reversed(range(len(sent))) if sent[number].role == "assistant"), 0)
    return {_stable_before(sent, len(sent)), _stable_before(sent, last) if last else 0}


def _stable_before(sent: Sequence[Blocks], end: int) -> int:
    """The last place before `end` that is no word for one call only: a hint, or the instruction to conclude.

    Those are said last, in the user's role, and nothing marks them. So of what the user says behind results nothing
    is marked, and elsewhere the first of it, which is the prompt.
    """
    begin = end
    while begin and sent[begin - 1].role in {"user", "system"}:
        begin -= 1
    if begin == end or (begin and sent[begin - 1].role == "tool"):
        return begin - 1
    return begin
