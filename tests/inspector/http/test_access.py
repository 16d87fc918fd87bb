"""Nobody gets in without the token, and nothing is changed that another site asks for."""

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from starlette.types import Message
from tests.inspector.conftest import ADDRESS, TOKEN, browser, csrf_of, engine_on, enter

from turnwright import Agent, Engine
from turnwright.errors import ConfigError
from turnwright_inspector import Inspector, Open, Token, inspector_app

pytestmark = pytest.mark.anyio

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def engine(file: Path) -> AsyncIterator[Engine]:
    async with engine_on(file) as engine:
        yield engine


@pytest.fixture
def app(engine: Engine) -> Inspector:
    return inspector_app(engine, access=Token(TOKEN, hosts=["turns.example.com"]))


@pytest.mark.parametrize("path", ["/", "/turns/x", "/static/inspector.css", "/live", "/turns/x/live", "/nowhere"])
async def test_page_without_the_token_is_refused_with_instructions(app: Inspector, path: str) -> None:
    async with browser(app) as client:
        response = await client.get(path)
        assert response.status_code == httpx.codes.UNAUTHORIZED
        assert "ends in <code>/?token=" in response.text
        assert response.headers["www-authenticate"] == "Bearer"
        assert "set-cookie" not in response.headers


async def test_token_form_leads_to_the_requested_page(app: Inspector) -> None:
    async with browser(app) as client:
        form = await client.get("/turns/x?tab=journal&q=%22%3E")
        assert '<form method="post" action="/turns/x?tab=journal&amp;q=%22%3E">' in form.text
        for token in ("wrong", ""):
            wrong = await client.post("/turns/x?tab=journal", data={"token": token})
            assert wrong.status_code == httpx.codes.UNAUTHORIZED
            assert ("not the token" in wrong.text) is bool(token)
        entered = await client.post("/turns/x?tab=journal", data={"token": TOKEN})
        assert (entered.status_code, entered.headers["location"]) == (303, "/turns/x?tab=journal")
        assert TOKEN not in entered.headers["location"]
        assert (await client.get("/")).status_code == httpx.codes.OK


async def test_form_of_an_expired_session_leads_to_the_first_page(app: Inspector) -> None:
    async with browser(app) as client:
        form = await client.post("/turns/x/abort", data={"csrf": "old"})
        assert form.status_code == httpx.codes.UNAUTHORIZED
        assert 'action="/"' in form.text


async def test_login_from_another_site_is_refused(app: Inspector) -> None:
    async with browser(app) as client:
        response = await client.post("/", data={"token": TOKEN}, headers={"Sec-Fetch-Site": "cross-site"})
        assert (response.status_code, response.headers.get("set-cookie")) == (httpx.codes.FORBIDDEN, None)


async def test_page_style_equals_the_style_allowed_by_the_policy(app: Inspector) -> None:
    async with browser(app) as client:
        response = await client.get("/")
    policy = response.headers["content-security-policy"]
    style = re.search("<style>(.*)</style>", response.text)
    assert style is not None
    assert f"style-src 'sha256-{b64encode(sha256(style[1].encode()).digest()).decode()}';" in policy
    assert "script-src" not in policy


async def test_change_without_the_token_is_refused(app: Inspector) -> None:
    async with browser(app) as client:
        assert (await client.post("/turns/x/abort")).status_code == httpx.codes.UNAUTHORIZED


async def test_printed_address_sets_a_cookie_and_drops_the_token(app: Inspector) -> None:
    async with browser(app) as client:
        response = await client.get("/turns/x", params={"token": TOKEN, "tab": "journal"})
        assert (response.status_code, response.headers["location"]) == (303, "/turns/x?tab=journal")
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Path=/;" in cookie
        assert "Secure" not in cookie
        assert TOKEN not in cookie
        assert (await client.get("/")).status_code == httpx.codes.OK


async def test_cookie_is_secure_over_https(app: Inspector) -> None:
    async with browser(app, "https://turns.example.com") as client:
        assert "Secure" in (await client.get("/", params={"token": TOKEN})).headers["set-cookie"]


async def test_redirect_never_leads_to_another_server(app: Inspector) -> None:
    async with browser(app) as client:
        response = await client.get(f"{ADDRESS}//evil.example/x", params={"token": TOKEN})
        assert response.headers["location"] == "/evil.example/x"


