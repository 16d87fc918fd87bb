"""The page of a session's standing approvals (docs/rules.md#always)."""

import httpx
import pytest
from tests.inspector.conftest import TOKEN, person_at
from tests.secrets_made import SECRETS

from turnwright import Agent, Engine, tool
from turnwright.journal.answers import approve
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_inspector import Token, inspector_app

pytestmark = pytest.mark.anyio

#: A name that looks like a secret, and that pages hide.
SESSION = f"s {SECRETS[3]}"


@tool(needs_approval=True)
async def erase(path: str, password: str = "") -> str:
    """Erase a file."""
    return f"erased {path}{password[:0]}"


async def test_approvals_are_shown_and_revoked() -> None:
    """The page of the session and of the turn lead there. Secrets are hidden, and a foreign form changes nothing."""
    call = asks_for(("erase", {"path": "<x>", "password": "hunter2"}))
    async with Engine(model=ScriptedModel(call, "Done."), tools=[erase], store=MemoryStore()) as engine:
        turn = await engine.run(Agent(name="Tidier"), "Erase.", session=SESSION)
        await engine.resume(turn.id, {"approval-1": approve(always=True)}, by="ann", via="slack")
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            page = (await person.client.get("/approvals", params={"session": SESSION})).text
            for words in (turn.id, "approval-1", "by ann via slack", "erase", "&lt;x&gt;", 'id="revoke"'):
                assert words in page
            assert "hunter2" not in page
            assert SECRETS[3] not in page
            for path in (f"/turns/{turn.id}", f"/session?session={SESSION}"):
                assert 'id="approvals-link"' in (await person.client.get(path)).text
            foreign = await person.client.post("/approvals", data={"session": SESSION})
            assert foreign.status_code == httpx.codes.FORBIDDEN
            assert (await person.does("/approvals", session="nobody")).status_code == httpx.codes.NOT_FOUND
            assert len(await engine.approvals(SESSION)) == 1
            assert "No approval covers" in (await person.does("/approvals", session="s ***")).text
        assert await engine.approvals(SESSION) == []
