"""Asks the person at the terminal for the answers that a paused turn waits for."""

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from turnwright._base.frozen import unique_keys
from turnwright._base.words import explain_json_error
from turnwright.journal.answers import Answer, approve, reject, settled
from turnwright.journal.questions import ALWAYS_WORDS, MARK, shown_arguments, words
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import Decision, InterruptKind
from turnwright_states.payload import thaw

from .process import echo, spell
from .screen import print_lines, print_to_the_end, somebody_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnwright.journal.result import TurnResult

#: Seconds after a question appears in which typed keys are ignored: they were meant for something else.
_UNREAD: Final = 0.5
#: Seconds after which a wait for a key looks for signals.
_WAKE: Final = 0.1
#: The keys of each kind of interrupt, with what they do. A question takes a text instead.
_KEYS: Final[Mapping[InterruptKind, Mapping[str, tuple[str, Decision | None]]]] = {
    InterruptKind.DOOM_LOOP: {
        "g": ("go on", Decision.GO_ON),
        "a": ("go on, and never ask again in this turn", Decision.ALWAYS),
        "s": ("stop the turn", Decision.STOP),
    },
    InterruptKind.UNKNOWN_OUTCOME: {
        "r": ("run the call again", Decision.RERUN),
        "u": ("report an unknown outcome to the model", Decision.UNKNOWN),
        "s": ("give its result, because you know how it ended", None),
    },
    InterruptKind.RESULT: {
        "s": ("give its result", None),
        "r": ("run the call again", Decision.RERUN),
        "n": ("give up: reject the call", Decision.REJECT),
    },
}
_ALWAYS: Final = "a"
_GRANT_KEYS: Final[Mapping[str, tuple[str, Decision | None]]] = {
    "y": ("approve", Decision.APPROVE),
    "n": ("reject", Decision.REJECT),
    "r": ("reject, with a note to the model: what to change", None),
}
_APPROVAL_KEYS: Final[Mapping[str, tuple[str, Decision | None]]] = {
    **_GRANT_KEYS,
    _ALWAYS: (f"always: {ALWAYS_WORDS.lower()}", Decision.APPROVE),
    "e": ("edit the arguments, then approve or reject", None),
}
#: The words that mean a key.
_SPELLINGS: Final = {"y": "yes", "n": "no", "r": "reject", "e": "edit", "a": "always", "q": "quit"}
_QUIT: Final = "q"
_QUIT_WORDS: Final = "quit: leave the turn paused"


def can_ask(*, no_input: bool = False, as_json: bool = False) -> bool:
    """Return whether a person at a terminal can be asked."""
    return not no_input and not as_json and somebody_types()


def ask(result: "TurnResult") -> dict[str, str | Answer] | None:
    """Ask for each open interrupt of a paused turn. Returns None if the person quits, and then nothing is answered.

    A question that was not shown to its end cannot be answered. Keys typed before it was shown are ignored. Raises
    `KeyboardInterrupt` for Ctrl-C.
    """
    answers: dict[str, str | Answer] = {}
    waiting = [interrupt for interrupt in result.interrupts if interrupt.id not in result.answered]
    for number, interrupt in enumerate(waiting, start=1):
        place = f" ({number} of {len(waiting)})" if len(waiting) > 1 else ""
        with _interruptible():
            answer = _ask_one(interrupt, place)
        if answer is None:
            return None
        answers[interrupt.id] = answer
    return answers


def read_line(prompt: str) -> str | None:
    """Read a line from the terminal; None at the end of the input. Raises `KeyboardInterrupt` for Ctrl-C.

    It blocks the event loop. That is intended: nothing is driven while a person types, and line editing and Ctrl-C
    work in the main thread alone.
    """
    try:
        import readline  # noqa: F401, PLC0415 (it gives `input` line editing, where Python has it)
    except ImportError:
        edits = False
    else:
        edits = True
    with _interruptible():
        while True:
            try:
                with _key_awaited(prompt, by_key=edits):
                    return input(prompt)
            except EOFError:
                echo()
                return None
            except UnicodeDecodeError:
                echo("That is not UTF-8 text.")


