"""The actions that a turn allows now, and the advised one after its end."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from turnwright._base.ids import root_of
from turnwright.errors import TurnNotFoundError
from turnwright.journal.inbox import answers_in, has_request, steers, with_inbox
from turnwright.journal.result import TurnResult, result_of
from turnwright.runtime.engine import Engine
from turnwright.store import Annotation, InboxItem, InboxKind, Store, TurnRow
from turnwright.store.protocol import is_read_only
from turnwright.transcript.interrupt import Interrupt
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_inspector.http.questions import need_shown
from turnwright_states import EndReason, InterruptKind, Outcome, State

from .cli_commands import begun_elsewhere, continue_command, fork_command, fork_place, resume_command, show_command
from .turn_record import TurnRecord, annotations_of

#: The kinds that may be approved or rejected, with words for the model.
_APPROVALS: Final = frozenset({InterruptKind.APPROVAL, InterruptKind.GRANT})


@dataclass(frozen=True, slots=True)
class PostedItem:
    """A failed action: `message` is the error, `fields` the typed texts for another try."""

    message: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An open question. `name` is its name in the answer; `answered` is whether an answer waits in the inbox.

    `agent` is the name of the agent that asks.
    """

    name: str
    pending: Interrupt
    answered: bool
    agent: str = ""

    @property
    def form(self) -> str:
        """The form of its answer: `question`, `approval`, `doom_loop` or `unknown_outcome`."""
        return "approval" if self.pending.kind in _APPROVALS else str(self.pending.kind)


@dataclass(frozen=True, slots=True)
class AvailableActions:
    """The actions that a turn allows now. A sub-agent's turn is answered, steered and stopped in its `root`.

    `live`: it has not ended. `due`: it could continue, and has no driver. `driven`: it has a driver. `drives`: this
    process can run it. `trouble` is the last error of that. The `messages` and the request to stop (`stopping`)
    wait in the inbox. `fork_at` is the place to fork it from. `command` resumes it on a command line, and `show` shows
    all of it there; `elsewhere`: another program started it, and has its model and tools. `annotations` is None where
    the store keeps none.
    """

    turn: str
    root: str
    live: bool
    paused: bool
    due: bool
    driven: bool
    drives: bool
    stopping: bool
    questions: tuple[OpenQuestion, ...]
    messages: tuple[str, ...]
    fork_at: int | None
    command: str
    show: str
    elsewhere: bool
    trouble: str
    annotations: tuple[Annotation, ...] | None

    @property
    def is_root(self) -> bool:
        return self.turn == self.root

    @property
    def nothing(self) -> bool:
        return not self.live and self.fork_at is None


async def available_actions(
    engine: Engine, background: BackgroundTurns, turn: TurnRecord, upto: int, *, store: str
) -> AvailableActions:
    """Return the actions that a turn, shown up to the fact `upto`, allows now. `store` is the address for commands.

    Raises `StoreError`.
    """
    name, root = turn.row.id, root_of(turn.row.id)
    is_fixed = is_read_only(engine.store)
    live = turn.row.status.outcome is None
    is_paused = turn.row.status.state is State.PAUSED
    # A journal with a fault cannot always be folded to its end.
    result = result_of(name, turn.journal) if turn.cut and not turn.fault else turn.result
    questions, inbox = await _asking(engine, result, turn.inbox) if live and not is_fixed else ((), turn.inbox)
    answered_ids = answers_in(inbox, [replace(interrupt, id=name) for name, interrupt in questions])
    is_requested = has_request(turn.inbox)
    elsewhere = begun_elsewhere(turn)
    return AvailableActions(
        turn=name,
        root=root,
        live=live,
        paused=is_paused,
        due=live and not turn.driven and name == root and (not is_paused or is_requested),
        driven=turn.driven,
        drives=background.drives and not is_fixed,
        stopping=live and any(item.kind is InboxKind.ABORT for item in turn.inbox),
        questions=tuple(
            [
                await question_of(engine.store, turn.row, call, interrupt, answered=call in answered_ids)
                for call, interrupt in questions
            ]
        ),
        messages=tuple(steers(turn.inbox).values()) if live else (),
        fork_at=None if is_fixed else fork_place(turn, upto),
        command=resume_command(name, store, elsewhere=elsewhere),
        show=show_command(name, store),
        elsewhere=elsewhere,
        trouble=background.troubles.get(root, "") if live else "",
        annotations=await annotations_of(engine.store, name),
    )


