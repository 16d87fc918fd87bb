"""`turnwright mcp serve`, with the SDK's client as the program that starts it."""

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp_types import ElicitResult

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

PAGE = (Path(__file__).parents[3] / "docs" / "mcp-server.md").read_text(encoding="utf-8")
AGENTS = "---\nname: Clerk\ndescription: Pays bills.\n---\nPay what you are asked to pay.\n"
TOOLS = '''
from turnwright import tool

@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    print("a line that is not of the protocol")
    return f"paid {amount}"
'''


@pytest.fixture
def arguments(cli: "Cli") -> list[str]:
    """The arguments of the command, after the interpreter."""
    options = {
        "--agents": cli.write("AGENTS.md", AGENTS),
        "--tools": cli.write("tools.py", TOOLS),
        "--model": "openai/scripted",
        "--store": f"sqlite:///{cli.folder}/turns.db",
    }
    return ["-m", "turnwright", "mcp", "serve", *(str(word) for option in options.items() for word in option)]


async def test_program_of_the_page_asks_an_agent(cli: "Cli", endpoint: "Endpoint", arguments: list[str]) -> None:
    endpoint.says("It is paid.")
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "mcp-server.md", "exec"), names)  # noqa: S102 (the page's code)
    program, *before = cli.python.command
    names["StdioServerParameters"] = partial(StdioServerParameters, env=cli.env)  # a client passes few variables on
    assert await names["ask"](program, [*before, *arguments], "Pay 5") == "It is paid."


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_client_approves_a_call(cli: "Cli", endpoint: "Endpoint", arguments: list[str], mode: Any) -> None:  # noqa: ANN401 (a literal)
    endpoint.calls(("pay", {"amount": 5})).says("It is paid.")
    questions: list[str] = []

    async def fill(_context: object, params: Any) -> ElicitResult:  # noqa: ANN401 (the SDK's)
        questions.append(params.message)
        return ElicitResult(action="accept", content={"answer": True})

    program, *before = cli.python.command
    server = StdioServerParameters(command=program, args=[*before, *arguments], env=cli.env)
    callback = cast("Any", fill)
    async with Client(server, mode=mode, elicitation_callback=callback) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.description) == ("clerk", "Pays bills.")
        result = await client.call_tool("clerk", {"prompt": "Pay 5"})
    assert result.structured_content is not None
    assert result.structured_content["text"] == "It is paid."
    assert "pay" in questions[0]
    facts = cli.run("show", result.structured_content["turn"][:8], "--journal", "--json", "--store", arguments[-1]).out
    assert "paid 5" in facts
    assert all(json.loads(line) for line in facts.splitlines())


def test_agent_calls_an_agent_of_another_process_by_the_settings(
    cli: "Cli", endpoint: "Endpoint", arguments: list[str]
) -> None:
    settings, _ = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    program, *before = cli.python.command
    servers: dict[str, Any] = json.loads(settings)
    servers["mcpServers"]["agents"] |= {
        "command": program,
        "args": [*before, *arguments],
        "env": {**cli.env, "OPENAI_API_KEY": "another"},  # the fixture looks for its own in all files
        "autoApprove": ["*"],
    }
    cli.write("mcp.json", json.dumps(servers))
    endpoint.calls(("agents__clerk", {"prompt": "Pay 5"})).says("It is paid.").says("The clerk paid.")
    done = cli.run("run", "--mcp", "mcp.json", "--model", "openai/scripted", "--store", "memory:", "Ask the clerk")
    assert (done.code, "The clerk paid." in done.out) == (0, True)
    assert "It is paid." in json.dumps(endpoint.requests[-1].body["messages"])


def test_settings_of_the_page_name_the_command() -> None:
    settings, _ = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(settings)["mcpServers"]["agents"]["args"][:2] == ["mcp", "serve"]


def test_help_of_the_command_has_the_options_of_the_page(cli: "Cli") -> None:
    text = cli.run("mcp", "serve", "--help").out
    assert all(name in text for name in re.findall(r"`(--[a-z]+)`", PAGE))
    assert "mcp serve" in cli.run("--help").out


async def test_closed_input_is_refused(cli: "Cli", arguments: list[str]) -> None:
    command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", sys.executable, *arguments]
    ran = await anyio.run_process(command, cwd=cli.folder, env=cli.env, check=False)
    message = "turnwright: mcp: standard input is closed: the client that starts this command gives it pipes\n"
    assert (ran.returncode, ran.stdout, ran.stderr.decode()) == (2, b"", message)
