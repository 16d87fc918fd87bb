"""Guards as data: small expressions over named counters and flags.

A guard is written once, as text (`"steps >= allowance"`). The machine's function, the words of the diagrams and the
terms of the SMT proof are made from that text, and tests compare them. A lambda could be neither drawn nor proven.

The language is a part of Python's: `and`, `or`, `not`, one comparison of a counter with a counter or a number, a flag,
and the names of `SHORTHANDS`.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from .counters import KEPT, PASSING, Counters
from .reasons import REASONS, EndReason

#: Names for expressions: they keep rows short, and always ask for a budget before they read it.
SHORTHANDS: Final = {
    "no_calls": "budgeted and budget == 0",
    "calls_spent": "budgeted and calls >= budget",
    "idled": "idle_limit > 0 and idle >= idle_limit",
    "spent": "calls_spent or tokens_spent or cost_spent or time_spent or idled",
}

#: The words of each atom and each shorthand, for true and for false.
WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "no_calls": ("no tool call is allowed", "a tool call is allowed"),
    "calls_spent": ("tool calls spent", "a tool call is left"),
    "idled": ("no call ran in too many steps in a row", "a call ran lately"),
    "spent": ("a budget is spent", "no budget is spent"),
    **{name + suffix: words for name, atoms in KEPT.items() for suffix, words in atoms.items()},
    **{name + suffix: words for name, (_, atoms) in PASSING.items() for suffix, words in atoms.items()},
}


class GuardError(ValueError):
    """A guard is outside the language. Raised while the chart is built."""


class Guard:
    """One guard, parsed from its text.

    `text` is the expression; an empty text always holds (a fallback row). Raises `GuardError` for an expression outside
    the language, an unknown name, or an atom without words.
    """

    __slots__ = ("text", "tree")

    def __init__(self, text: str) -> None:
        self.text = text
        #: The parsed expression.
        self.tree = _parse(text)

    def __repr__(self) -> str:
        return f"Guard({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guard) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, counters: Counters) -> bool:
        """Return whether the guard holds for these counters."""
        return self.holds(counters)

    def __reduce__(self) -> tuple[type["Guard"], tuple[str]]:
        # Only the text is sent to another process.
        return Guard, (self.text,)

    @property
    def holds(self) -> Callable[[Counters], bool]:
        """The function that evaluates the guard for the counters of a turn."""
        return _compile(self.tree)

    @property
    def expanded(self) -> str:
        """The guard's text with shorthands expanded; `True` for a fallback."""
        return _expanded_text(self.tree)


@cache
def _parse(text: str) -> ast.expr:
    """Parse the text. The result is cached, so that each text is checked and compiled once."""
    try:
        tree = ast.parse(text or "True", mode="eval").body
    except SyntaxError as error:
        raise GuardError(f"guard {text!r}: {error.msg}") from None
    if text:
        _check(tree, text)
    return tree


def _check(node: ast.expr, text: str) -> None:
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                _check(value, text)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _check(operand, text)
        case ast.Compare() | ast.Name() if ast.unparse(node) in WORDS:
            pass
        case _:
            raise GuardError(f"guard {text!r}: {ast.unparse(node)!r} is not in the guards' language")


class _Expand(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in SHORTHANDS:
            expansion: ast.expr = self.visit(ast.parse(SHORTHANDS[node.id], mode="eval").body)
            return expansion
        return node


class _OnCounters(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Attribute(value=ast.Name(id="c", ctx=ast.Load()), attr=node.id, ctx=ast.Load())


def _expand(node: ast.expr) -> ast.expr:
    expansion: ast.expr = _Expand().visit(ast.parse(ast.unparse(node), mode="eval").body)
    return expansion


@cache
def _expanded_text(node: ast.expr) -> str:
    return ast.unparse(_expand(node))


@cache
def _compile(node: ast.expr) -> Callable[[Counters], Any]:
    # Compiled, because the machine evaluates about ten guards a step. Every node of the tree was checked against the
    # language above, and the tree comes from the chart's literals, never from input.
    body = _OnCounters().visit(_expand(node))
    arguments = ast.arguments(posonlyargs=[], args=[ast.arg(arg="c")], kwonlyargs=[], kw_defaults=[], defaults=[])
    source = ast.fix_missing_locations(ast.Expression(ast.Lambda(args=arguments, body=body)))
    function: Callable[[Counters], Any] = eval(compile(source, "<guard>", "eval"), {"__builtins__": {}})  # noqa: S307
    return function


def first_of(rows: Sequence[Sequence[tuple[Guard, bool]]]) -> Callable[[Counters], int]:
    """Return a function that gives the index of the first row whose guards all hold, or -1 if there is none.

    A row is a list of guards, each with the value that it must have. All rows become one expression, so that ten rows
    cost one call and not ten.
    """
    ladder: ast.expr = ast.Constant(-1)
    for place, guards in reversed(list(enumerate(rows))):
        tests = [guard.tree if value else ast.UnaryOp(ast.Not(), guard.tree) for guard, value in guards]
        test = ast.BoolOp(ast.And(), [ast.Constant(value=True), *tests])
        ladder = ast.IfExp(test=test, body=ast.Constant(place), orelse=ladder)
    return _compile(ladder)


def list_reached_limits(counters: Counters) -> tuple[EndReason, ...]:
    """Return every limit that is reached, in the order of the chart's rows."""
    return tuple(reason for reason, guard in _LIMITS if guard.holds(counters))


_LIMITS: Final = tuple((reason, Guard(meaning.reached)) for reason, meaning in REASONS.items() if meaning.reached)
