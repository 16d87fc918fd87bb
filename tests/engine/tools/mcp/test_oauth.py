"""Logins at servers over HTTP: who asks, what is saved, and who may see it."""

import base64
import json
import logging
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import anyio
import httpx
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine
from turnwright.errors import ConfigError
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import ToolContext, ToolError
from turnwright.tools.mcp import McpServer, mcp_login, mcp_logout, mcp_servers, mcp_tools
from turnwright.tools.mcp.oauth import LoginFile, SavedLogin

from .oauth_server import OAuthServer, oauth_server

pytestmark = pytest.mark.anyio

HERE = ToolContext(turn_id="t1", call_id="c1")


@pytest.fixture
def authority() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest.fixture
def server(authority: OAuthServer) -> McpServer:
    return McpServer(type="http", url=authority.url)


def open_address(address: str) -> None:
    """Play a person who agrees. The answer comes to this process, so that a thread must ask."""
    Thread(target=httpx.get, args=(address,), kwargs={"follow_redirects": True}, daemon=True).start()


def contents(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


async def log_in(server: McpServer, folder: Path) -> LoginFile:
    assert await mcp_login(server, show=open_address, logins=folder)
    return LoginFile(server, folder)


async def greet(server: McpServer, folder: Path) -> str:
    async with mcp_tools({"s": server}, logins=folder) as tools:
        return (await tools[0].run({}, HERE)).text


async def test_saved_login_opens_the_server_and_is_private_to_the_owner(
    authority: OAuthServer, server: McpServer, tmp_path: Path
) -> None:
    file = await log_in(server, tmp_path / "state" / "logins")
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]
    assert await greet(server, file.path.parent) == "hello"
    assert len(authority.logins) == 1
    assert authority.logins[0]["code_challenge_method"] == "S256"
    assert authority.logins[0]["resource"] == authority.url


