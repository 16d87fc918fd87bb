"""The pure machine under a loop of your own, without asyncio: `python examples/own_loop.py` (no network, no key).

Only `turnwright_states` is used. Your loop keeps four promises: it feeds what happened, in order; it writes down the
facts that `feed` returns before it does anything else; then it does what `action` says; and after a crash it folds
what it wrote and continues. Here the journal is a file of one line a fact, and the process ends twice before the turn
does: while a person is asked, and in the middle of a tool.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import monotonic

from msgspec.structs import replace
from pydantic import JsonValue

from turnwright_states import (
    AnsweredInput,
    AwaitPerson,
    Call,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Conclude,
    ConcludedInput,
    Decision,
    Halt,
    Input,
    InterruptKind,
    Limits,
    ModelRepliedInput,
    RunTools,
    StartedInput,
    ToolCall,
    TurnMachine,
)
from turnwright_states.fact_parser import parse_fact
from turnwright_states.facts import Fact


class DiedError(Exception):
    """The process has died. Only the file is left."""


class Journal:
    """One line a fact. A store of yours would append the facts of one event in one transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, facts: Iterable[Fact]) -> None:
        """Write the facts of one event down."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{fact.kind} {fact.payload()}\n" for fact in facts))

    def facts(self) -> Iterator[Fact]:
        """Read every fact."""
        # Not `splitlines`: a text may hold other line ends than ours.
        for seq, line in enumerate(self._path.read_text(encoding="utf-8").split("\n")[:-1], start=1):
            kind, _, payload = line.partition(" ")
            yield parse_fact(kind, payload, seq)


class Loop:
    """Your loop. `dies_in` names the tool in which the process dies."""

    def __init__(self, machine: TurnMachine, journal: Journal, *, dies_in: str = "") -> None:
        self.machine = machine
        self.journal = journal
        self.dies_in = dies_in
        self.start = monotonic() - machine.turn.elapsed

    def feed(self, event: Input) -> None:
        """Feed an input with the time, and store the facts."""
        elapsed = monotonic() - self.start
        self.journal.append(self.machine.feed(replace(event, elapsed=elapsed)))

    def run(self) -> Halt | AwaitPerson:
        """Perform the machine's actions until the turn ends or pauses."""
        while True:
            action = self.machine.action
            match action:
                case Halt() | AwaitPerson():
                    return action
                case CallModel():
                    self.feed(ask_model(tools=action.tools))
                case Conclude():
                    self.feed(
                        ConcludedInput(
                            text=f"I stop here ({action.reason}). old.log may be gone; check before you continue."
                        )
                    )
                case RunTools():
                    for call in action.calls:
                        self.call(call)

    def call(self, call: Call) -> None:
        """Run one call; store its start before and its result after."""
        if call.state is CallState.STARTED:  # by a process that died
            result = "outcome unknown: the process died while it ran; verify before retrying"
            self.feed(CallSettledInput(call=call.id, status=CallStatus.UNKNOWN, result=result))
        elif call.name == "delete" and not call.answers:
            self.feed(CallWaitingInput(call=call.id, interrupt_kind=InterruptKind.APPROVAL))
        else:
            self.feed(CallStartedInput(call=call.id))
            if call.name == self.dies_in:
                raise DiedError
            self.feed(CallSettledInput(call=call.id, result=f"{call.name}({json.dumps(dict(call.arguments))}): done"))


def ask_model(*, tools: bool) -> Input:
    """A scripted client in place of your provider's: this model always wants to delete the same file."""
    arguments: Mapping[str, JsonValue] = {"path": "old.log"}
    return (
        ModelRepliedInput(calls=(ToolCall(name="delete", arguments=arguments),))
        if tools
        else ModelRepliedInput(text="No.")
    )


def main() -> None:
    """One turn, over three processes."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "turn.jsonl")
        machine, facts = TurnMachine.start(StartedInput(prompt="Delete old.log", limits=Limits(steps=2)))
        journal.append(facts)

        rests = Loop(machine, journal).run()
        assert isinstance(rests, AwaitPerson)  # noqa: S101
        print("process 1: waits for", ", ".join(interrupt.id for interrupt in rests.interrupts))

        second = Loop(TurnMachine.resume(journal.facts()), journal, dies_in="delete")
        second.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
        try:
            second.run()
        except DiedError:
            print("process 2: was answered, and died in delete")

        third = Loop(TurnMachine.resume(journal.facts()), journal)
        while isinstance(third.run(), AwaitPerson):
            interrupt = next(iter(third.machine.turn.interrupts))
            third.feed(AnsweredInput(interrupt=interrupt, decision=Decision.REJECT, text="once is enough"))
        ended = third.run()
        assert isinstance(ended, Halt)  # noqa: S101
        print(f"process 3: {ended.outcome}, {ended.reason} at {third.machine.turn.counters.steps} steps")
        print("journal:  ", " ".join(fact.kind for fact in journal.facts()))
        print("asyncio:  ", "loaded" if "asyncio" in sys.modules else "not loaded")


if __name__ == "__main__":
    main()
