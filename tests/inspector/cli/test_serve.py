"""`turnwright serve`: the inspector of a store, safe unless somebody says otherwise, and gone when it is to stop."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Child, Cli, Endpoint

TOKEN = "a-token-that-nobody-guesses"  # noqa: S105 (a test's)
POLICY = """
from turnwright import Trip, TurnContext, output_guardrail


@output_guardrail
async def no_secrets(ctx: TurnContext, text: str) -> Trip | None:
    return None
"""
SERVE = ("serve", "--port", "0", "--json")


def submit(cli: "Cli", prompt: str) -> str:
    """Submit a turn to the store of the commands."""

    async def begin() -> str:
        async with Engine(model=ScriptedModel(), store=f"sqlite:///{cli.folder}/turns.db") as engine:
            return await engine.submit(Agent(name="Tester"), prompt)

    return anyio.run(begin)


@contextmanager
def person(child: "Child") -> Iterator[httpx.Client]:
    """Somebody who has opened the printed address."""
    address = child.until("started")["address"]
    with httpx.Client(base_url=httpx.URL(address).copy_with(query=None), timeout=200) as client:
        assert client.get(address, follow_redirects=True).status_code == httpx.codes.OK
        yield client


def page_has(client: httpx.Client, turn: str, words: str) -> bool:
    """Return whether the page of a turn has these words."""
    return words in client.get(f"/turns/{turn}").text


def test_first_line_has_the_address_and_only_the_token_gives_access(cli: "Cli") -> None:
    turn = submit(cli, "Say hello")
    child = cli.start(*SERVE)
    with person(child) as client:
        assert client.base_url.host == "127.0.0.1"
        page = client.get("/")
        assert turn in page.text
        assert "server" not in page.headers
        client.cookies.clear()
        for path in ("/", f"/turns/{turn}", "/static/inspector.css", "/live"):
            assert client.get(path).status_code == httpx.codes.UNAUTHORIZED
    done = child.terminate().done()
    assert (done.code, done.err) == (0, "")
    assert [event["type"] for event in done.events] == ["started", "stopped"]
    assert (done.events[0]["store"], done.events[0]["drives"]) == ("sqlite:///turns.db", False)


def test_first_line_for_people_is_the_address_alone(cli: "Cli") -> None:
    child = cli.start("serve", "--port", "0", "--token", TOKEN)
    child.shows(f"/?token={TOKEN}")
    done = child.interrupt().done()
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert (first.startswith("http://127.0.0.1:"), " " in first) == (True, False)
    assert second == "inspector of sqlite:///turns.db; Ctrl-C stops it"


def test_address_and_token_are_not_logged(cli: "Cli") -> None:
    child = cli.start(*SERVE, "--token", TOKEN, "--log-level", "debug")
    with person(child):
        pass
    assert TOKEN not in child.terminate().done().err


def test_server_stops_while_pages_are_open(cli: "Cli") -> None:
    turn = submit(cli, "Say hello")
    child = cli.start(*SERVE)
    with (
        person(child) as client,
        client.stream("GET", "/live") as first,
        client.stream("GET", f"/turns/{turn}/live") as two,
    ):
        assert (next(first.iter_lines()), next(two.iter_lines())[:2]) == ("event: changed", "id")
        done = child.terminate().done()
    assert (done.code, done.err) == (0, "")


def test_second_signal_stops_the_server_during_a_request(cli: "Cli") -> None:
    child = cli.start(*SERVE)
    with person(child) as client, socket.create_connection((client.base_url.host, client.base_url.port)) as slow:
        slow.sendall(b"POST /new HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n")
        client.get("/")  # the server has read the other request, or will with this one
        done = child.terminate().terminate().done()
    assert (done.code, done.err) == (143, "turnwright: left at once\n")


def test_answered_turn_is_driven_by_the_server_with_drive(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Hello there.")
    turn = submit(cli, "Say hello")
    child = cli.start(*SERVE, "--drive")
    with person(child) as client:
        csrf = client.get(f"/turns/{turn}").text.partition('name="csrf" value="')[2].partition('"')[0]
        client.post(f"/turns/{turn}/resume", data={"csrf": csrf})
        cli.await_until(lambda: "Hello there." in cli.run("show", turn).out)
    assert child.terminate().done().code == 0


def test_turn_without_the_required_hooks_is_not_driven(cli: "Cli", endpoint: "Endpoint") -> None:
    """The page says so. With `--hooks`, the same button continues it."""
    cli.write("policy.py", POLICY)
    endpoint.calls(("ask_user_input", {"question": "Which?"})).says("Hello there.")
    turn = cli.run("run", "Say hello", "--hooks", "policy.py", "--json").turn
    cli.run("answer", turn, "--answer", "question-1=red")
    for flags, words in (((), "it began with guardrail"), (("--hooks", "policy.py"), "Hello there.")):
        child = cli.start(*SERVE, "--drive", *flags)
        with person(child) as client:
            csrf = client.get(f"/turns/{turn}").text.partition('name="csrf" value="')[2].partition('"')[0]
            client.post(f"/turns/{turn}/resume", data={"csrf": csrf})
            cli.await_until(partial(page_has, client, turn, words))
        assert child.terminate().done().code == 0
    assert len(endpoint.requests) == 2


def test_page_starts_turns_if_the_server_drives(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Hello yourself.")
    child = cli.start(*SERVE, "--drive")
    with person(child) as client:
        csrf = client.get("/new").text.split('name="csrf" value="')[1].split('"')[0]
        form = {"csrf": csrf, "agent": "assistant", "prompt": "Say hello", "session": ""}
        turn = client.post("/new", data=form).headers["location"].rpartition("/")[2]
        cli.await_until(lambda: "Hello yourself." in cli.run("show", turn).out)
    child.terminate().done()
    assert endpoint.requests[-1].messages[-1]["content"] == "Say hello"


def test_recorded_runs_and_exported_turns_are_served_without_a_store(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    turn = cli.run("run", "Say hello", "--json").turn
    cli.run("export", turn, "--format", "journal", "--output", "turn.jsonl")
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    cli.write("run.json", json.dumps(messages))
    child = cli.start(*SERVE, "--runs", "turn.jsonl", "--runs", "run.json")
    with person(child) as client:
        assert "Say hello" in client.get("/").text
        cli.await_until(lambda: "run.json" in client.get("/runs").text)
        assert "Hello." in client.get("/runs/1").text
    done = child.terminate().done()
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("flags", [("--drive",), ("--store", "sqlite:///other.db"), ("--runs", "nowhere")])
def test_runs_are_served_alone_and_must_exist(cli: "Cli", flags: tuple[str, ...]) -> None:
    cli.write("run.json", "[]")
    done = cli.run(*SERVE, "--runs", "run.json", *flags)
    assert done.code == 2
    assert ("there is no such file" if "nowhere" in flags else "is served without a store") in done.err


@pytest.mark.parametrize("flags", [("--tools", "x.py"), ("--model", "x"), ("--base-url", "http://x/v1")])
def test_driving_flags_need_drive(cli: "Cli", flags: tuple[str, ...]) -> None:
    done = cli.run(*SERVE, *flags)
    assert (done.code, f"{flags[0]}: needs --drive" in done.err) == (2, True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "some.example"])  # noqa: S104 (refused)
def test_remote_address_needs_allow_remote_and_an_own_token(cli: "Cli", host: str) -> None:
    unmeant, without_token = cli.each((*SERVE, "--host", host), (*SERVE, "--host", host, "--allow-remote"))
    assert (unmeant.code, "--allow-remote" in unmeant.err) == (2, True)
    assert (without_token.code, "TURNWRIGHT_TOKEN" in without_token.err) == (2, True)


def test_token_is_not_printed_for_a_remote_address(cli: "Cli") -> None:
    remote = ("--host", "0.0.0.0", "--allow-remote", "--allow-host", "turns.example.com")  # noqa: S104 (a test's)
    child = cli.start(*SERVE, *remote, env={"TURNWRIGHT_TOKEN": TOKEN})
    address = httpx.URL(child.until("started")["address"])
    assert (address.host, address.query) == ("turns.example.com", b"")
    with httpx.Client(base_url=f"http://127.0.0.1:{address.port}", timeout=200) as client:
        assert client.get("/").status_code == httpx.codes.UNAUTHORIZED
        answers = {"turns.example.com": httpx.codes.OK, "evil.example": httpx.codes.MISDIRECTED_REQUEST}
        for host, status in answers.items():
            headers = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
            assert client.get("/", headers=headers).status_code == status
    done = child.terminate().done()
    assert (done.code, TOKEN in done.out + done.err) == (0, False)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--token", "short"), "needs at least 16"),
        (("--token", ""), "--token: is empty"),
        (("--port", "70000"), "is not a port"),
        (("--store", "memory:"), "memory:"),
        (("--store", "sqlite:///nowhere.db"), "there is no store"),
        (("--host", "localhost", "--drive"), "no model"),
    ],
)
def test_startup_mistake_is_a_single_line(cli: "Cli", flags: tuple[str, ...], words: str) -> None:
    done = cli.run(*SERVE, *flags, env={"OPENAI_API_KEY": None, "OPENAI_BASE_URL": None})
    assert (done.code, words in done.err, len(done.err.splitlines())) == (2, True, 1)


def test_port_in_use_is_reported_in_a_line(cli: "Cli") -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = cli.run("serve", "--port", str(listener.getsockname()[1]))
    assert (done.code, "choose another --port" in done.err, len(done.err.splitlines())) == (2, True, 1)


def test_root_path_prefixes_all_paths_behind_a_proxy(cli: "Cli") -> None:
    child = cli.start(*SERVE, "--root-path", "ops/turns")
    address = httpx.URL(child.until("started")["address"])
    assert address.path == "/ops/turns/"
    with httpx.Client(base_url=f"http://127.0.0.1:{address.port}", timeout=200) as client:
        entered = client.get("/", params=address.params)  # as the proxy asks
        assert entered.headers["location"] == "/ops/turns/"
        assert "Path=/ops/turns;" in entered.headers["set-cookie"]
        assert 'href="/ops/turns/static/' in client.get("/", headers={"Cookie": entered.headers["set-cookie"]}).text
    child.terminate()


@pytest.mark.slow
def test_demo_serves_turns_of_every_kind_without_a_key(cli: "Cli") -> None:
    nothing = {"OPENAI_API_KEY": None, "OPENAI_BASE_URL": None, "TMPDIR": str(cli.folder)}
    child = cli.start("demo", "--serve", "--port", "0", "--json", env=nothing)
    with person(child) as client:
        kinds = ("step cap", "doom loop", "paused", "answered", "running", "Clerk", "Expert")
        cli.await_until(lambda: all(map(client.get("/").text.__contains__, kinds)))
    done = child.terminate().done()
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out.splitlines()[0])["drives"]
    assert list(cli.folder.iterdir()) == []
