"""Reading an `mcp.json`: the formats of several clients, variables, mistakes, and hidden secrets."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError

from turnwright.errors import ConfigError
from turnwright.tools.mcp import McpServer, mcp_servers, read_mcp_config

SECRET = "hunter2-0123456789"  # noqa: S105 (nobody's)


def one(**entry: JsonValue) -> McpServer:
    """The only server of a configuration."""
    (server,) = mcp_servers({"mcpServers": {"one": entry}}).values()
    return server


def written(folder: Path, text: str) -> Path:
    file = folder / "mcp.json"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, '\n{"mcpServers": ' + "[" * 999 + "]" * 999 + "}"])
def test_deeply_nested_file_is_refused_with_the_line(tmp_path: Path, text: str) -> None:
    line = text.count("\n") + 1
    with pytest.raises(ConfigError, match=rf"mcp\.json, line {line}: nests lists and objects more than 50 deep"):
        read_mcp_config(written(tmp_path, text))


@pytest.mark.slow
def test_deeply_nested_servers_of_a_program_are_refused() -> None:
    deep: JsonValue = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ConfigError, match="nests lists and objects more than 50 deep"):
        one(env=deep)


def test_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufeff" + json.dumps({"mcpServers": {"one": {"command": "x"}}})
    assert read_mcp_config(written(tmp_path, text))["one"].command == "x"


def test_brackets_in_texts_are_not_counted(tmp_path: Path) -> None:
    text = json.dumps({"mcpServers": {"one": {"command": "x", "args": ['\\"' + "[" * 100]}}})
    assert read_mcp_config(written(tmp_path, text))["one"].args == ('\\"' + "[" * 100,)


def test_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="invalid JSON"):
        read_mcp_config(written(tmp_path, "9" * 10_000))


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_a_file_names_servers_under_the_key_of_either_kind_of_client(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, json.dumps({key: {"files": {"command": "node", "args": ["x.js"]}}, "inputs": []}))
    servers = read_mcp_config(file)
    assert servers == {"files": McpServer(type="stdio", command="node", args=("x.js",))}


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"command": "node"}, "stdio"),
        ({"type": "stdio", "command": "node"}, "stdio"),
        ({"type": "local", "command": "node"}, "stdio"),
        ({"url": "https://x.example/mcp"}, "http"),
        ({"url": "https://x.example/sse"}, "sse"),
        ({"type": "http", "url": "https://x.example/sse"}, "http"),
        ({"type": "streamable-http", "url": "https://x.example"}, "http"),
        ({"type": "streamableHttp", "url": "https://x.example"}, "http"),
        ({"type": "sse", "url": "https://x.example"}, "sse"),
        ({"httpUrl": "https://x.example"}, "http"),
        ({"serverUrl": "https://x.example/sse"}, "http"),
    ],
)
def test_transport_follows_the_type_or_the_keys_of_the_entry(entry: dict[str, JsonValue], kind: str) -> None:
    assert one(**entry).type == kind


@pytest.mark.parametrize(
    ("entry", "field", "value"),
    [
        ({"autoApprove": ["a", "b"]}, "auto_approve", ("a", "b")),
        ({"alwaysAllow": ["a"]}, "auto_approve", ("a",)),
        ({"autoApprove": "*"}, "auto_approve", ("*",)),
        ({"trust": True}, "auto_approve", ("*",)),
        ({"disabledTools": ["a"]}, "exclude", ("a",)),
        ({"excludeTools": ["a"]}, "exclude", ("a",)),
        ({"disabled_tools": ["a"]}, "exclude", ("a",)),
        ({"includeTools": ["a"]}, "include", ("a",)),
        ({"enabledTools": ["a"]}, "include", ("a",)),
        ({"tools": ["a"]}, "include", ("a",)),
        ({"tools": {"a": {"approval": "auto"}}}, "include", ("*",)),
        ({"timeout": 60}, "timeout", 60.0),
        ({"timeout": 60_000}, "timeout", 60.0),
        ({"tool_timeout_sec": 7}, "timeout", 7.0),
        ({"startup_timeout_sec": 9}, "startup", 9.0),
        ({"env": {"PORT": 80}}, "env", {"PORT": "80"}),
        ({"approve": "always"}, "approve", "always"),
        ({"gallery": True, "oauth": {"scopes": []}}, "approve", None),
    ],
)
def test_keys_of_other_clients_keep_their_meaning(entry: dict[str, JsonValue], field: str, value: object) -> None:
    assert getattr(one(command="node", **entry), field) == value


@pytest.mark.parametrize("entry", [{"disabled": True}, {"enabled": False}])
def test_disabled_server_is_not_read_at_all(entry: dict[str, JsonValue]) -> None:
    assert mcp_servers({"mcpServers": {"off": {"command": "${NOWHERE_TO_BE_FOUND}", **entry}}}) == {}


def test_variables_are_filled_in_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """`${env:NAME}` is how some clients write it; a default holds for what is not set, and for what is empty."""
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("EMPTY", "")
    server = one(
        command="${SHELL_OF_NONE:-sh}", args=["--to=${TOKEN}", "${EMPTY:-x}", "${EMPTY}"], env={"A": "${env:TOKEN}-1"}
    )
    assert (server.command, server.args) == ("sh", (f"--to={SECRET}", "x", ""))
    assert server.env == {"A": f"{SECRET}-1"}
    headers: JsonValue = {"Authorization": "Bearer ${TOKEN}"}
    assert one(url="https://${HOST:-x.example}/mcp", headers=headers).headers == {"Authorization": f"Bearer {SECRET}"}


def test_variables_of_an_entry_precede_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not in `env` itself: there a name means a variable of our environment."""
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("MODE", "ours")
    args: JsonValue = [
        "mcp-remote",
        "--header",
        "Authorization: Bearer ${AUTH_TOKEN}",
        "${MODE}",
        "${PORT}",
        "${TOKEN}",
    ]
    env: JsonValue = {"AUTH_TOKEN": "${TOKEN}-1", "MODE": "${MODE}-and-its", "PORT": 80, "TOKEN": "${TOKEN}"}
    server = one(command="npx", args=args, env=env)
    assert server.args[2:] == (f"Authorization: Bearer {SECRET}-1", "ours-and-its", "80", SECRET)
    assert server.env == {"AUTH_TOKEN": f"{SECRET}-1", "MODE": "ours-and-its", "PORT": "80", "TOKEN": SECRET}


