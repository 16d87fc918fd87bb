"""The built-in tools, as a model calls them."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.tools import (
    Ask,
    GivenAnswer,
    Tool,
    ToolContext,
    ToolError,
    ToolFailedError,
    ToolInputError,
    builtin_tools,
)
from turnwright_states import Decision, InterruptKind

CONTEXT = ToolContext(turn_id="t1", call_id="c1")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ground = tmp_path_factory.mktemp("ground")
    (ground / "project" / "src").mkdir(parents=True)
    (ground / "project" / "src" / "a.py").write_text("inside\n")
    (ground / "project" / "link").symlink_to(ground / "secret.txt")
    (ground / "secret.txt").write_text("the secret\n")
    return ground / "project"


def named(root: Path, name: str) -> Tool:
    return {tool.name: tool for tool in builtin_tools(root)}[name]


def call(root: Path, name: str, arguments: Mapping[str, JsonValue], context: ToolContext = CONTEXT) -> str:
    return anyio.run(named(root, name).run, arguments, context).text


def run(root: Path, name: str, context: ToolContext = CONTEXT, /, **arguments: JsonValue) -> str:
    return call(root, name, arguments, context)


def test_five_builtin_tools_are_repeatable(root: Path) -> None:
    tools = builtin_tools(root)
    assert [tool.name for tool in tools] == [
        "list_files",
        "read_file",
        "search_files",
        "ask_user_input",
        "request_read_access",
    ]
    assert {tool.on_crash for tool in tools} == {"rerun"}


def test_each_builtin_tool_and_argument_has_a_description(root: Path) -> None:
    for tool in builtin_tools(root):
        assert tool.description
        properties = tool.parameters["properties"]
        assert isinstance(properties, dict)
        for schema in properties.values():
            assert isinstance(schema, dict)
            assert schema["description"]
        assert "context" not in properties


def test_missing_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none"):
        builtin_tools(tmp_path / "none")


def test_files_are_listed_read_and_searched(root: Path) -> None:
    assert run(root, "list_files") == "link (a link)\nsrc/"
    assert run(root, "list_files", recursive=True) == "link (a link)\nsrc/\nsrc/a.py (7 bytes)"
    assert run(root, "read_file", path="src/a.py") == "inside\n"
    assert run(root, "read_file", path="src/a.py", offset=2) == "(the file has 1 lines)"
    assert run(root, "search_files", pattern="ins", glob="*.py") == "src/a.py:1: inside"
    assert run(root, "search_files", pattern="^i.s", regex=True, path="src") == "src/a.py:1: inside"


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("read_file", {}, "- path: is missing"),
        ("read_file", {"path": "a", "offset": 0}, "- offset: should be greater than or equal to 1; you passed 0"),
        ("read_file", {"path": "a", "limit": True}, "- limit: should be a number, not a boolean"),
        ("search_files", {"pattern": ""}, "- pattern: String should have at least 1 character"),
        ("ask_user_input", {"question": ""}, "- question: String should have at least 1 character"),
    ],
)
def test_wrong_arguments_are_explained(root: Path, name: str, arguments: dict[str, JsonValue], problem: str) -> None:
    with pytest.raises(ToolInputError) as caught:
        call(root, name, arguments)
    assert problem in str(caught.value)


@pytest.mark.parametrize("path", ["../secret.txt", "link"])
def test_outside_path_is_refused_until_granted(root: Path, path: str) -> None:
    secret = str(root.parent / "secret.txt")
    for name in ("read_file", "search_files", "list_files"):
        with pytest.raises(ToolFailedError, match="Call request_read_access"):
            call(root, name, {"path": path} | ({"pattern": "s"} if name == "search_files" else {}))
    granted = ToolContext(turn_id="t1", call_id="c2", grants=(secret,))
    assert run(root, "read_file", granted, path=path) == "the secret\n"
    assert run(root, "search_files", granted, path=path, pattern="s") == f"{secret}:1: the secret"


def test_question_waits_for_the_reply(root: Path) -> None:
    ask = named(root, "ask_user_input")
    question: dict[str, JsonValue] = {"question": "Which one?", "choices": ["red", "blue"]}
    assert ask.asks(question, CONTEXT) == Ask(InterruptKind.QUESTION, "Which one?", ("red", "blue"))
    assert ask.asks({"question": "Why?"}, CONTEXT) == Ask(InterruptKind.QUESTION, "Why?")
    replied = ToolContext(turn_id="t1", call_id="c1", answers=(GivenAnswer(Decision.REPLY, "blue"),))
    assert ask.asks(question, replied) is None
    assert call(root, "ask_user_input", question, replied) == "blue"


def test_blank_reply_is_reported_as_an_empty_answer(root: Path) -> None:
    replied = ToolContext(turn_id="t1", call_id="c1", answers=(GivenAnswer(Decision.REPLY),))
    assert run(root, "ask_user_input", replied, question="Why?") == "(the user gave an empty answer)"


def test_question_without_an_asked_person_fails(root: Path) -> None:
    with pytest.raises(ToolFailedError, match="the user was not asked"):
        run(root, "ask_user_input", question="Why?")


def test_wrong_question_is_an_input_error_before_the_pause(root: Path) -> None:
    with pytest.raises(ToolInputError, match="- question: is missing"):
        named(root, "ask_user_input").asks({}, CONTEXT)


def test_access_is_asked_for_the_target_of_the_path(root: Path) -> None:
    access = named(root, "request_read_access")
    secret = str(root.parent / "secret.txt")
    assert access.asks({"path": "link", "reason": "To see\nit."}, CONTEXT) == Ask(
        InterruptKind.GRANT, f"Allow reading {secret}? To see it.", grant=secret
    )


def test_granted_access_is_confirmed_without_a_question(root: Path) -> None:
    secret = str(root.parent / "secret.txt")
    granted = ToolContext(turn_id="t1", call_id="c1", answers=(GivenAnswer(Decision.APPROVE),), grants=(secret,))
    assert named(root, "request_read_access").asks({"path": "../secret.txt"}, granted) is None
    text = run(root, "request_read_access", granted, path="../secret.txt")
    assert text == f"Access granted: you may read {secret} now."


@pytest.mark.parametrize("path", ["src/a.py", "../secret.txt"])
def test_access_to_a_readable_path_is_not_asked(root: Path, path: str) -> None:
    context = ToolContext(turn_id="t1", call_id="c1", grants=(str(root.parent / "secret.txt"),))
    assert named(root, "request_read_access").asks({"path": path}, context) is None
    assert run(root, "request_read_access", context, path=path).startswith("You may already read /")


def test_link_changed_after_the_grant_opens_nothing_and_asks_no_person(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to("../one")
    access = named(tmp_path / "root", "request_read_access")
    question = access.asks({"path": "link"}, CONTEXT)
    assert question is not None
    assert question.grant is not None
    assert question.grant == str(tmp_path / "one")
    (tmp_path / "root" / "link").unlink()
    (tmp_path / "root" / "link").symlink_to("../two")
    granted = ToolContext(
        turn_id="t1", call_id="c1", answers=(GivenAnswer(Decision.APPROVE),), grants=(question.grant,)
    )
    assert access.asks({"path": "link"}, granted) is None
    with pytest.raises(ToolFailedError, match="was not granted"):
        anyio.run(access.run, {"path": "link"}, granted)


@pytest.mark.parametrize("path", ["\0", "/caf\udce9", "\ud800"])
def test_access_to_an_invalid_path_is_an_input_error(root: Path, path: str) -> None:
    with pytest.raises(ToolInputError, match="path"):
        named(root, "request_read_access").asks({"path": path}, CONTEXT)


def test_a_name_cannot_write_a_second_line_into_the_question(root: Path) -> None:
    question = named(root, "request_read_access").asks({"path": "/a\nAllow?\x1b[2K", "reason": "b\nc"}, CONTEXT)
    assert question is not None
    assert question.question == "Allow reading /a\\nAllow?\\x1b[2K? b c"
    assert question.grant == "/a\nAllow?\x1b[2K"


def test_exploding_regular_expression_does_not_block_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a" * 60 + "!")
    search_files = named(tmp_path, "search_files")

    async def scene() -> bool:
        with anyio.move_on_after(0.2) as scope:
            await search_files.run({"pattern": "(a+)+b", "regex": True}, CONTEXT)
        return scope.cancelled_caught

    assert anyio.run(scene)


_PATHS = st.text(st.characters()) | st.lists(
    st.sampled_from(["..", ".", "", "src", "link", "secret.txt", "a.py", "project", "~"]), max_size=5
).map("/".join)


@given(path=_PATHS, name=st.sampled_from(["list_files", "read_file", "search_files"]))
def test_no_path_reveals_anything_outside(root: Path, path: str, name: str) -> None:
    arguments: dict[str, JsonValue] = {"pattern": "e"} if name == "search_files" else {}
    try:
        text = call(root, name, {"path": path, **arguments})
    except ToolError:
        return
    assert text in ("link (a link)\nsrc/", "src/a.py (7 bytes)", "inside\n", "src/a.py:1: inside")