async def question_of(store: Store, row: TurnRow, name: str, interrupt: Interrupt, *, answered: bool) -> OpenQuestion:
    """Return a turn's question with the agent and the tool that ask: a sub-agent's, if it was forwarded.

    `name` is its name in the answer. Raises `StoreError`.
    """
    agent = row.agent
    *calls, _ = name.split("/")
    with suppress(TurnNotFoundError):  # deleted since
        if calls:
            agent = (await store.get(":".join((root_of(row.id), *calls)))).agent
    return OpenQuestion(name, interrupt, answered, agent)


async def need_shown_whole(engine: Engine, turn_id: str, names: Collection[str]) -> None:
    """Raise `InvalidAnswerError` if one of these interrupts is an approval that no page shows whole."""
    for interrupt in (await engine.get(turn_id)).interrupts:
        if interrupt.id in names:
            need_shown(interrupt.id, interrupt)


async def _asking(
    engine: Engine, result: TurnResult, inbox: Sequence[InboxItem]
) -> tuple[list[tuple[str, Interrupt]], Sequence[InboxItem]]:
    root, _, calls = result.id.partition(":")
    if not calls or not result.interrupts:
        return [(interrupt.id, interrupt) for interrupt in with_inbox(result.interrupts, inbox)], inbox
    # What a sub-agent asks is answered where a person began.
    interrupts_by_id = {interrupt.id: interrupt for interrupt in (await engine.get(root)).interrupts}
    names = [(f"{calls.replace(':', '/')}/{interrupt.id}", interrupt) for interrupt in result.interrupts]
    return [
        (
            name,
            replace(
                interrupt,
                progress=interrupts_by_id[name].progress,
                approvals_so_far=interrupts_by_id[name].approvals_so_far,
            ),
        )
        for name, interrupt in names
        if name in interrupts_by_id
    ], await engine.store.inbox(root)


#: Endings after which a new turn may go on where this one stopped.
_CONTINUED: Final = frozenset({EndReason.TRUNCATED, EndReason.ABORTED})
#: Failures that may have passed.
_RETRIED: Final = frozenset({EndReason.MODEL_ERROR, EndReason.EMPTY_REPLY, EndReason.CRASHED})


@dataclass(frozen=True, slots=True)
class Advice:
    """An advised action. A retry forks the turn after the fact `retry_at`; without one the turn is continued.

    `text` is the suggested message of the new turn; empty where only a person knows what was missing. `command` does it
    on a command line.
    """

    command: str
    retry_at: int | None = None
    text: str = ""


def advice_of(turn: TurnRecord, store: str) -> Advice | None:
    """Return what can be done next with an ended turn; None for any other, an earlier place, and a sub-agent's turn.

    `store` is the address for commands.
    """
    reason, outcome = turn.result.reason, turn.result.outcome
    if reason is None or turn.cut or turn.fault or turn.started.parent_turn is not None:
        return None
    if reason in _RETRIED:
        at = retry_place(turn)
        return None if at is None else Advice(fork_command(turn, at, store), at)
    if outcome in (Outcome.CAP_HIT, Outcome.DOOM_LOOP) or reason in _CONTINUED:
        command = continue_command(turn.row.id, store, elsewhere=begun_elsewhere(turn))
        return Advice(command, text="" if outcome is Outcome.DOOM_LOOP else "Go on.")
    return None


def retry_place(turn: TurnRecord) -> int | None:
    """Return the last place to fork a failed turn from, before the attempts of its last step; None without one."""
    attempts = turn.steps[-1].attempts if turn.steps else []
    return fork_place(turn, attempts[0].seq - 1 if attempts else turn.length)