async def test_tokens_are_in_no_log_and_in_no_journal(
    authority: OAuthServer, server: McpServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = await log_in(server, tmp_path / "logins")
    file.write(file.read().model_copy(update={"expires_at": 1.0}))
    model = ScriptedModel(asks_for(("s__hello", {})), asks_for(("s__admin", {})), "Done.")
    async with (
        mcp_tools({"s": server}, logins=tmp_path / "logins") as tools,
        Engine(model=model, tools=tools, store=f"sqlite:///{tmp_path}/turns.db") as engine,
    ):
        turn = await engine.run(Agent(name="A"), "hi")
    assert len(authority.token_requests) > 1
    stored = b"".join(path.read_bytes() for path in contents(tmp_path))
    for token in (*authority.access, *authority.refresh):
        assert token not in caplog.text
        assert token not in repr(turn)
        assert token.encode() not in stored


async def test_server_without_login_names_the_command_and_registers_nothing(
    authority: OAuthServer, tmp_path: Path
) -> None:
    file = tmp_path / "my servers.json"
    file.write_text(json.dumps({"mcpServers": {"s": {"url": authority.url}}}))
    with pytest.raises(ConfigError) as caught:
        async with mcp_tools(file, logins=tmp_path):
            pass
    assert str(caught.value) == (
        f"MCP server 's' does not start: it needs a login: turnwright mcp login s --mcp '{file}'"
    )
    with pytest.raises(ConfigError, match=r"it needs a login: call turnwright\.tools\.mcp\.mcp_login"):
        await greet(McpServer(url=authority.url), tmp_path)
    assert (authority.registered, authority.logins) == ([], [])


@pytest.mark.parametrize("rotates", [True, False])
async def test_expired_token_is_refreshed_by_another_process(
    authority: OAuthServer, server: McpServer, tmp_path: Path, *, rotates: bool
) -> None:
    """It asks the authorization server, whose address it has from the file, and keeps a refresh token that stays."""
    authority.rotates = rotates
    file = await log_in(server, tmp_path)
    for _ in range(2):
        saved = file.read()
        file.write(saved.model_copy(update={"expires_at": 1.0}))
        authority.access.clear()
        assert await greet(server, tmp_path) == "hello"
        assert saved.tokens is not None
        assert authority.token_requests[-1]["refresh_token"] == saved.tokens.refresh_token
        assert authority.token_requests[-1]["resource"] == authority.url
    assert len(authority.logins) == 1
    after = file.read().tokens
    assert after is not None
    assert after.refresh_token in authority.refresh


async def test_token_refused_before_expiry_is_refreshed(
    authority: OAuthServer, server: McpServer, tmp_path: Path
) -> None:
    authority.lifetime = None
    await log_in(server, tmp_path)
    async with mcp_tools({"s": server}, logins=tmp_path) as tools:
        for _ in range(3):
            authority.access.clear()
            assert (await tools[0].run({}, HERE)).text == "hello"
    assert [request["grant_type"] for request in authority.token_requests] == ["authorization_code"] + 3 * [
        "refresh_token"
    ]


async def test_refresh_token_replaced_by_another_process_is_read_again(
    authority: OAuthServer, server: McpServer, tmp_path: Path
) -> None:
    await log_in(server, tmp_path)
    async with mcp_tools({"s": server}, logins=tmp_path) as old, mcp_tools({"s": server}, logins=tmp_path) as new:
        for tools in (old, new, old):
            authority.access.clear()
            assert (await tools[0].run({}, HERE)).text == "hello"
    assert len(authority.logins) == 1


async def test_login_ending_during_a_session_is_the_error_of_the_call(
    authority: OAuthServer, server: McpServer, tmp_path: Path
) -> None:
    """After a new login, the next call reaches the server again."""
    file = await log_in(server, tmp_path)
    saved = file.read()
    async with mcp_tools({"s": server}, logins=tmp_path) as tools:
        authority.access.clear()
        authority.refresh.clear()
        for _ in range(2):
            with pytest.raises(ToolError, match="needs a login: call turnwright") as caught:
                await tools[0].run({}, HERE)
            assert all(secret not in str(caught.value) for secret in saved.secrets)
        await log_in(server, tmp_path)
        assert (await tools[0].run({}, HERE)).text == "hello"
    assert len(authority.registered) == 1, "the client is registered once"


async def test_missing_scope_is_asked_for_by_the_next_login(
    authority: OAuthServer, server: McpServer, tmp_path: Path
) -> None:
    await log_in(server, tmp_path)
    async with mcp_tools({"s": server}, logins=tmp_path) as tools:
        with pytest.raises(ToolError, match="it needs a login"):
            await tools[1].run({}, HERE)
        await log_in(server, tmp_path)
        assert (await tools[1].run({}, HERE)).text == "hello"
    assert [set(login["scope"].split()) for login in authority.logins] == [{"read"}, {"read", "admin"}]


async def test_configured_scope_and_client_are_used(authority: OAuthServer, tmp_path: Path) -> None:
    entry: JsonValue = {
        "url": authority.url,
        "oauth": {"clientId": "mine", "clientSecret": "hush-hush", "scopes": ["a", "b"]},
    }
    server = mcp_servers({"mcpServers": {"s": entry}})["s"]
    assert "hush-hush" not in repr(server)
    await log_in(server, tmp_path)
    assert (authority.logins[0]["client_id"], authority.logins[0]["scope"], authority.registered) == ("mine", "a b", [])
    assert authority.basic == ["Basic " + base64.b64encode(b"mine:hush-hush").decode()]
    authority.access.clear()
    assert await greet(server, tmp_path) == "hello"
    assert len(authority.basic) == 2


async def test_denied_login_is_reported_and_keeps_the_old_login(
    authority: OAuthServer, server: McpServer, tmp_path: Path
) -> None:
    file = await log_in(server, tmp_path)
    before = file.read()
    authority.denies = True
    with pytest.raises(ConfigError, match=r"the login failed: .*it was refused: access_denied <no>"):
        await mcp_login(server, show=open_address, logins=tmp_path)
    assert file.read().tokens == before.tokens


async def test_only_the_browser_of_this_login_is_heard(
    authority: OAuthServer, server: McpServer, tmp_path: Path
) -> None:
    statuses: list[int] = []

    def browse(address: str) -> None:
        parameters = dict(httpx.URL(address).params)
        queries = ("code=x&state=y", "code=x", "code=x&state=", f"state={parameters['state']}")
        statuses.extend(httpx.get(f"{parameters['redirect_uri']}?{query}").status_code for query in queries)
        statuses.append(httpx.post(parameters["redirect_uri"], content=b"x" * 100).status_code)
        httpx.get(address, follow_redirects=True)

    def show(address: str) -> None:
        Thread(target=browse, args=(address,), daemon=True).start()

    assert await mcp_login(server, show=show, logins=tmp_path)
    assert statuses == [404] * 5
    assert authority.codes == {}


async def test_typed_address_completes_the_login(server: McpServer, tmp_path: Path) -> None:
    """The browser runs on another machine, and does not reach this one."""
    addresses: list[str] = []
    tries = iter(["nonsense", "http://127.0.0.1/callback?code=a&state=b"])

    async def typed() -> str:
        if wrong := next(tries, None):
            return wrong
        async with httpx.AsyncClient() as browser:
            return (await browser.get(addresses[0])).headers["location"] + "\n"

    assert await mcp_login(server, show=addresses.append, typed=typed, logins=tmp_path)
    assert await greet(server, tmp_path) == "hello"


async def test_login_without_an_answer_ends_in_time(server: McpServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the login failed: it was not ready within 0\.2 s"):
        await mcp_login(server, show=lambda _: None, logins=tmp_path, timeout=0.2)


async def test_client_with_configured_credentials_needs_no_login(authority: OAuthServer, tmp_path: Path) -> None:
    oauth: dict[str, JsonValue] = {"grant": "client_credentials", "clientId": "job", "clientSecret": "secret-1234567"}
    entry: JsonValue = {"url": authority.url, "oauth": {**oauth, "issuer": authority.issuer, "scope": "x"}}
    server = mcp_servers({"mcpServers": {"s": entry}})["s"]
    assert await greet(server, tmp_path) == "hello"
    assert authority.token_requests[0]["scope"] == "x"
    assert contents(tmp_path) == []
    with pytest.raises(ConfigError, match="nobody can log in: its client has credentials of its own"):
        await mcp_login(server, show=open_address, logins=tmp_path)
    other_server = mcp_servers(
        {"mcpServers": {"s": {"url": authority.url, "oauth": {**oauth, "issuer": "https://a.example"}}}}
    )["s"]
    with pytest.raises(ConfigError, match="'s' does not start: OAuthFlowError") as caught:
        await greet(other_server, tmp_path)
    assert "secret-1234567" not in str(caught.value)
    assert len(authority.token_requests) == 1


@pytest.mark.parametrize(
    "entry",
    [
        {"oauth": False},
        {"oauth": {"enabled": False, "clientId": "c"}},
        {"headers": {"Authorization": "Bearer wrong-key-1234"}},
    ],
)
async def test_server_with_logins_off_is_refused_by_status(
    authority: OAuthServer, tmp_path: Path, entry: dict[str, JsonValue]
) -> None:
    server = mcp_servers({"mcpServers": {"s": {"url": authority.url, **entry}}})["s"]
    with pytest.raises(ConfigError, match="401 Unauthorized") as caught:
        await greet(server, tmp_path)
    assert "login" not in str(caught.value)
    with pytest.raises(ConfigError, match="nobody can log in"):
        await mcp_login(server, show=open_address, logins=tmp_path)


async def test_logout_deletes_the_login(server: McpServer, tmp_path: Path) -> None:
    await log_in(server, tmp_path)
    assert [mcp_logout(server, logins=tmp_path) for _ in range(2)] == [True, False]
    with pytest.raises(ConfigError, match="it needs a login"):
        await greet(server, tmp_path)


async def test_damaged_login_is_a_warning_and_a_new_login_repairs(
    server: McpServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = LoginFile(server, tmp_path)
    file.path.write_text('{"tokens": "secret-in-a-damaged-file"')
    with pytest.raises(ConfigError, match="it needs a login"):
        await greet(server, tmp_path)
    assert f"the saved login in {file.path} is damaged: log in again" in caplog.messages
    assert "secret-in-a-damaged-file" not in caplog.text
    await log_in(server, tmp_path)
    assert await greet(server, tmp_path) == "hello"


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_login_is_replaced_atomically(server: McpServer, tmp_path: Path) -> None:
    file = LoginFile(server, tmp_path)
    file.write(SavedLogin(lacking="a"))
    file.path.chmod(0o644)
    file.write(SavedLogin(lacking="b"))
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    with disk_of(20), pytest.raises(OSError, match="too large"):
        file.write(SavedLogin(lacking="c"))
    assert file.read().lacking == "b"
    assert list(tmp_path.iterdir()) == [file.path]
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(OSError, match="directory"):
        file.write(SavedLogin(lacking="c"))
    assert list(tmp_path.iterdir()) == [file.path]


def test_logins_are_in_the_state_folder_of_the_user(
    server: McpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert LoginFile(server).path.parent == tmp_path / "state" / "turnwright" / "mcp"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert LoginFile(server).path.parent == tmp_path / ".local" / "state" / "turnwright" / "mcp"


@pytest.mark.parametrize(
    ("oauth", "words"),
    [
        ({"grant": "client_credentials"}, "oauth: client_credentials need a clientId, and the issuer"),
        (
            {"grant": "client_credentials", "clientId": "c", "issuer": "https://a.example"},
            "oauth: client_credentials need either a clientSecret or a privateKey",
        ),
        ({"clientMetadataUrl": "http://a.example/c.json"}, "oauth: clientMetadataUrl must start with https://"),
        ({"callbackPort": 0}, "oauth.callbackPort: Input should be greater than or equal to 1"),
        ("yes", "oauth: Input should be a valid dictionary"),
    ],
)
def test_mistake_in_oauth_names_the_field(oauth: JsonValue, words: str) -> None:
    with pytest.raises(ConfigError, match="server 's': ") as caught:
        mcp_servers({"mcpServers": {"s": {"url": "https://a.example/mcp", "oauth": oauth}}})
    assert words in str(caught.value)


async def test_busy_port_of_the_login_is_named(authority: OAuthServer, tmp_path: Path) -> None:
    async with await anyio.create_tcp_listener(local_host="localhost") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 (not Django's)
        server = mcp_servers({"mcpServers": {"s": {"url": authority.url, "oauth": {"callbackPort": port}}}})["s"]
        with pytest.raises(ConfigError, match=f"the port {port} of the login is not free"):
            await mcp_login(server, show=open_address, logins=tmp_path)
