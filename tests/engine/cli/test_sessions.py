"""`turnwright sessions`, `title`, `show --session` and `delete --session`: conversations on the command line."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint


def test_sessions_are_listed_with_titles(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    cli.run("run", "Tidy up\nplease", "--session", "s1")
    cli.run("run", "Cook", "--session", "s2")
    cli.run("run", "Once more", "--session", "s1")
    cli.run("run", "Alone")
    done = cli.run("sessions")
    head, *rows = done.out.splitlines()
    assert (done.code, head.split()) == (0, ["SESSION", "WHEN", "TURNS", "OPEN", "TITLE"])
    assert [row.split()[0] for row in rows] == ["s1", "s2"]
    assert rows[0].endswith("Tidy up")
    first, second = cli.run("sessions", "--json").events
    assert (first["session"], first["title"], first["turns"], first["open_turn"]) == ("s1", "Tidy up", 2, None)
    assert second["session"] == "s2"
    done = cli.run("sessions", "--limit", "1")
    assert "s2" not in done.out
    assert "these are the newest 1: --limit 10 lists more" in done.err


def test_store_without_sessions_is_reported(cli: "Cli") -> None:
    done = cli.run("sessions")
    assert (done.code, done.out, done.err) == (0, "", "no sessions yet in sqlite:///turns.db\n")


def test_title_is_set_by_a_session_prefix(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    for session in ("ann-1", "ann-2"):
        cli.run("run", "Work", "--session", session)
    done = cli.run("title", "ann", "House work")
    assert (done.code, done.out) == (2, "")
    assert "ann is ambiguous: 2 sessions begin so: ann-2, ann-1: write more of the id" in done.err
    assert cli.run("title", "ann-1", "House work").out == "session ann-1: its title is set\n"
    assert {event["session"]: event["title"] for event in cli.run("sessions", "--json").events} == {
        "ann-1": "House work",
        "ann-2": "Work",
    }
    assert cli.run("title", "ann-1", " ").code == 2
    assert "there is no session 'bob' in this store: `turnwright sessions`" in cli.run("title", "bob", "Title").err


def test_conversation_is_shown_turn_by_turn(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    turns = [cli.run("run", prompt, "--session", "s1", "--json").turn for prompt in ("First", "Second")]
    done = cli.run("show", "--session", "s1")
    lines = [line for line in done.out.splitlines() if not line.startswith("assistant: --") and "-- step" not in line]
    assert lines == [
        f"turn {turns[0]}: finished: answered",
        "user:      First",
        "           Done.",
        f"turn {turns[1]}: finished: answered",
        "user:      Second",
        "           Done.",
    ]
    assert [event["turn"] for event in cli.run("show", "--session", "s1", "--json").events] == turns
    for arguments, why in (
        (("show",), "name a turn, or a session with --session: `turnwright turns` and `turnwright sessions` list them"),
        (("show", turns[0], "--session", "s1"), "name a turn or a session, not both"),
        (("show", "--session", "s1", "--journal"), "--journal shows one turn"),
        (("show", "--session", "nope"), "there is no session 'nope' in this store: `turnwright sessions` lists them"),
    ):
        refused = cli.run(*arguments)
        assert (refused.code, refused.out) == (2, "")
        assert why in refused.err


def test_waiting_turn_of_a_session_names_the_show_command(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("ask_user_input", {"question": "Which?"}))
    turn = cli.run("run", "Ask", "--session", "s1", "--json").turn
    *_, last = cli.run("show", "--session", "s1").out.splitlines()
    assert last == f"Not ended: `turnwright show {turn}` shows how to continue it."


def test_session_is_deleted_with_all_turns(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    for _ in range(2):
        cli.run("run", "Work", "--session", "s1")
    kept_turn = cli.run("run", "Work", "--session", "s2", "--json").turn
    assert cli.run("delete", "--session", "s1").out == "session s1: deleted, with 2 turns\n"
    assert [event["turn"] for event in cli.run("turns", "--json").events] == [kept_turn]
    assert "there is no session 's1'" in cli.run("delete", "--session", "s1").err
    assert "name a turn, or a session with --session" in cli.run("delete").err


def test_session_with_a_running_turn_is_not_deleted(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon")
    child = cli.start("run", "A story", "--session", "s1", "--json")
    turn = child.until("text_delta")["turn"]
    (event,) = cli.run("sessions", "--json").events
    assert event["open_turn"] == turn
    assert f"turn {turn} is being driven by" in cli.run("delete", "--session", "s1").err
    child.interrupt().done()
