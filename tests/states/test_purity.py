"""The machine has no I/O, no clock and no random numbers, and does not import the engine (docs/rules.md#core)."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import turnwright_proof.moves
import turnwright_proof.theorems
import turnwright_proof.verify
import turnwright_states

#: The machine, and the walk over what it can reach with its moves and theorems.
MODULES = sorted(
    (
        *Path(str(turnwright_states.__file__)).parent.rglob("*.py"),
        *Path(str(turnwright_proof.verify.__file__)).parent.rglob("*.py"),
        Path(str(turnwright_proof.moves.__file__)),
        Path(str(turnwright_proof.theorems.__file__)),
    )
)
#: Who imports the machine loads none of these.
HEAVY = ("asyncio", "ssl", "subprocess", "httpx", "turnwright", "transitions.extensions")
#: pydantic loads some of these for itself; our modules name none of them.
FOREIGN = {
    *("asyncio", "concurrent", "http", "httpx", "logging", "multiprocessing", "os", "pathlib", "select", "shutil"),
    *("signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "turnwright", "urllib"),
    *("time", "random", "secrets", "uuid"),
}
ALLOWED = {
    "ast",
    "collections",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "types",
    "typing",
    "unicodedata",
    "zlib",
}

LIBRARIES = {"msgspec", "pydantic", "pydantic_core", "transitions", "turnwright_proof", "turnwright_states"}


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    """The syntax of a module."""
    return tuple(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))


def imported(module: Path) -> Iterator[str]:
    """The full names of what a module imports, relative imports left out."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)


@pytest.mark.slow
def test_importing_the_machine_loads_no_io() -> None:
    code = f"import sys, turnwright_states; print([m for m in {HEAVY!r} if m in sys.modules])"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (child.stdout.strip(), child.stderr) == ("[]", "")


def test_no_module_names_a_clock_a_socket_or_a_file() -> None:
    for module in MODULES:
        roots = {name.split(".")[0] for name in imported(module)}
        assert not roots & FOREIGN, module
        assert roots <= ALLOWED | LIBRARIES, module


def test_no_module_asks_for_the_present_time() -> None:
    """A time of the journal is written in UTC, and needs no clock."""
    for module in MODULES:
        attributes = {node.attr for node in nodes(module) if isinstance(node, ast.Attribute)}
        assert not attributes & {"now", "utcnow", "today", "localtime", "astimezone"}, module


def test_no_module_loads_the_extensions_of_transitions() -> None:
    """They load asyncio and subprocess: only the diagram writer may."""
    for module in MODULES:
        assert not [name for name in imported(module) if name.startswith("transitions.")], module


def test_no_module_opens_prints_or_imports_by_name() -> None:
    for module in MODULES:
        called = {
            node.func.id for node in nodes(module) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not called & {"open", "print", "input", "__import__", "exec"}, module


def test_purity_tests_cover_every_module() -> None:
    assert {"chart.py", "machine.py", "turn.py", "walk.py"} <= {module.name for module in MODULES}