def test_a_relative_folder_begins_at_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, json.dumps({"mcpServers": {"a": {"command": "x", "cwd": "sub"}, "b": {"command": "x"}}}))
    servers = read_mcp_config(file)
    assert (servers["a"].cwd, servers["b"].cwd) == (tmp_path / "sub", None)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"command": "x", "env": {"A": "${NOT_SET}"}},
            "server 'one': env.A: the environment variable NOT_SET is not set",
        ),
        ({"command": "x", "args": ["a", "${NOT_SET}"]}, "args[1]: the environment variable NOT_SET"),
        (
            {"url": "https://x.example", "headers": {"A": "${input:key}"}},
            "headers.A: ${input:key} works only in VS Code",
        ),
        ({}, "there is neither a command nor a url"),
        ({"type": "stdio", "url": "https://x.example"}, "there is no command"),
        ({"type": "ws", "url": "wss://x.example"}, "type: Input should be 'stdio', 'http' or 'sse'"),
        ({"url": "ftp://x.example"}, "url that starts with http:// or https://"),
        ({"command": "x", "args": "y"}, "args: Input should be a valid tuple"),
        ({"command": "x", "args": ["${A}"], "env": ["A"]}, "args[0]: the environment variable A is not set"),
        ({"command": "x", "env": {"A": None}}, "env.A: Input should be a valid string"),
        ({"command": "x", "timeout": 0}, "timeout: Input should be greater than 0"),
    ],
)
def test_a_mistake_names_the_file_the_server_and_the_field(
    tmp_path: Path, entry: dict[str, JsonValue], words: str
) -> None:
    file = written(tmp_path, json.dumps({"mcpServers": {"one": entry}}))
    with pytest.raises(ConfigError) as caught:
        read_mcp_config(file)
    assert str(file) in str(caught.value)
    assert "server 'one'" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1: invalid JSON"),
        ("[]", "has no servers"),
        ('{"servers": []}', "has no servers"),
        ('{"mcpServers": {"a": "node"}}', "server 'a': is not an object"),
    ],
)
def test_file_without_servers_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_mcp_config(written(tmp_path, text))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read: No such file"):
        read_mcp_config(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"KEY": [SECRET]}},
        {"command": ["x", SECRET]},
        {"url": f"ftp://me:{SECRET}@x.example"},
        {"url": "https://x.example", "headers": {"Authorization": {"bearer": SECRET}}},
    ],
)
def test_no_mistake_shows_a_value(entry: Mapping[str, JsonValue]) -> None:
    with pytest.raises(ConfigError) as caught:
        mcp_servers({"mcpServers": {"one": entry}})
    assert SECRET not in str(caught.value)
    with pytest.raises(ValidationError) as direct:
        McpServer.model_validate(entry)
    assert SECRET not in str(direct.value)


def test_printed_server_shows_no_secrets() -> None:
    stdio = McpServer(command="x", args=(f"--key={SECRET}",), env={"KEY": SECRET})
    http = McpServer(type="http", url=f"https://me:{SECRET}@x.example", headers={"Authorization": f"Bearer {SECRET}"})
    assert SECRET not in repr(stdio) + repr(http) + str(stdio) + str(http)
    assert {SECRET} <= stdio.secrets
    assert {SECRET, f"Bearer {SECRET}"} <= http.secrets


def test_value_of_a_variable_is_a_secret_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    server = one(command="x", args=["--key=${TOKEN}", "--mode=${MODE:-careful}"])
    assert server.secrets == {SECRET}
    assert SECRET not in repr(server)