@pytest.mark.parametrize("wrong_token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "é"])
async def test_wrong_token_is_refused(app: Inspector, wrong_token: str) -> None:
    async with browser(app) as client:
        assert (await client.get("/", params={"token": wrong_token})).status_code == httpx.codes.UNAUTHORIZED
        bearer = {b"authorization": f"Bearer {wrong_token}".encode()}
        assert (await client.get("/", headers=bearer)).status_code == httpx.codes.UNAUTHORIZED


async def test_invented_cookie_is_refused(app: Inspector) -> None:
    async with browser(app) as client:
        await enter(client)
        (name,) = client.cookies
        for value in ("", "x", f"{TOKEN}.{TOKEN}", TOKEN, "x." + "0" * 64):
            async with browser(app, Cookie=f"{name}={value}") as forger:
                assert (await forger.get("/")).status_code == httpx.codes.UNAUTHORIZED


async def test_cookie_survives_a_server_restart_with_the_same_token(engine: Engine) -> None:
    before, after = (inspector_app(engine, access=Token(TOKEN)) for _ in range(2))
    other_app = inspector_app(engine, access=Token("another-token-that-nobody-guesses"))
    async with browser(before) as client:
        await enter(client)
        cookies = client.cookies
    for app, status in ((after, httpx.codes.OK), (other_app, httpx.codes.UNAUTHORIZED)):
        async with browser(app) as client:
            client.cookies = cookies
            assert (await client.get("/")).status_code == status


async def test_navigation_from_another_site_reloads_the_page(app: Inspector) -> None:
    """It keeps a strict cookie back the first time, and sends it when the page itself loads it again."""
    async with browser(app) as client:
        linked = await client.get("/", headers={"Sec-Fetch-Site": "cross-site"})
        assert linked.status_code == httpx.codes.UNAUTHORIZED
        assert 'http-equiv="refresh"' in linked.text
        typed = await client.get("/", headers={"Sec-Fetch-Site": "none"})
        assert 'http-equiv="refresh"' not in typed.text


async def test_bearer_header_gives_access(app: Inspector) -> None:
    async with browser(app, **BEARER) as client:
        response = await client.get("/")
        assert (response.status_code, response.headers.get("set-cookie")) == (httpx.codes.OK, None)
        assert (await client.post("/turns/x/abort")).status_code == httpx.codes.NOT_FOUND  # it went through


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8321", "[::1]:8321", "192.0.2.7", "turns.example.com:80"])
async def test_own_host_names_are_accepted(app: Inspector, host: str) -> None:
    async with browser(app, Host=host, **BEARER) as client:
        assert (await client.get("/")).status_code == httpx.codes.OK


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "a:b:c["])
async def test_foreign_host_name_is_refused_even_with_the_token(app: Inspector, host: str) -> None:
    async with browser(app, Host=host, **BEARER) as client:
        assert (await client.get("/")).status_code == httpx.codes.MISDIRECTED_REQUEST


FROM_ELSEWHERE = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "http://[::1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
]


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
async def test_cross_site_form_is_refused_with_an_otherwise_valid_request(
    app: Inspector, headers: dict[str, str]
) -> None:
    async with browser(app) as client:
        csrf = csrf_of(await enter(client))
        response = await client.post("/turns/x/abort", data={"csrf": csrf}, headers=headers)
        assert (response.status_code, "another site" in response.text.lower()) == (httpx.codes.FORBIDDEN, True)


