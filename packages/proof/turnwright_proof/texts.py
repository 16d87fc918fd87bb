"""The texts of guards and effects, as proofs and drawings read them: their trees, their values, their words."""

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from turnwright_states.counters import KEPT, PASSING
from turnwright_states.guards import WORDS, Guard, GuardError

_PARTS: Final = (
    ast.BoolOp,
    ast.UnaryOp,
    ast.Not,
    ast.And,
    ast.Or,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.IfExp,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.Name,
    ast.Load,
    ast.Constant,
)


@cache
def parse_text(text: str) -> ast.expr:
    """Return the tree of a text in the effects' language. Raises `GuardError` for anything else.

    The trees are shared: do not change one.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise GuardError(f"effect {text!r}: {error.msg}") from None
    for node in ast.walk(tree):
        is_chained = isinstance(node, ast.Compare) and len(node.ops) > 1
        is_other_constant = isinstance(node, ast.Constant) and type(node.value) not in (int, bool)
        if is_chained or is_other_constant or not isinstance(node, _PARTS):
            raise GuardError(f"effect {text!r}: {ast.unparse(node)!r} is not in the effects' language")
    return tree


def names_in(text: str) -> frozenset[str]:
    """Return the names that a text reads."""
    return frozenset(node.id for node in ast.walk(parse_text(text)) if isinstance(node, ast.Name))


#: The counters with the values False and True; all others are integers.
FLAGS: Final = frozenset(
    {"budgeted", "prepared"}
    | {name for name, atoms in KEPT.items() if "" in atoms}
    | {name for name, (_, atoms) in PASSING.items() if "" in atoms}
)


def evaluate(text: str, values: Mapping[str, int]) -> int:
    """Return the value of a text for values of its names: the language's meaning, for tests and checks."""
    return int(_compile(text)(values))


@cache
def _compile(text: str) -> Callable[[Mapping[str, int]], int]:
    names = names_in(text)  # `parse_text` has refused what is not in the language
    body = re.sub(r"\w+", lambda name: f"values[{name[0]!r}]" if name[0] in names else name[0], text)
    function: Callable[[Mapping[str, int]], int] = eval(f"lambda values: {body}", {"__builtins__": {}})  # noqa: S307
    return function


def describe_guard(guard: Guard, words: Mapping[str, tuple[str, str]] = WORDS) -> str:
    """Return the guard in plain words; empty for a fallback. `words` has those of each atom, for true and for false."""
    return _words(guard.tree, words, negated=False, inner=False) if guard.text else ""


def simplify_guard(guard: Guard, atom_values: Mapping[str, bool]) -> Guard:
    """Return the guard without the atoms whose values are known. One that always holds becomes a fallback.

    One that cannot hold stays as it is.
    """
    tree = _simplify(guard.tree, atom_values)
    if isinstance(tree, ast.Constant):
        return Guard("") if tree.value else guard
    return Guard(ast.unparse(tree))


def _simplify(node: ast.expr, atom_values: Mapping[str, bool]) -> ast.expr:
    """Return an expression with the known values of atoms put in, and constants taken out."""
    match node:
        case ast.UnaryOp(op=op, operand=operand):
            inner = _simplify(operand, atom_values)
            return ast.Constant(not inner.value) if isinstance(inner, ast.Constant) else ast.UnaryOp(op, inner)
        case ast.BoolOp(op=op, values=values):
            decides = isinstance(op, ast.Or)
            operands = [_simplify(value, atom_values) for value in values]
            if any(isinstance(part, ast.Constant) and bool(part.value) is decides for part in operands):
                return ast.Constant(decides)
            operands = [part for part in operands if not isinstance(part, ast.Constant)]
            return (
                ast.Constant(not decides)
                if not operands
                else operands[0]
                if len(operands) == 1
                else ast.BoolOp(op, operands)
            )
        case _:
            atom = ast.unparse(node)
            return ast.Constant(atom_values[atom]) if atom in atom_values else node


def _words(node: ast.expr, words: Mapping[str, tuple[str, str]], *, negated: bool, inner: bool) -> str:
    match node:
        case ast.UnaryOp(operand=operand):
            return _words(operand, words, negated=not negated, inner=inner)
        case ast.BoolOp(op=op, values=values):
            is_and = isinstance(op, ast.And) != negated
            text = (" and " if is_and else " or ").join(_words(v, words, negated=negated, inner=True) for v in values)
            return f"({text})" if inner else text
        case _:
            return words[ast.unparse(node)][1 if negated else 0]
