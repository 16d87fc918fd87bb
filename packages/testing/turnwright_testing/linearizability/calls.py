"""The calls of a history of a store, and their results, as values that can be written to a file."""

from typing import Literal

from msgspec import Struct, structs

#: The columns that are read of a turn.
Reading = Literal["facts", "get", "inbox", "is_driven"]


class _Value(Struct, frozen=True):
    """Shows only the fields that are set."""

    def __str__(self) -> str:
        fields = structs.fields(type(self))
        values = [(field.name, getattr(self, field.name)) for field in fields]
        shown_values = ", ".join(
            f"{name}={value!r}" for (name, value), field in zip(values, fields, strict=True) if value != field.default
        )
        return f"{type(self).__name__}({shown_values})"


class Create(_Value, frozen=True, tag=True):
    """`Store.create`, by the process `owner`. `marks` are its facts (see `mark_of`), `number` is its status."""

    turn: str
    owner: str
    marks: tuple[str, ...]
    number: int
    session: str | None = None
    driven: bool = True


class TakeClaim(_Value, frozen=True, tag=True):
    """`Store.claim`, by the process `owner`. `abandoned` are the owners whose turns may be taken."""

    turn: str
    owner: str
    abandoned: tuple[str, ...] = ()


class Release(_Value, frozen=True, tag=True):
    """`Store.release` of the claim with this epoch."""

    turn: str
    epoch: int
    crashed: bool = False


class Append(_Value, frozen=True, tag=True):
    """`Store.append` under the claim with this epoch and seq. `number` is the status, which `ends` the turn."""

    turn: str
    epoch: int
    seq: int
    marks: tuple[str, ...]
    number: int
    ends: bool = False
    consumed: tuple[str, ...] = ()


class Post(_Value, frozen=True, tag=True):
    """`Store.post` of (id, payload) pairs."""

    turn: str
    items: tuple[tuple[str, str], ...]


class Delete(_Value, frozen=True, tag=True):
    """`Store.delete`, by the process `owner`."""

    turn: str
    owner: str


class Read(_Value, frozen=True, tag=True):
    """`Store.facts` after a seq, `get`, `inbox`, or `is_driven` as the process `owner` asks it."""

    turn: str
    what: Reading
    after: int = 0
    owner: str = ""


class Die(_Value, frozen=True, tag=True):
    """The processes with these names look dead from here on, or they may: a dead server notices it late."""

    owners: tuple[str, ...]


#: A call for a turn that is there.
TurnCall = TakeClaim | Release | Append | Post | Delete | Read
#: A call of a client.
ClientCall = Create | TurnCall
StoreCall = ClientCall | Die


class StoreResult(_Value, frozen=True):
    """The result of a call. `status` is `ok`, or says which error it raised.

    `items` are the ids of an inbox or of conflicting items, or the marks of facts. `number` is a status.
    """

    status: Literal["ok", "not_found", "busy", "session_busy", "lease_lost", "error"] = "ok"
    epoch: int = -1
    seq: int = -1
    number: int = -1
    items: tuple[str, ...] = ()
    owner: str | None = None
    #: Of a claim: whether the turn looked crashed. Of a row: whether the turn has ended. Else the answer.
    flag: bool = False
