"""Stream a reply word by word, without secrets, from its beginning if it is known."""

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from turnwright.privacy.redaction import opened_in, redactor
from turnwright.transcript.events import DeltaEvent, ReasoningDeltaEvent, TextDeltaEvent, ToolCallDeltaEvent
from turnwright_inspector.http.event_stream import PageEvent

#: The ends of words: whitespace, and characters that no secret contains.
_BREAK: Final = re.compile(r"[^!-~]")
#: Letters before a word that are kept to know a secret by them, and those of one that has a beginning and an end.
_KEPT: Final = 512
_KEPT_OF_A_LONG_ONE: Final = 16_384
_KEY: Final = "-----BEGIN "
#: Replies whose pieces are kept for those who come later.
_REPLIES: Final = 50
#: The shown characters of a tool's name, which a model may write at any length.
_SHOWN_NAME: Final = 64
#: The mark of an unknown part.
_MISSING: Final = "… "


class Replies:
    """The pieces of current replies, by turn, for listeners that start in the middle of one."""

    def __init__(self) -> None:
        self._pieces: OrderedDict[tuple[str, int], dict[int, DeltaEvent]] = OrderedDict()

    def take(self, piece: DeltaEvent) -> dict[int, DeltaEvent]:
        """The pieces of this one's reply that are known, by their places. It is one of them from now on."""
        pieces = self._pieces.setdefault((piece.turn, piece.seq), {})
        if piece.index == 0:
            pieces.clear()  # the same request was sent again
        pieces[piece.index] = piece
        self._pieces.move_to_end((piece.turn, piece.seq))
        while len(self._pieces) > _REPLIES:
            self._pieces.popitem(last=False)
        return pieces


class Words:
    """A reply for one listener. It sends complete words only, because half a secret is not recognized."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._kind, self._due = "", 0
        #: Whether the next text may be the rest of a word with an unknown beginning.
        self._cut = False
        #: The last sent text; its length without secrets; and the text that is not sent yet.
        self._before, self._shown_length, self._unfinished = "", 0, ""

    def add(self, piece: DeltaEvent) -> Iterator[PageEvent]:
        """Add a piece. Returns the text to send, from the beginning of the reply for a new listener."""
        pieces = self._replies.take(piece)
        if piece.index != self._due:
            self.forget()
            yield PageEvent.of("piece", kind="restarted", index=0, text="")
            missing = False
            for index in range(piece.index):
                if index in pieces:
                    yield from self._add(pieces[index], cut=missing)
                missing = index not in pieces
            yield from self._add(piece, cut=missing)
        else:
            yield from self._add(piece)
        self._due = piece.index + 1

    def rest(self) -> Iterator[PageEvent]:
        yield from self._flush()
        self.forget()

    def forget(self) -> None:
        self._due, self._cut = 0, False
        self._before, self._shown_length, self._unfinished = "", 0, ""

    def _add(self, piece: DeltaEvent, *, cut: bool = False) -> Iterator[PageEvent]:
        """Add a piece. `cut` is whether the text before it is unknown."""
        kind, text = _kind_and_text(piece)
        if cut or kind != self._kind:
            yield from self._flush()
            self._kind = kind
        if cut:
            self._cut = True
            yield PageEvent.of("piece", kind=kind, index=piece.index, text=_MISSING)
        if self._cut:
            begins = _BREAK.search(text)
            self._cut = begins is None
            text = "" if begins is None else text[begins.end() :]
        last = max((match.start() for match in _BREAK.finditer(text)), default=None)
        if len(self._unfinished) > _KEPT_OF_A_LONG_ONE:  # no word is that long
            yield from self._tell(self._unfinished + text)
            self._unfinished = ""
        elif last is None:
            self._unfinished += text
        else:
            # A blank waits for the word behind it, which may say what it is.
            end = last if text[last].isspace() else last + 1
            yield from self._tell(self._unfinished + text[:end])
            self._unfinished = text[end:]

    def _flush(self) -> Iterator[PageEvent]:
        yield from self._tell(self._unfinished)
        self._before, self._shown_length, self._unfinished = "", 0, ""

    def _tell(self, words: str) -> Iterator[PageEvent]:
        text = self._before + words
        redacted_text = redactor().hide(text)
        if len(redacted_text) > self._shown_length:
            yield PageEvent.of("piece", kind=self._kind, index=self._due, text=redacted_text[self._shown_length :])
        needed_text = _keep_needed_end(text)
        self._shown_length = (
            max(self._shown_length, len(redacted_text)) if needed_text == text else len(redactor().hide(needed_text))
        )
        self._before = needed_text


def _kind_and_text(piece: DeltaEvent) -> tuple[str, str]:
    match piece:
        case TextDeltaEvent(text=text):
            return "text", text
        case ReasoningDeltaEvent(text=text):
            return "reasoning", text
        case ToolCallDeltaEvent(call_index=number, tool=tool, arguments_delta=text):
            return f"call {number + 1}: {redactor().hide(tool[:_SHOWN_NAME])}", text
        case _:
            return "", ""


def _keep_needed_end(text: str) -> str:
    """Return the end of a text that is needed to recognize a secret that continues behind it."""
    if (places := opened_in(text)) is not None:
        name_begin, begin = places
        if len(text) - name_begin <= _KEPT_OF_A_LONG_ONE:
            return text[name_begin:]
        return text[name_begin : begin + 1] + text[-_KEPT:]
    length = _KEPT_OF_A_LONG_ONE if _KEY in text else _KEPT
    return text if len(text) <= length else text[-length // 2 :]