@contextmanager
def _key_awaited(prompt: str, *, by_key: bool) -> "Iterator[None]":
    """Show the prompt, and wait for the first key, or for a whole line, before `input` is called.

    `input` waits in C. A Ctrl-C that comes just before that has no effect until the next key, and one that comes while
    Python waits has. With `by_key` the terminal gives each key at once, as line editing needs it.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        if by_key:
            _set_local_flags(descriptor, before, ~(termios.ICANON | termios.ECHO))
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while not select.select([descriptor], [], [], _WAKE)[0]:
            pass
        if by_key:
            _set_local_flags(descriptor, before, ~termios.ICANON)
        getattr(sys.stdout, "styled", sys.stdout.write)("\r")  # `input` prints the prompt again
        sys.stdout.flush()
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _set_local_flags(descriptor: int, before: "list[int | list[bytes | int]]", flags: int) -> None:
    inputs, outputs, controls, local, *speeds = before
    if isinstance(local, int):
        termios.tcsetattr(descriptor, termios.TCSANOW, [inputs, outputs, controls, local & flags, *speeds])


@contextmanager
def _interruptible() -> "Iterator[None]":
    """Have Ctrl-C raise `KeyboardInterrupt`. The event loop's own handler would only cancel its task later."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ask_one(interrupt: Interrupt, place: str) -> str | Answer | None:
    is_question = interrupt.kind is InterruptKind.QUESTION
    first, *more_lines = spell(words(interrupt, choices=not is_question)).split("\n")
    lines = ["", f"  {interrupt.id}{place}: {first}", *(f"    {line}" for line in more_lines)]
    lines += [f"    {number}  {spell(choice)}" for number, choice in enumerate(interrupt.choices, 1) if is_question]
    if not print_to_the_end(lines):
        return None
    if is_question:
        return _read_answer(interrupt)
    keys = _keys_of(interrupt)
    print_lines([f"    {key}  {text}" for key, (text, _) in keys.items()] + [f"    {_QUIT}  {_QUIT_WORDS}"])
    _ignore_earlier_keys()
    new_arguments: dict[str, JsonValue] | None = None
    while True:
        key = _read_key([*keys, _QUIT])
        if key == _QUIT:
            return None
        decision = keys[key][1]
        if decision is not None:
            is_approved = decision is Decision.APPROVE
            return approve(arguments=new_arguments, always=key == _ALWAYS) if is_approved else Answer(decision)
        if key == "e":
            new_arguments = (
                _edit(interrupt.arguments or {} if new_arguments is None else new_arguments) or new_arguments
            )
            continue
        if key == "s":
            result = read_line("  Result: ")
            if result is not None and result.strip():
                return settled(result.strip())
            continue
        note = read_line("  Note to the model: ")
        if note is not None and note.strip():
            return reject(note.strip())


def _keys_of(interrupt: Interrupt) -> Mapping[str, tuple[str, Decision | None]]:
    """Return the keys that answer an interrupt: the words of each, and its decision if it needs no more."""
    if interrupt.kind is not InterruptKind.APPROVAL:
        return _KEYS.get(interrupt.kind, _GRANT_KEYS)
    return {key: row for key, row in _APPROVAL_KEYS.items() if key != _ALWAYS or interrupt.may_cover_equal_calls}


def _read_key(keys: Sequence[str]) -> str:
    """Read one of the keys, or the word that means it. The end of the input means to quit.

    The prompt names the usual keys: an approval that is always is a line above it.
    """
    usual_keys = [key for key in keys if key != _ALWAYS or "y" not in keys]
    while True:
        line = read_line(f"  [{'/'.join(usual_keys)}] ")
        reply = _QUIT if line is None else line.strip().lower()
        for key in keys:
            if reply in (key, _SPELLINGS.get(key)):
                return key
        print_lines([f"  Answer {', '.join(usual_keys[:-1])} or {usual_keys[-1]} ({_QUIT_WORDS})."])


def _edit(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Let the person edit the arguments of a call, and show the result. Returns None if nothing is to change."""
    try:
        new_arguments = json.loads(_edit_text(json.dumps(thaw(arguments), indent=2)), object_pairs_hook=unique_keys)
    except (OSError, subprocess.SubprocessError) as error:
        why = spell(str(error).removesuffix("."))
        print_lines([f"  The editor failed: {why}. Set EDITOR to another one."])
        return None
    except (ValueError, RecursionError) as error:
        print_lines([f"  Nothing changed, because that is not JSON: {spell(explain_json_error(error))}"])
        return None
    if not isinstance(new_arguments, dict):
        print_lines(["  Nothing changed: the arguments must be one JSON object."])
        return None
    lines = [
        "  With your changes it would run with:",
        *(f"    {MARK}{spell(line)}" for line in shown_arguments(new_arguments)),
    ]
    return new_arguments if print_to_the_end(lines) else None


def _edit_text(text: str) -> str:
    """Return the text as the person saves it in their editor: `$VISUAL`, `$EDITOR`, or `vi`."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:  # which nobody else may read
        file = Path(folder) / "arguments.json"
        file.write_text(text, encoding="utf-8")
        subprocess.run([*shlex.split(editor), str(file)], check=True)  # noqa: S603 (the person's own editor)
        return file.read_text(encoding="utf-8")


def _read_answer(interrupt: Interrupt) -> str | None:
    """Read the answer to a question: a text, or the number of a choice."""
    print_lines(["    (Ctrl-D: leave the turn paused)"])
    _ignore_earlier_keys()
    while (line := read_line("  Answer: ")) is not None:
        text = line.strip()
        with suppress(ValueError, IndexError):
            if int(text) > 0:
                return interrupt.choices[int(text) - 1]
        if text:
            return text
    return None


def _ignore_earlier_keys() -> None:
    sys.stdout.flush()
    time.sleep(_UNREAD)
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
