"""A printed command can be copied, and has no password of a store."""

import shlex

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Engine
from turnwright.cli.stores import password_hint, store_flag, without_password
from turnwright.cli.summary import closing_lines
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import tool

LETTERS = st.text("abcXYZ019-_.~%!$&'()*+,;=:? é", min_size=1)
NAMES = st.text("abcdefgh", min_size=1)


@given(user=NAMES, password=LETTERS.map(lambda text: f"<{text}>"), host=NAMES, name=NAMES)
def test_address_is_shown_without_the_password(user: str, password: str, host: str, name: str) -> None:
    place = f"{host}:5432/{name}?sslmode=require"
    for where in (place, host):
        address = f"postgresql://{user}:{password}@{where}"
        assert without_password(address) == f"postgresql://{user}@{where}"
        assert password_hint(address)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql:///turns?user=me&password=x&port=1", "postgresql:///turns?user=me&port=1"),
        ("postgresql:///turns?password=x", "postgresql:///turns"),
        ("postgresql://me@h/t?pass%77ord=x&sslpassword=y", "postgresql://me@h/t"),
        ("postgresql://h?password=a@b", "postgresql://h"),
        ("postgresql://me:a@b@h1:1,h2:2/t", "postgresql://me@h1:1,h2:2/t"),
    ],
)
def test_password_in_the_query_is_hidden(address: str, expected: str) -> None:
    assert without_password(address) == expected
    assert password_hint(address)


@pytest.mark.parametrize(
    "address",
    [
        *("memory:", "memory://", "sqlite:///turns.db", "sqlite:////a/b@c:d.db", "sqlite:///t.db?durability=normal"),
        *("postgresql://me@host:5432/turns?sslmode=require", "postgresql:///turns", "postgresql://[::1]:5432/turns"),
    ],
)
def test_address_without_a_password_is_unchanged(address: str) -> None:
    assert without_password(address) == address
    assert password_hint(address) == ""


def test_store_flag_is_shown_only_if_needed_and_can_be_pasted() -> None:
    assert store_flag("sqlite:///turns.db") == ""
    assert shlex.split(store_flag("sqlite:///my turns.db")) == ["--store", "sqlite:///my turns.db"]


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return path


def test_pause_commands_hide_the_password_and_explain_the_variable() -> None:
    async def pause() -> list[str]:
        model = ScriptedModel(asks_for(("delete_file", {"path": "a"})))
        async with Engine(model=model, tools=[delete_file]) as engine:
            paused = await engine.run(Agent(name="Tester"), "Work")
        return closing_lines(paused, store="postgresql://me:secret@db/turns")

    lines = anyio.run(pause)
    assert any("turnwright resume" in line and "--store postgresql://me@db/turns --approve" in line for line in lines)
    assert [line for line in lines if "PGPASSWORD" in line] == [f"Store: {password_hint('postgresql://me:x@db/t')}."]
    assert not any("secret" in line for line in lines)
