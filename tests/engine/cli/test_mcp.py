"""`--mcp`: the tools of MCP servers in a turn of the command line, which finds the servers again when it continues."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from ..tools.mcp.oauth_server import oauth_server  # noqa: TID252

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint, Json

#: A secret that only the server is given.
TOKEN = "hunter2-0123456789"  # noqa: S105 (nobody's)

#: It speaks the protocol as far as these tests need it, and starts faster than one made with the SDK.
SERVER = """
import json, os, sys
if os.environ.get("BROKEN"):
    sys.exit(f"cannot start with {os.environ['TOKEN']}")

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def choose():
    schema = {"type": "object", "properties": {"color": {"type": "string"}}}
    say(id="e", method="elicitation/create", params={"message": "Which color?", "requestedSchema": schema})
    answer = json.loads(sys.stdin.readline())["result"]
    return f"{answer['action']}: {answer.get('content')}"

reads = {"readOnlyHint": True}
tools = {"mix": (reads, lambda said: f"{said['first']}+{said['second']}"), "choose": (reads, lambda said: choose()),
         "erase": ({}, lambda said: f"erased {said['path']}")}
for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params", {})
    if asked["method"] == "initialize":
        say(id=asked["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                    "serverInfo": {"name": "paint", "version": "1"}})
    elif asked["method"] == "tools/list":
        listed = [{"name": name, "annotations": hints, "inputSchema": {"type": "object"}}
                  for name, (hints, _) in tools.items()]
        say(id=asked["id"], result={"tools": listed})
    elif asked["method"] == "tools/call":
        text = tools[params["name"]][1](params["arguments"])
        say(id=asked["id"], result={"content": [{"type": "text", "text": text}]})
    elif "id" in asked:
        say(id=asked["id"], error={"code": -32601, "message": "Method not found"})
"""


def results(endpoint: "Endpoint") -> list[str]:
    """The results of calls in the last request."""
    return [message["content"] for message in endpoint.requests[-1].messages if message["role"] == "tool"]


@pytest.fixture
def servers(cli: "Cli") -> Path:
    """A configuration with one server."""
    program = cli.write("paint.py", SERVER)
    entry: Json = {
        "command": sys.executable,
        "args": ["-I", str(program)],
        "env": {"TOKEN": TOKEN, "BROKEN": "${BROKEN:-}"},
    }
    return cli.write("mcp.json", json.dumps({"mcpServers": {"paint": entry}}))


def test_turn_calls_the_tools_of_a_server(cli: "Cli", endpoint: "Endpoint", servers: Path) -> None:
    endpoint.calls(("paint__mix", {"first": "red", "second": "blue"})).says("Violet.")
    done = cli.run("run", "mix", "--mcp", servers.name)
    assert (done.code, done.err) == (0, "")
    assert "Violet." in done.out
    offered = [tool["function"]["name"] for tool in endpoint.requests[0].body["tools"]]
    assert {"paint__mix", "paint__erase", "read_file"} <= set(offered)
    assert results(endpoint) == ["red+blue"]


def test_configuration_may_name_the_servers(cli: "Cli", endpoint: "Endpoint", servers: Path) -> None:
    cli.write("turnwright.toml", f'mcp = "{servers.name}"')
    endpoint.calls(("paint__mix", {"first": "red", "second": "blue"})).says("Violet.")
    assert cli.run("run", "mix").code == 0
    assert results(endpoint) == ["red+blue"]


def test_paused_turn_finds_the_servers_again(cli: "Cli", endpoint: "Endpoint", servers: Path) -> None:
    """From another folder, and without the flag: the file was kept, and nothing that is in it."""
    endpoint.calls(("paint__choose", {}), ("paint__erase", {"path": "x"})).says("Done.")
    paused = cli.run("run", "choose", "--mcp", servers.name, "--json")
    assert paused.code == 3
    interrupts = {open_["tool"]: open_ for open_ in paused.interrupts}
    assert interrupts["paint__choose"]["question"].startswith("paint asks: Which color?")
    assert interrupts["paint__erase"]["kind"] == "approval"
    (cli.folder / "elsewhere").mkdir()
    done = cli.run(
        *("resume", paused.turn, "--store", f"sqlite:///{cli.folder}/turns.db"),
        *("--answer", f"{interrupts['paint__choose']['id']}=red", "--approve", interrupts["paint__erase"]["id"]),
        folder=cli.folder / "elsewhere",
    )
    assert (done.code, done.err) == (0, "")
    assert results(endpoint) == ["accept: {'color': 'red'}", "erased x"]
    assert TOKEN.encode() not in (cli.folder / "turns.db").read_bytes()


def test_continued_turn_has_the_servers(cli: "Cli", endpoint: "Endpoint", servers: Path) -> None:
    endpoint.calls(("paint__mix", {"first": "a", "second": "b"})).says("Not done.")
    stopped = cli.run("run", "mix", "--mcp", servers.name, "--steps", "1", "--json")
    assert stopped.code == 4
    endpoint.calls(("paint__mix", {"first": "c", "second": "d"})).says("Done.")
    done = cli.run("run", "--continue", stopped.turn, "--steps", "5")
    assert done.code == 0
    assert results(endpoint)[-1] == "c+d"


def test_resume_accepts_other_servers(cli: "Cli", endpoint: "Endpoint", servers: Path) -> None:
    endpoint.calls(("paint__erase", {"path": "x"})).says("Done.")
    paused = cli.run("run", "erase", "--mcp", servers.name, "--json")
    moved = servers.rename(cli.folder / "moved.json")
    missing = cli.run("resume", paused.turn, "--approve", paused.interrupts[0]["id"])
    assert missing.code == 2
    assert missing.err == f"turnwright: the MCP servers of {servers} cannot be read: No such file or directory\n"
    done = cli.run("resume", paused.turn, "--approve", paused.interrupts[0]["id"], "--mcp", moved.name)
    assert done.code == 0
    assert results(endpoint) == ["erased x"]


def test_failing_server_is_named_without_secrets(cli: "Cli", servers: Path) -> None:
    done = cli.run("run", "mix", "--mcp", servers.name, env={"BROKEN": "yes"})
    assert done.code == 2
    assert done.err == (
        "turnwright: MCP server 'paint' does not start: it ended before it was ready; it wrote: cannot start with ***\n"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "mcp.json, line 1: invalid JSON"),
        ('{"mcpServers": {"a": {"url": "https://x.example/${NOT_SET}"}}}', "server 'a': url: the environment variable"),
    ],
)
def test_wrong_configuration_is_reported_in_a_line(cli: "Cli", text: str, words: str) -> None:
    file = cli.write("mcp.json", text)
    done = cli.run("run", "hi", "--mcp", file.name)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1


def test_missing_server_tool_of_an_agent_is_reported_with_the_flag(
    cli: "Cli", endpoint: "Endpoint", servers: Path
) -> None:
    agents = cli.agent("tools: [paint__mix]")
    without = cli.run("run", "mix", "--agents", agents.name)
    assert without.code == 2
    assert "there is no tool 'paint__mix'" in without.err
    assert "`run --mcp FILE`" in without.err
    endpoint.says("Done.")
    assert cli.run("run", "mix", "--agents", agents.name, "--mcp", servers.name).code == 0
    assert [tool["function"]["name"] for tool in endpoint.requests[0].body["tools"]] == ["paint__mix"]


def test_explain_starts_no_servers(cli: "Cli") -> None:
    assert cli.run("explain", "--agents", cli.agent("tools: [paint__mix]").name).code == 0


def test_ctrl_c_ends_the_turn_and_the_servers(cli: "Cli", endpoint: "Endpoint", servers: Path) -> None:
    endpoint.begins("Let me")
    child = cli.start("run", "mix", "--mcp", servers.name, "--json")
    child.until("text_delta")
    assert child.interrupt().done().code == 130


def test_missing_extra_is_named(cli: "Cli", servers: Path) -> None:
    (cli.folder / "shadow").mkdir()
    cli.write("shadow/mcp.py", "raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')")
    done = cli.run("run", "hi", "--mcp", servers.name, env={"PYTHONPATH": str(cli.folder / "shadow")}, fresh=True)
    assert done.code == 2
    assert done.err == "turnwright: MCP servers need the extra: pip install 'turnwright[mcp]' (No module named 'mcp')\n"


def test_sigterm_releases_the_turn_and_ends_the_servers(cli: "Cli", endpoint: "Endpoint", servers: Path) -> None:
    endpoint.begins("Let me")
    child = cli.start("run", "mix", "--mcp", servers.name, "--json")
    child.until("text_delta")
    done = child.terminate().done()
    assert done.code == 143
    assert "has not ended" in done.err


def test_login_at_a_server_is_valid_until_the_logout(cli: "Cli", endpoint: "Endpoint") -> None:
    with oauth_server() as server:
        file = cli.write("mcp.json", json.dumps({"mcpServers": {"desk": {"url": server.url}}}))
        cli.env["XDG_STATE_HOME"] = str(cli.folder / "state")
        refused = cli.run("run", "greet", "--mcp", file.name)
        assert refused.code == 2
        remedy = "turnwright mcp login desk --mcp mcp.json"
        assert refused.err == f"turnwright: MCP server 'desk' does not start: it needs a login: {remedy}\n"
        child = cli.start(*remedy.split()[1:], "--no-browser")
        httpx.get(child.shows("http://").strip(), follow_redirects=True)
        done = child.done()
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith("logged in at desk\n")
        endpoint.calls(("desk__hello", {})).says("Hello.")
        ran = cli.run("run", "greet", "--mcp", file.name)
        assert (ran.code, results(endpoint)) == (0, ["hello"])
        outs = [cli.run("mcp", "logout", "desk", "--mcp", file.name).out for _ in range(2)]
        assert outs == ["logged out of desk\n", "there was no login at desk\n"]
        assert cli.run("run", "greet", "--mcp", file.name).code == 2
        stored = (cli.folder / "turns.db").read_bytes() + ran.out.encode() + ran.err.encode()
        assert all(token.encode() not in stored for token in (*server.access, *server.refresh))


def test_denied_login_fails_with_the_reason(cli: "Cli") -> None:
    with oauth_server() as server:
        server.denies = True
        cli.write("mcp.json", json.dumps({"mcpServers": {"desk": {"url": server.url}}}))
        cli.write("turnwright.toml", 'mcp = "mcp.json"')
        cli.env["XDG_STATE_HOME"] = str(cli.folder / "state")
        child = cli.start("mcp", "login", "desk", "--no-browser")
        httpx.get(child.shows("http://").strip(), follow_redirects=True)
        done = child.done()
    assert done.code == 2
    assert done.err.startswith("turnwright: MCP server 'desk': the login failed: ")
    assert "it was refused: access_denied" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["login", "nobody", "--mcp", "mcp.json"], "there is no MCP server 'nobody'. Servers with logins: desk"),
        (["login", "paint", "--mcp", "mcp.json"], "'paint': nobody can log in: it is a process of this machine"),
        (["login", "desk"], "no MCP servers: name their file with --mcp FILE, or with `mcp` in turnwright.toml"),
    ],
)
def test_impossible_login_is_explained(cli: "Cli", arguments: list[str], words: str) -> None:
    entries = {"desk": {"url": "https://desk.example/mcp"}, "paint": {"command": "paint"}}
    cli.write("mcp.json", json.dumps({"mcpServers": entries}))
    done = cli.run("mcp", *arguments)
    assert done.code == 2
    assert words in done.err
