"""The public API is a list that somebody wrote down."""

import subprocess
import sys

import pytest

import turnwright
import turnwright.model
import turnwright.tools
import turnwright_states


@pytest.mark.parametrize("package", [turnwright, turnwright.model, turnwright.tools, turnwright_states])
def test_every_exported_name_is_there_once(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    assert [name for name in names if not hasattr(package, name)] == []
    assert len(names) == len(set(names))


def test_importing_turnwright_loads_no_http_client_and_no_command_line() -> None:
    heavy = ("httpx", "typer", "rich", "tenacity", "pydantic_settings", "psycopg", "mcp", "pydantic_ai", "ag_ui")
    code = f"import sys, turnwright; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_names_of_the_design_are_public() -> None:
    assert {"Agent", "Engine", "tool"} <= set(turnwright.__all__)
    assert "OpenAIChat" in turnwright.model.__all__
    assert {"Limits", "ModelReplied", "Started", "ToolCall", "TurnMachine"} <= set(turnwright_states.__all__)
