"""Tools out of modules and files."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwright.errors import ConfigError
from turnwright.tools import load_tools
from turnwright.tools.load import load_tools_and_deps

TOOLS = """
from turnwright.tools import tool

@tool
def second(b: int) -> int:
    return b

@tool
async def first(a: int) -> int:
    return a

same = first
number = 5
"""


@pytest.fixture(autouse=True)
def import_state_is_left_as_it_was() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    assert sys.path == path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory."""
    here = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(here)


def fault(spec: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_tools(str(spec))
    return str(caught.value)


def test_file_gives_the_tools_in_the_order_of_definition(tmp_path: Path) -> None:
    (tmp_path / "my-tools.py").write_text(TOOLS)
    assert [tool.name for tool in load_tools(str(tmp_path / "my-tools.py"))] == ["second", "first"]


def test_a_file_may_be_named_from_the_working_directory(folder: Path) -> None:
    (folder / "mine.py").write_text(TOOLS)
    assert len(load_tools("mine.py")) == 2
    assert len(load_tools("./mine.py")) == 2


def test_a_module_of_the_working_directory_is_found(folder: Path) -> None:
    (folder / "tw_pkg").mkdir()
    (folder / "tw_pkg" / "__init__.py").touch()
    (folder / "tw_pkg" / "mine.py").write_text(TOOLS)
    assert [tool.name for tool in load_tools("tw_pkg.mine")] == ["second", "first"]


def test_folder_of_a_file_is_importable_during_the_load(tmp_path: Path) -> None:
    (tmp_path / "tw_helper.py").write_text(TOOLS)
    (tmp_path / "mine.py").write_text("from tw_helper import first, second")
    assert [tool.name for tool in load_tools(str(tmp_path / "mine.py"))] == ["first", "second"]


def test_two_files_with_the_same_name_are_loaded_separately(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        text = f"from turnwright.tools import tool\n@tool\ndef {name}() -> None: ...\n"
        (tmp_path / name / "tools.py").write_text(text)
    assert [load_tools(str(tmp_path / name / "tools.py"))[0].name for name in ("one", "two")] == ["one", "two"]


def test_models_and_postponed_annotations_of_a_file_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from turnwright.tools import tool\n"
        "@dataclass\nclass Item:\n    name: str\n"
        "@tool\ndef act(item: Item) -> str:\n    return item.name\n"
    )
    (loaded_tool,) = load_tools(str(tmp_path / "mine.py"))
    assert "Item" in str(loaded_tool.parameters)


def test_file_may_make_the_dependencies_of_the_tools(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{TOOLS}\nasync def make_deps(turn):\n    return turn.agent\n")
    loaded = load_tools_and_deps(str(tmp_path / "mine.py"))
    assert (len(loaded.tools), getattr(loaded.make_deps, "__name__", "")) == (2, "make_deps")
    (tmp_path / "mine.py").write_text(TOOLS)
    assert load_tools_and_deps(str(tmp_path / "mine.py")).make_deps is None
    (tmp_path / "mine.py").write_text(f"{TOOLS}\nmake_deps = 5")
    assert fault(tmp_path / "mine.py").endswith("make_deps must be a function that makes the dependencies of a turn")


def test_missing_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "none.py"
    assert fault(path) == f"there is no file {path}: give the path of a .py file, or the name of a module"
    (tmp_path / "folder.py").mkdir()
    assert fault(tmp_path / "folder.py").startswith("there is no file")


@pytest.mark.parametrize("spec", ["", "a/b", "./tools", ".tools", "pkg:mod", "my-tools"])
def test_spec_of_neither_file_nor_module_is_refused(spec: str) -> None:
    assert fault(spec) == f"{spec!r} is not a module: give the path of a .py file, or the dotted name of a module"


@pytest.mark.parametrize("spec", ["tw_nowhere", "tw_nowhere.deep", "json.tw_nowhere"])
def test_missing_module_error_tells_the_searched_places(folder: Path, spec: str) -> None:
    assert fault(spec).startswith(f"there is no module {spec!r} (looked in {folder} and in Python's own path)")


def test_exception_of_a_file_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import json\n\njson.loads('{')\n")
    text = fault(path)
    assert text.startswith(f"{path} cannot be loaded: JSONDecodeError: Expecting property name")
    assert text.endswith(f"({path}, line 3)")


def test_import_missing_inside_a_file_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import tw_lacking\n")
    text = f"{path} cannot be loaded: ModuleNotFoundError: No module named 'tw_lacking' ({path}, line 1)"
    assert fault(path) == text


def test_exception_of_a_module_is_named_with_the_line(folder: Path) -> None:
    (folder / "tw_broken.py").write_text("\n1 / 0\n")
    assert fault("tw_broken") == (
        f"tw_broken cannot be loaded: ZeroDivisionError: division by zero ({folder / 'tw_broken.py'}, line 2)"
    )


def test_user_error_in_a_library_is_named_with_the_own_line(folder: Path) -> None:
    (folder / "tw_agents.py").write_text("from turnwright import Agent\n\nAgent(name='A', stps=1)\n")
    assert fault("tw_agents").endswith(f"({folder / 'tw_agents.py'}, line 3)")
    library = "compile('def check(value): raise ValueError(value)', '/usr/lib/python3/dist-packages/tw.py', 'exec')"
    (folder / "tw_calls.py").write_text(f"exec({library})\n\ncheck(5)\n")
    assert fault("tw_calls").endswith(f"({folder / 'tw_calls.py'}, line 3)")
    (folder / "tw_imports.py").write_text("import tw_agents\n")
    assert fault(folder / "tw_imports.py").endswith(f"({folder / 'tw_agents.py'}, line 3)")


def test_syntax_error_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("x = 1\ny = (\n")
    assert fault(path) == f"{path} cannot be loaded: SyntaxError: '(' was never closed ({path}, line 2)"
    path.write_text("x = '\0'\n")
    assert fault(path).endswith(f"source code string cannot contain null bytes ({path})")


def test_invalid_tool_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from turnwright.tools import tool\n@tool\ndef act(*rest: int) -> None: ...\n")
    text = fault(path)
    assert text.startswith(f"{path} cannot be loaded: tool act: parameter '*rest: int' takes any number")
    assert f"({path}, line " in text


def test_a_file_cannot_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import sys\nsys.exit(3)\n")
    assert fault(path) == f"{path} cannot be loaded: SystemExit: 3 ({path}, line 2)"


def test_failed_file_leaves_no_module_behind(tmp_path: Path) -> None:
    before = set(sys.modules)
    (tmp_path / "mine.py").write_text("raise ValueError\n")
    fault(tmp_path / "mine.py")
    assert set(sys.modules) == before


def test_file_without_tools_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def act() -> None: ...\n")
    assert fault(path) == f"{path} has no tools: put @tool (from turnwright import tool) above a function in it"


def test_a_tool_without_a_docstring_is_named_in_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path := tmp_path / "mine.py").write_text(
        "from turnwright import tool\n@tool\ndef act(): ...\n@tool\ndef look():\n    'Look.'\n"
    )
    load_tools(str(path))
    assert caplog.messages == [f"{path}: tool act has no docstring: the model knows only its name"]


def test_two_tools_with_the_same_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(TOOLS + "\n@tool(name='first')\ndef third() -> None: ...\n")
    assert fault(path) == f"{path} has two tools with the name 'first': rename one with @tool(name=...)"
