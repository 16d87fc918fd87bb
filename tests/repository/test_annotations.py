"""An annotation has one meaning, whether Python evaluates it where it stands (until 3.13) or when it is first read.

From 3.14 on, an annotation sees the names that its class and its module have by the time it is read. A field `object`
is then what `dict[str, object]` names in the same class, and a function `list` what `list[str]` names in its module.
These tests read the source, so that they fail under every version of Python.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("engine", "states", "packages", "examples", "bench", "tests", ".ci")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Binding(NamedTuple):
    """A place where a scope gives a name its meaning. A field is one even without a value: its class has a slot."""

    name: str
    line: int
    is_field: bool = False


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of one scope, those in blocks too; what is inside of functions and classes is another scope."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.ClassDef | Function):
            for block in (getattr(statement, name, []) for name in ("body", "orelse", "finalbody")):
                yield from statements(block)
            for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
                yield from statements(part.body)


def bindings(body: list[ast.stmt], *, of_a_class: bool) -> Iterator[Binding]:
    """The names that the statements of a scope bind."""
    for statement in statements(body):
        match statement:
            case ast.ClassDef(name=name):
                yield Binding(name, statement.lineno)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield Binding(name, statement.lineno, is_field=of_a_class)
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield Binding(name, statement.lineno, is_field=of_a_class)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (
                    Binding((alias.asname or alias.name).partition(".")[0], statement.lineno) for alias in names
                )
            case ast.Assign() | ast.AugAssign() | ast.For() | ast.AsyncFor() | ast.With() | ast.AsyncWith():
                # The statements of a block come by themselves.
                parts = [part for part in ast.iter_child_nodes(statement) if not isinstance(part, ast.stmt)]
                stored = (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Name))
                yield from (Binding(node.id, node.lineno) for node in stored if isinstance(node.ctx, ast.Store))
            case _:
                pass


def annotations(statement: ast.stmt) -> Iterator[ast.expr]:
    """The annotations that a statement evaluates in its own scope."""
    if isinstance(statement, ast.AnnAssign):
        yield statement.annotation
    elif isinstance(statement, Function):
        parameters = statement.args
        arguments = [
            *parameters.posonlyargs,
            *parameters.args,
            *parameters.kwonlyargs,
            parameters.vararg,
            parameters.kwarg,
        ]
        yield from (arg.annotation for arg in arguments if arg is not None and arg.annotation is not None)
        if statement.returns is not None:
            yield statement.returns


def ambiguous(
    body: list[ast.stmt], scopes: tuple[tuple[Binding, ...], ...] = (), kind: type = ast.Module
) -> Iterator[str]:
    """The names in annotations that mean something else when they are looked up later, each with its line."""
    own = tuple(bindings(body, of_a_class=kind is ast.ClassDef))
    for statement in statements(body):
        for annotation in annotations(statement):
            # An assignment in a function is never evaluated there.
            if isinstance(statement, ast.AnnAssign) and issubclass(kind, Function):
                continue
            for name in ast.walk(annotation):
                if isinstance(name, ast.Name):
                    visible_bindings = [bound for scope in (own, *scopes) for bound in scope if bound.name == name.id]
                    if any(bound.is_field or bound.line > name.lineno for bound in visible_bindings):
                        yield f"{name.lineno}: {name.id}"
        if isinstance(statement, ast.ClassDef | Function):
            # A class's names are not seen from the functions in it.
            outer = scopes if kind is ast.ClassDef else (own, *scopes)
            yield from ambiguous(statement.body, outer, type(statement))


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_no_annotation_changes_meaning_when_evaluated_late(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    problems = [
        f"{file.relative_to(ROOT)}:{annotation}"
        for file in files
        for annotation in ambiguous(ast.parse(file.read_text(encoding="utf-8")).body)
    ]
    assert problems == []
    assert files


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("class A:\n    usage: dict[str, object]\n    object: str = ''\n", ["2: object"]),
        ("class A:\n    object: str\n    usage: dict[str, object]\n", ["3: object"]),
        ("class A:\n    def list(self) -> None: ...\n    def all(self) -> list[str]: ...\n", ["3: list"]),
        ("class A:\n    def all(self, *more: list) -> None: ...\n    if True:\n        list: int = 0\n", ["2: list"]),
        ("def f(x: list) -> None: ...\ndef list() -> None: ...\n", ["1: list"]),
        ("def f():\n    class A:\n        x: type\n    type = 3\n", ["3: type"]),
        ("from a import B\ndef f(x: B) -> None: ...\nfrom c import B\n", ["2: B"]),
        ("class A:\n    class B: ...\n    x: B\n", []),
        ("class A:\n    list: int\n    def f(self):\n        def g(x: list) -> None: ...\n", []),
        ("class A:\n    usage: 'dict[str, object]'\n    kind: str\n", []),
    ],
)
def test_ambiguous_annotation_is_detected(source: str, problems: list[str]) -> None:
    assert list(ambiguous(ast.parse(source).body)) == problems
