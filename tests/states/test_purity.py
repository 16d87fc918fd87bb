"""The machine has no I/O, no clock and no random numbers, and does not import the engine (docs/rules.md#core)."""

import ast
import subprocess
import sys
from collections.abc import Iterator
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


def imported(module: Path) -> Iterator[str]:
    """The full names of what a module imports, relative imports left out."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)


@pytest.mark.slow
def test_importing_the_machine_loads_no_io() -> None:
    code = f"import sys, turnwright_states, turnwright_states.traces; print([m for m in {HEAVY!r} if m in sys.modules])"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (child.stdout.strip(), child.stderr) == ("[]", "")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_module_names_a_clock_a_socket_or_a_file(module: Path) -> None:
    roots = {name.split(".")[0] for name in imported(module)}
    assert not roots & FOREIGN
    assert roots <= ALLOWED | LIBRARIES


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_module_asks_for_the_present_time(module: Path) -> None:
    """A time of the journal is written in UTC, and needs no clock."""
    nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert not attributes & {"now", "utcnow", "today", "localtime", "astimezone"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_module_loads_the_extensions_of_transitions(module: Path) -> None:
    """They load asyncio and subprocess: only the diagram writer may."""
    assert not [name for name in imported(module) if name.startswith("transitions.")]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_module_opens_prints_or_imports_by_name(module: Path) -> None:
    called = {
        node.func.id
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "__import__", "exec"}


def test_purity_tests_cover_every_module() -> None:
    assert {"chart.py", "machine.py", "turn.py", "walk.py"} <= {module.name for module in MODULES}
