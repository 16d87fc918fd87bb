"""An open interrupt, as people and apps receive it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Final

from pydantic import JsonValue

from turnwright_states import InterruptKind, Turn
from turnwright_states import facts as f
from turnwright_states.amounts import format_number
from turnwright_states.fact import PublicFields, allow
from turnwright_states.inputs import GivenResult
from turnwright_states.payload import freeze, thaw

JsonLine = dict[str, JsonValue]
_NO_TIMES: Final[Mapping[str, float]] = {}


@dataclass(frozen=True, slots=True)
class CallProgress:
    """The latest report of a call that waits for its result: `progress` of `total`, in a unit of the reporter."""

    progress: float
    total: float | None = None
    message: str = ""

    def __str__(self) -> str:
        amount = format_number(self.progress)
        if self.total is not None:
            amount += f" of {format_number(self.total)}"
        return f"{amount}: {self.message}" if self.message else amount


@dataclass(frozen=True, slots=True)
class Interrupt:
    """An open interrupt: the question to a person, and the possible answers."""

    public_fields: ClassVar[PublicFields] = allow(
        *("id", "kind", "tool", "question", "arguments", "choices", "expires_at", "call", "key", "approvals"),
        *("progress", "rules"),
    )
    private_fields: ClassVar[frozenset[str]] = frozenset(
        {"grant", "approved_by", "approvals_so_far", "otherwise", "schema", "restricted", "turn_started_at", "asked_at"}
    )

    id: str
    kind: InterruptKind
    #: The tool whose call asks, also in a sub-agent's turn.
    tool: str = ""
    #: The words of the question: those of the tool or the hook that asks, or `may erase run?`.
    question: str = ""
    arguments: JsonLine | None = None
    choices: tuple[str, ...] = ()
    grant: str | None = None
    #: Seconds since the Unix epoch. After that, resuming the turn rejects it (stops a doom loop).
    expires_at: float | None = None
    #: The id of the call that asks, after those of the sub-agents' calls that lead to it: `call00001:call00002`. It is
    #: empty for a doom loop.
    call: str = ""
    #: The call's key, `TURN:CALL[:CALL...]`: its idempotency key, by which `settle` finds it. Empty for a doom loop.
    key: str = field(default="", compare=False)
    #: The number of people who must still approve, and those who have approved.
    approvals: int = 1
    approved_by: tuple[str, ...] = ()
    #: The approvals so far, with their channels and times, those in the inbox too: without those from before a
    #: sub-agent's last pause.
    approvals_so_far: tuple[f.Answered, ...] = ()
    #: The result if none comes before `expires_at`, and the JSON Schema of a result.
    otherwise: GivenResult | None = None
    schema: JsonLine | None = None
    #: The latest report of the call, from outside.
    progress: CallProgress | None = None
    #: Whether the app must authorize the answer.
    restricted: bool = False
    #: The rules that an approval allows to break.
    rules: tuple[str, ...] = ()
    #: When the turn's first step began, in UTC (RFC 3339): links are void for another turn of the same id.
    turn_started_at: str = ""
    #: When it was asked, in seconds since the Unix epoch, as far as the journal knows it.
    asked_at: float | None = field(default=None, compare=False)

    @property
    def is_shared(self) -> bool:
        """Whether several people must approve, each with an answer of their own."""
        return self.approvals > 1 or bool(self.approved_by)

    @property
    def may_cover_equal_calls(self) -> bool:
        """Whether an approval may cover equal calls too: one person's, of a call of the turn, without rules."""
        is_own = self.kind is InterruptKind.APPROVAL and ":" not in self.call
        return is_own and not self.is_shared and not self.rules

    @classmethod
    def of(
        cls,
        turn_id: str,
        turn: Turn,
        interrupt: f.InterruptRecord,
        started_at: str = "",
        asked_at: Mapping[str, float] = _NO_TIMES,
    ) -> "Interrupt":
        """Return an interrupt of a folded turn with the arguments of its call, or of the sub-agent's."""
        call = turn.batch.get(interrupt.call)
        arguments = interrupt.arguments if call is None or interrupt.forwarded else call.arguments
        answers = () if call is None else tuple(fact for fact in call.answers if fact.interrupt == interrupt.id)
        path = f"{interrupt.call}:{interrupt.path}" if interrupt.path else interrupt.call
        return cls(
            id=interrupt.id,
            kind=interrupt.kind,
            tool=interrupt.tool,
            question=interrupt.question or default_question(interrupt.tool, interrupt.kind),
            arguments=None if arguments is None else freeze(dict(arguments)),
            choices=interrupt.choices,
            grant=interrupt.grant,
            expires_at=interrupt.expires_at,
            call=path,
            key=f"{turn_id}:{path}" if path else "",
            approvals=interrupt.approvals,
            approved_by=interrupt.approved_by,
            approvals_so_far=answers,
            otherwise=interrupt.otherwise,
            schema=None if interrupt.schema is None else freeze(dict(interrupt.schema)),
            restricted=interrupt.restricted,
            rules=tuple(verdict.rule for verdict in interrupt.rules),
            turn_started_at=started_at,
            asked_at=asked_at.get(interrupt.id),
        )

    @classmethod
    def all_of(
        cls, turn_id: str, turn: Turn, started_at: str = "", asked_at: Mapping[str, float] = _NO_TIMES
    ) -> tuple["Interrupt", ...]:
        """Return the open interrupts of a folded turn, in the order of their calls.

        Calls run side by side: the order in which they ask is chance, and after a crash it may be another one.
        """
        places = {name: place for place, name in enumerate(turn.batch)}
        interrupts = sorted(turn.interrupts.values(), key=lambda interrupt: places.get(interrupt.call, -1))
        return tuple(cls.of(turn_id, turn, interrupt, started_at, asked_at) for interrupt in interrupts)

    def to_json(self) -> JsonLine:
        """Return the interrupt as an element of `interrupts`."""
        line: JsonLine = {"id": self.id, "kind": str(self.kind), "tool": self.tool}
        if self.call:
            line |= {"call": self.call, "key": self.key}
        if self.is_shared:
            line["approvals"] = self.approvals
        if self.question:
            line["question"] = self.question
        if self.arguments is not None and self.kind is not InterruptKind.QUESTION:
            line["arguments"] = thaw(self.arguments)
        if self.progress is not None:
            line["progress"] = {name: value for name, value in asdict(self.progress).items() if value not in (None, "")}
        line["choices"] = list(self.choices)
        if self.expires_at is not None:
            line["expires_at"] = self.expires_at
        if self.rules:
            line["rules"] = list(self.rules)
        return line


def default_question(tool: str, kind: InterruptKind = InterruptKind.APPROVAL) -> str:
    """Return the question about a call whose tool and hooks have no words of their own."""
    return f"{tool} waits for its result" if kind is InterruptKind.RESULT else f"may {tool} run?"
