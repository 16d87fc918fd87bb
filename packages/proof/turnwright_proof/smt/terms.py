"""Texts of the guards and effects as terms of SMT-LIB 2: the one translator.

Flags are booleans and all other values are integers of any size. A flag that is added or compared with a number counts
as 0 or 1, as in Python.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Final, NamedTuple

from turnwright_proof.moves import ALL_FLAGS
from turnwright_proof.texts import names_in, parse_text

_FLAGS: Final = ALL_FLAGS | {"after", "no_steps", "answered"}
_SIGNS: Final = {ast.Eq: "=", ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<"}
_SUMS: Final = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


class Term(NamedTuple):
    """A term, and whether it is a boolean."""

    text: str
    flag: bool = False

    @property
    def number(self) -> str:
        """The term as an integer."""
        return f"(ite {self.text} 1 0)" if self.flag else self.text

    @property
    def holds(self) -> str:
        """The term as a boolean."""
        return self.text if self.flag else f"(not (= {self.text} 0))"


Terms = Mapping[str, Term]


def variable(name: str) -> Term:
    """Return a name as a term. `_0` after a name is its value before a loop."""
    return Term(name, name.removesuffix("_0") in _FLAGS)


def variables(names: Iterable[str]) -> dict[str, Term]:
    """Return each name as a term."""
    return {name: variable(name) for name in names}


@cache
def declare(name: str) -> str:
    """Return the declaration of a name."""
    return f"(declare-const {name} {'Bool' if variable(name).flag else 'Int'})"


def formula(text: str, values: Terms) -> str:
    """Return a text as a boolean term. `values` has the term of each name. Raises `GuardError` for another language."""
    return _translate(text, values).holds


def value_of(name: str, text: str, values: Terms) -> Term:
    """Return a text as the term of a name: see `turnwright_proof.moves.ValueOf`."""
    term = _translate(text, values)
    if name in _FLAGS:
        return Term(term.holds, flag=True)
    return Term(term.number) if name in values else term


def conjunction(parts: Iterable[str]) -> str:
    """Return the conjunction of boolean terms."""
    terms = list(parts)
    return terms[0] if len(terms) == 1 else f"(and {' '.join(terms)})" if terms else "true"


def disjunction(parts: Iterable[str]) -> str:
    """Return the disjunction of boolean terms."""
    terms = list(parts)
    return terms[0] if len(terms) == 1 else f"(or {' '.join(terms)})" if terms else "false"


def lower(before: Iterable[Term], after: Iterable[Term]) -> str:
    """Return that `after` is below `before` in lexicographic order."""
    falls = "false"
    for old, new in reversed([*zip(before, after, strict=True)]):
        decreases = f"(< {new.number} {old.number})"
        falls = decreases if falls == "false" else f"(or {decreases} (and (= {new.number} {old.number}) {falls}))"
    return falls


@lru_cache(maxsize=1 << 14)  # most queries have the conditions of other queries
def words(text: str) -> frozenset[str]:
    """Return the names in a term."""
    return frozenset(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", text))


def _translate(text: str, values: Terms) -> Term:
    return _make_known(text, tuple([values[name] for name in _names(text)]))


@lru_cache(maxsize=1 << 14)
def _make_known(text: str, terms: tuple[Term, ...]) -> Term:
    # Most moves leave most names as they are, so their goals are the same terms again.
    return _term(parse_text(text), dict(zip(_names(text), terms, strict=True)))


@cache
def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted(names_in(text)))


def _term(node: ast.expr, values: Terms) -> Term:  # noqa: C901, PLR0911 (one a kind of node)
    match node:
        case ast.Constant(value=bool() as value):
            return Term(str(value).lower(), flag=True)
        case ast.Constant(value=value):
            return Term(str(value))
        case ast.Name(id=name):
            return values[name]
        case ast.BoolOp(op=op, values=parts):
            join = conjunction if isinstance(op, ast.And) else disjunction
            return Term(join(_term(part, values).holds for part in parts), flag=True)
        case ast.UnaryOp(operand=operand):
            return Term(f"(not {_term(operand, values).holds})", flag=True)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yes, no, when = _term(body, values), _term(orelse, values), _term(test, values).holds
            if yes.flag and no.flag:
                return Term(f"(ite {when} {yes.text} {no.text})", flag=True)
            return Term(f"(ite {when} {yes.number} {no.number})")
        case ast.BinOp(left=left_node, op=op, right=right_node):
            return Term(f"({_SUMS[type(op)]} {_term(left_node, values).number} {_term(right_node, values).number})")
        case ast.Compare(left=left_node, ops=[op], comparators=[right_node]):
            left_term, right_term = _term(left_node, values), _term(right_node, values)
            are_flags = left_term.flag and right_term.flag and isinstance(op, ast.Eq | ast.NotEq)
            sides = f"{left_term.text} {right_term.text}" if are_flags else f"{left_term.number} {right_term.number}"
            if isinstance(op, ast.NotEq):
                return Term(f"(not (= {sides}))", flag=True)
            return Term(f"({_SIGNS[type(op)]} {sides})", flag=True)
        case _:  # pragma: no cover (`parse_text` refuses everything else)
            raise AssertionError(ast.dump(node))
