"""The store, the requests and the tools of a process that a witness watches."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import anyio

from turnwright.model.protocol import ModelRequest
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, InboxItem, NewTurn, Status, Store
from turnwright.tools import Tool, ToolContext, ToolError, builtin_tools, tool
from turnwright.transcript.pairing import UnpairedError, check_pairing
from turnwright_states.facts import Fact

from .kill import kill_this_process
from .witness import Witness
from .wrapper import StoreWrapper


class NotingStore(StoreWrapper):
    """A store that records each acknowledged write."""

    def __init__(self, inner: Store, witness: Witness) -> None:
        super().__init__(inner)
        self._witness = witness

    @property
    def inline(self) -> bool:
        """See `StoreWrapper.inline`. Nothing here suspends."""
        return self.inner.inline

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        claim = await super().create(new, facts, status, driven=driven)
        self._note(claim, 0, facts)
        return claim

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        claim = await super().claim(turn_id, abandoned=abandoned)
        self._witness.note("claimed", turn_id, claim.epoch, claim.seq)
        return claim

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        before = claim.seq
        waiting = await super().append(claim, facts, status, consumed)
        self._note(claim, before, facts)
        return waiting

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        await super().release(claim, crashed=crashed)
        self._witness.note("released", claim.turn, claim.epoch)

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        in_the_way = await super().post(*items)
        if not in_the_way:
            self._witness.note_all(
                [("posted", item.turn, item.id, json.loads(item.payload).get("decision", "-")) for item in items]
            )
        return in_the_way

    def _note(self, claim: Claim, before: int, facts: Sequence[Fact]) -> None:
        first = [("claimed", claim.turn, claim.epoch, 0)] if before == 0 else []
        wrote = [
            ("wrote", claim.turn, claim.epoch, seq, fact.kind, checksum(fact.payload()))
            for seq, fact in enumerate(facts, start=before + 1)
        ]
        self._witness.note_all([*first, *wrote])


def checksum(text: str) -> str:
    """Return eight letters that differ for different texts."""
    return f"{zlib.crc32(text.encode()):08x}"


def paired(request: ModelRequest) -> str:
    """Return `paired`, or `unpaired` if a call of the request has no result."""
    try:
        check_pairing(request.messages)
    except UnpairedError:
        return "unpaired"
    return "paired"


def watched_tools(witness: Witness, *, dies_in: int | None = None) -> list[Tool]:
    """Return tools that take a moment, so that a kill may come meanwhile. The process dies in the `dies_in`-th run."""
    ran = 0

    async def work(context: ToolContext, n: int) -> str:
        nonlocal ran
        ran += 1
        with witness.runs(context):
            await anyio.sleep(0.001 * (n % 4))
            if ran == dies_in:
                kill_this_process()
        return f"did {n}"

    @tool(idempotent=True)
    async def put(context: ToolContext, n: int) -> str:
        """Put something; a repetition is harmless."""
        return await work(context, n)

    @tool
    async def send(context: ToolContext, n: int) -> str:
        """Send something; a repetition would be a fault."""
        return await work(context, n)

    @tool(on_crash="ask")
    async def pay(context: ToolContext, n: int) -> str:
        """Pay something; a person decides about a repetition."""
        return await work(context, n)

    @tool(needs_approval=True)
    async def erase(context: ToolContext, n: int) -> str:
        """Erase something, with approval."""
        return await work(context, n)

    @tool
    async def dwell(context: ToolContext, n: int) -> str:
        """Wait for so many milliseconds."""
        with witness.runs(context):
            await anyio.sleep(n / 1000)
        return f"dwelt {n} ms"

    @tool
    async def fail(context: ToolContext, n: int) -> str:
        """Fail always."""
        raise ToolError(f"{await work(context, n)}, and failed")

    (ask,) = (builtin for builtin in builtin_tools(Path()) if builtin.name == "ask_user_input")
    return [put, send, pay, erase, dwell, fail, ask, *_gated(witness)]


def _gated(witness: Witness) -> list[Tool]:
    """Return tools that run until a test opens their gate: no plan draws them."""

    async def wait(context: ToolContext, n: int) -> str:
        with witness.runs(context):
            await witness.gate_opened(n)
        return f"went through gate {n}"

    @tool
    async def hold(context: ToolContext, n: int) -> str:
        """Wait for this gate; a repetition would be a fault."""
        return await wait(context, n)

    @tool(idempotent=True)
    async def keep(context: ToolContext, n: int) -> str:
        """Wait for this gate; a repetition is harmless."""
        return await wait(context, n)

    @tool(on_crash="ask")
    async def stay(context: ToolContext, n: int) -> str:
        """Wait for this gate; a person decides about a repetition."""
        return await wait(context, n)

    return [hold, keep, stay]
