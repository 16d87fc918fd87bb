"""The store, the requests and the tools of a process that a witness watches."""

import json
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio

from turnwright.model.protocol import ModelRequest
from turnwright.store import Claim, Store
from turnwright.tools import Tool, ToolContext, ToolError, builtin_tools, tool
from turnwright.tools.later import Later
from turnwright.transcript.pairing import UnpairedError, check_pairing

from .store import kill_this_process
from .witness import Witness
from .wrapper import StoreCall, StoreWrapper

R = TypeVar("R")

#: A job whose result comes from outside, in the witness: `submitted {key}`.
SUBMITTED: Final = "submitted"


class NotingStore(StoreWrapper):
    """A store that records each acknowledged write."""

    def __init__(self, inner: Store, witness: Witness) -> None:
        super().__init__(inner)
        self._witness = witness

    @property
    def inline(self) -> bool:
        """See `StoreWrapper.inline`. Nothing here suspends."""
        return self.inner.inline

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        """Make a call, and write a line once it was acknowledged, if it writes."""
        before = 0 if call.claim is None else call.claim.seq
        result = await super().around(call, make)
        claim = call.claim if call.claim is not None else result
        if isinstance(claim, Claim):
            self._witness.note_all(_lines(call, claim, before))
        elif call.items and not result:  # nothing was in the way
            self._witness.note_all(
                [("posted", item.turn, item.id, json.loads(item.payload).get("decision", "-")) for item in call.items]
            )
        return result


def _lines(call: StoreCall, claim: Claim, before: int) -> list[tuple[object, ...]]:
    if call.name == "release":
        return [("released", claim.turn, claim.epoch)]
    if call.name == "claim":
        return [("claimed", claim.turn, claim.epoch, claim.seq)]
    first = [("claimed", claim.turn, claim.epoch, 0)] if before == 0 else []
    wrote = [
        ("wrote", claim.turn, claim.epoch, seq, fact.kind, checksum(fact.payload()))
        for seq, fact in enumerate(call.facts, start=before + 1)
    ]
    return [*first, *wrote]


def checksum(text: str) -> str:
    """Return eight letters that differ for different texts."""
    return f"{zlib.crc32(text.encode()):08x}"


def describe_pairing(request: ModelRequest) -> str:
    """Return `paired`, or `unpaired` if a call of the request has no result."""
    try:
        check_pairing(request.messages)
    except UnpairedError:
        return "unpaired"
    return "paired"


def watched_tools(witness: Witness, *, dies_in: int | None = None) -> list[Tool]:
    """Return tools that take a moment, so that a kill may come meanwhile. The process dies in the `dies_in`-th run.

    The last three run until a test opens their gate: no plan draws them.
    """
    ran = 0

    async def work(context: ToolContext, n: int) -> str:
        nonlocal ran
        ran += 1
        with witness.runs(context):
            await anyio.sleep(0.001 * (n % 4))
            if ran == dies_in:
                kill_this_process()
        return f"did {n}"

    async def wait(context: ToolContext, n: int) -> str:
        with witness.runs(context):
            await witness.gate_opened(n)
        return f"went through gate {n}"

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

    @tool(idempotent=True)
    async def farm(context: ToolContext, n: int) -> Later:
        """Submit a job under the call's key. Its result comes from outside."""
        witness.note(SUBMITTED, context.idempotency_key)
        await work(context, n)
        return Later(expires_in=None, kept=n)

    (ask,) = (builtin for builtin in builtin_tools(Path()) if builtin.name == "ask_user_input")
    return [
        tool(name="put", description="Put something; a repetition is harmless.", idempotent=True)(work),
        tool(name="send", description="Send something; a repetition would be a fault.")(work),
        tool(name="pay", description="Pay something; a person decides about a repetition.", on_crash="ask")(work),
        tool(name="erase", description="Erase something, with approval.", needs_approval=True)(work),
        tool(name="sign", description="Sign it, with the approval of two people.", needs_approval=True, approvers=2)(
            work
        ),
        dwell,
        fail,
        ask,
        farm,
        tool(name="hold", description="Wait for this gate; a repetition would be a fault.")(wait),
        tool(name="keep", description="Wait for this gate; a repetition is harmless.", idempotent=True)(wait),
        tool(name="stay", description="Wait for this gate; a person decides about a repetition.", on_crash="ask")(wait),
    ]
