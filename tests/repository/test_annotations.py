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
    for one in body:
        yield one
        if not isinstance(one, ast.ClassDef | Function):
            for block in (getattr(one, name, []) for name in ("body", "orelse", "finalbody")):
                yield from statements(block)
            for part in [*getattr(one, "handlers", []), *getattr(one, "cases", [])]:
                yield from statements(part.body)


def bindings(body: list[ast.stmt], *, of_a_class: bool) -> Iterator[Binding]:
    """The names that the statements of a scope bind."""
    for one in statements(body):
        match one:
            case ast.ClassDef(name=name):
                yield Binding(name, one.lineno)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield Binding(name, one.lineno, is_field=of_a_class)
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield Binding(name, one.lineno, is_field=of_a_class)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (Binding((alias.asname or alias.name).partition(".")[0], one.lineno) for alias in names)
            case ast.Assign() | ast.AugAssign() | ast.For() | ast.AsyncFor() | ast.With() | ast.AsyncWith():
                stored = (node for node in ast.walk(one) if isinstance(node, ast.Name))
                yield from (Binding(node.id, node.lineno) for node in stored if isinstance(node.ctx, ast.Store))
            case _:
                pass


def annotations(one: ast.stmt) -> Iterator[ast.expr]:
    """The annotations that a statement evaluates in its own scope."""
    if isinstance(one, ast.AnnAssign):
        yield one.annotation
    elif isinstance(one, Function):
        given = one.args
        each = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        yield from (arg.annotation for arg in each if arg is not None and arg.annotation is not None)
        if one.returns is not None:
            yield one.returns


def ambiguous(
    body: list[ast.stmt], scopes: tuple[tuple[Binding, ...], ...] = (), kind: type = ast.Module
) -> Iterator[str]:
    """The names in annotations that mean something else when they are looked up later, each with its line."""
    own = tuple(bindings(body, of_a_class=kind is ast.ClassDef))
    for one in statements(body):
        for annotation in annotations(one):
            # An assignment in a function is never evaluated there.
            if isinstance(one, ast.AnnAssign) and issubclass(kind, Function):
                continue
            for used in ast.walk(annotation):
                if isinstance(used, ast.Name):
                    seen = [bound for scope in (own, *scopes) for bound in scope if bound.name == used.id]
                    if any(bound.is_field or bound.line > used.lineno for bound in seen):
                        yield f"{used.lineno}: {used.id}"
        if isinstance(one, ast.ClassDef | Function):
            # A class's names are not seen from the functions in it.
            outer = scopes if kind is ast.ClassDef else (own, *scopes)
            yield from ambiguous(one.body, outer, type(one))


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_no_annotation_changes_meaning_when_evaluated_late(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    found = [
        f"{file.relative_to(ROOT)}:{one}"
        for file in files
        for one in ambiguous(ast.parse(file.read_text(encoding="utf-8")).body)
    ]
    assert found == []
    assert files


@pytest.mark.parametrize(
    ("source", "found"),
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
def test_ambiguous_annotation_is_detected(source: str, found: list[str]) -> None:
    assert list(ambiguous(ast.parse(source).body)) == found
