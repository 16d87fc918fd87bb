"""A visit to a desk: one message of a person, what the model replies, and how people answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from turnwright.context import JsonObject
from turnwright.journal.answers import Answer
from turnwright.model.protocol import ModelResponse

#: A reply of the model.
Reply = ModelResponse | str


@dataclass(frozen=True, slots=True)
class Visit:
    """One turn of a desk, as a value: visits that follow each other are a case, which can be played again."""

    replies: tuple[Reply, ...] = ()
    """The replies of the model, one for each request. After the last one it answers "Done."."""
    prompt: str = "hi"
    """The message of the person."""
    metadata: JsonObject = field(default_factory=dict)
    """The metadata of the turn."""
    session: str = "main"
    """The session of the turn."""
    answers: tuple[Mapping[str, Answer], ...] = ()
    """The answers of people, a mapping for each pause. Afterwards each interrupt gets its first decision."""
    people: tuple[str, ...] = ()
    """The people who answer, one for each pause, where the app authorizes them. Others are `person-1` and so on."""
    dies_at: int | None = None
    """The process dies before the result of this call is recorded, counted from 1, and another one resumes the turn.

    Visits that begin together do not die."""
    interjection: tuple[int, str | None] | None = None
    """While this call runs, counted from 1, the person says this, or aborts the turn if the text is empty.

    None aborts the turn, too, and the calls get no time to finish."""
    endless: bool = False
    """Whether the last reply is repeated for ever."""
    together: bool = False
    """Whether it begins with the visit before it, and not after its end."""


#: Visits, which follow each other from the beginning of the outside world.
Visits = tuple[Visit, ...]
