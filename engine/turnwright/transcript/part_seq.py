"""The `seq` of a message's part, made of three numbers, and the parts of steps.

They are a fact's place in the journal, a slot after that fact, and how many facts later the part's own fact came. For
most parts the last number is 0. A part that comes before an earlier fact's parts, or after parts that are still
missing, takes a slot reserved for it: a result in call order, the end of a step with results, and a message that came
before the reply.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from pydantic import JsonValue

from turnwright.errors import StoreError
from turnwright.message import AnyPart, FilePart, Message, StepFinishPart, StepStartPart, ToolCallPart
from turnwright_states.facts import StepFinished, StepStarted

#: The width of a fact and of a slot in `seq`. All numbers are exact as floats too, for JavaScript.
FACT: Final = 1 << 32
SLOT: Final = 1 << 16
#: The first slot for messages before the step that has begun.
FIRST_MESSAGE: Final = SLOT >> 1


def fact_of(part: AnyPart) -> int:
    """Return the place in the journal of the fact that made a message's part."""
    return part.seq // FACT + part.seq % SLOT


def kept_seq(slot: int, at: int) -> int:
    """Return the `seq` of a part made by the fact at `at`, in the slot reserved for it."""
    later = at // FACT - slot // FACT
    return slot + (later if later < FIRST_MESSAGE else FIRST_MESSAGE)  # noqa: FURB136 (`min` is a call)


def files_at(at: int, files: Iterable[Mapping[str, JsonValue]], apart: int = 1) -> tuple[FilePart, ...]:
    """Return the parts of files, the first at `at`, the others `apart` from each other. Raises `StoreError`."""
    try:
        return tuple(FilePart.of_json({**file, "seq": at + place * apart}) for place, file in enumerate(files))
    except ValueError as error:
        raise StoreError(f"a file in the journal cannot be read: {error}") from None


# The garbage collector may skip it: facts are in no reference cycle.
class StepFacts(Struct, gc=False):
    """The facts of one step, the second one once it is there, with their places in the journal.

    The parts that say when a step began and ended are made of them when somebody asks: no model receives them.
    """

    started_seq: int
    started: StepStarted
    finished_seq: int = 0
    finished: StepFinished | None = None
    #: Whether a review refused the step's reply.
    refused: bool = False
    #: The index of the step's message.
    place: int = 0

    def show_parts(self, message: Message) -> Message:
        """Return the step's message with the parts for people."""
        fact, parts = self.started, message.parts
        at = self.started_seq * FACT
        start = StepStartPart(seq=at, step_number=fact.number, started_at=fact.started_at, elapsed=fact.elapsed)
        finish = self.finished
        if finish is None:
            return Message(role=message.role, parts=(start, *parts))
        usage, seq, before = finish.usage, self.finished_seq * FACT, 0
        for part in parts:  # plain loops, because a result does this for each step
            if type(part) is ToolCallPart:  # the end comes in the slot after the calls, before the results
                seq = part.seq + SLOT
        if seq != self.finished_seq * FACT:
            seq = kept_seq(seq, self.finished_seq * FACT)
        for part in parts:
            before += part.seq < seq  # a partial text may follow the end
        end = StepFinishPart(
            seq=seq,
            step_number=finish.number,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            seconds=finish.seconds,
            refused=self.refused,
        )
        return Message(role=message.role, parts=(start, *parts[:before], end, *parts[before:]))