@pytest.mark.parametrize("headers", [{"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}, {}])
async def test_same_site_form_passes(app: Inspector, headers: dict[str, str]) -> None:
    async with browser(app) as client:
        csrf = csrf_of(await enter(client))
        response = await client.post("/turns/x/abort", data={"csrf": csrf}, headers=headers)
        assert response.status_code == httpx.codes.NOT_FOUND  # no such turn


@pytest.mark.parametrize("csrf", [None, "", "0" * 64])
@pytest.mark.parametrize("action", ["answer", "steer", "abort", "resume", "fork", "nowhere"])
async def test_every_change_needs_the_token_of_the_session(app: Inspector, action: str, csrf: str | None) -> None:
    async with browser(app) as client:
        await enter(client)
        data = {} if csrf is None else {"csrf": csrf}
        assert (await client.post(f"/turns/x/{action}", data=data)).status_code == httpx.codes.FORBIDDEN


async def test_csrf_token_of_another_session_is_refused(app: Inspector) -> None:
    async with browser(app) as first, browser(app) as second:
        csrf = csrf_of(await enter(first))
        await enter(second)
        assert (await second.post("/turns/x/abort", data={"csrf": csrf})).status_code == httpx.codes.FORBIDDEN
        header = {"X-CSRF-Token": csrf}
        assert (await first.post("/turns/x/abort", headers=header)).status_code == httpx.codes.NOT_FOUND


async def test_oversized_form_is_refused(app: Inspector) -> None:
    async with browser(app) as client:
        csrf = csrf_of(await enter(client))
        response = await client.post("/turns/x/steer", data={"csrf": csrf, "text": "x" * (1 << 20)})
        assert response.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE


async def test_truncated_form_does_nothing(app: Inspector, engine: Engine) -> None:
    """Half of what somebody writes may say the opposite of the whole."""
    turn = await engine.submit(Agent(name="A"), "Clean up")
    headers = {"host": "localhost", "content-type": "application/x-www-form-urlencoded", **BEARER}
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/turns/{turn}/steer",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    messages: list[Message] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"text=Delete+all", "more_body": True},
    ]

    async def receive() -> Message:
        return messages.pop()

    async def send(_: Message) -> None:
        """Nobody is there."""

    await app(scope, receive, send)
    assert not await engine.store.inbox(turn)


@pytest.mark.parametrize(("path", "cache"), [("/", "no-store"), ("/nowhere", "no-store"), ("/static/x", "no-cache")])
@pytest.mark.parametrize("has_token", [True, False])
async def test_every_response_has_the_security_headers(app: Inspector, path: str, cache: str, has_token: bool) -> None:
    async with browser(app, **(BEARER if has_token else {})) as client:
        headers = (await client.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert "camera=()" in headers["permissions-policy"]
        assert headers["cache-control"] == cache


async def test_open_access_needs_no_token_but_checks_form_origins(engine: Engine) -> None:
    app = inspector_app(engine, access=Open())
    async with browser(app) as client:
        csrf = csrf_of(await client.get("/"))
        assert (await client.post("/turns/x/abort")).status_code == httpx.codes.FORBIDDEN
        assert (await client.post("/turns/x/abort", data={"csrf": csrf})).status_code == httpx.codes.NOT_FOUND
        headers = {"Origin": "http://evil.example"}
        response = await client.post("/turns/x/abort", data={"csrf": csrf}, headers=headers)
        assert response.status_code == httpx.codes.FORBIDDEN
    async with browser(app, Host="evil.example") as client:
        assert (await client.get("/")).status_code == httpx.codes.MISDIRECTED_REQUEST


async def test_form_of_another_process_is_refused(engine: Engine) -> None:
    """Without access control the key is random, and not a constant that readers of the code know."""
    first, second = (inspector_app(engine, access=Open()) for _ in range(2))
    async with browser(first) as there, browser(second) as here:
        csrf = csrf_of(await there.get("/"))
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in there.cookies.jar)
        await here.get("/")
        for headers in ({"Cookie": cookies}, {}):
            response = await here.post("/turns/x/abort", data={"csrf": csrf}, headers=headers)
            assert response.status_code == httpx.codes.FORBIDDEN


async def test_processes_with_the_same_key_accept_forms_of_each_other(engine: Engine) -> None:
    first, second = (inspector_app(engine, access=Open(key="a-key-of-sixteen-")) for _ in range(2))
    async with browser(first) as there, browser(second) as here:
        csrf = csrf_of(await there.get("/"))
        here.cookies = there.cookies
        response = await here.post("/turns/x/abort", data={"csrf": csrf})
        assert response.status_code == httpx.codes.NOT_FOUND
    assert "sixteen" not in repr(Open(key="a-key-of-sixteen-"))
    with pytest.raises(ConfigError, match="at least 16"):
        Open(key="short")


async def test_forms_behind_a_proxy_with_an_allowed_host_pass(engine: Engine) -> None:
    app = inspector_app(engine, access=Open(hosts=["turns.example.com"]))
    async with browser(app) as client:
        csrf = csrf_of(await client.get("/"))
        headers = {"Origin": "https://turns.example.com"}
        response = await client.post("/turns/x/abort", data={"csrf": csrf}, headers=headers)
        assert response.status_code == httpx.codes.NOT_FOUND


async def test_default_access_uses_a_random_token(engine: Engine) -> None:
    first, second = (inspector_app(engine).entry(ADDRESS) for _ in range(2))
    assert first.startswith(f"{ADDRESS}/?token=")
    assert first != second
    async with browser(inspector_app(engine)) as client:
        assert (await client.get("/")).status_code == httpx.codes.UNAUTHORIZED


@pytest.mark.parametrize("token", ["", "short", "with a space, and long enough", "ümläute-are-not-ascii"])
async def test_guessable_or_unsendable_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token_urlsafe"):
        Token(token)


async def test_printed_access_hides_the_token() -> None:
    assert TOKEN not in repr(Token(TOKEN))
