"""Guards as data: small expressions over named counters and flags.

A guard is written once, as text (`"steps >= allowance"`). From that text come the function that the machine runs,
the words that a reviewer reads in a diagram, and the expression that the model checker is given; a test holds the
three equal. A lambda could be run, but neither drawn nor checked.

The language is a corner of Python's: `and`, `or`, `not`, one comparison of a counter with a counter or a number, a
bare flag, and the shorthands of `SHORTHANDS`.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

from .counters import KEPT, PASSING, Counters
from .reasons import REASONS, EndReason

#: A name that stands for an expression, so that rows stay short, and so that no row forgets to ask for a budget.
SHORTHANDS: Final = {
    "no_calls": "budgeted and budget == 0",
    "calls_spent": "budgeted and calls >= budget",
    "spent": "calls_spent or tokens_spent or cost_spent or time_spent",
}

#: What each atom says when it holds, and when it does not: those of the counters, and the shorthands.
WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "no_calls": ("no tool call is allowed", "a tool call is allowed"),
    "calls_spent": ("tool calls spent", "a tool call is left"),
    "spent": ("a budget is spent", "no budget is spent"),
    **{name + rest: words for name, atoms in KEPT.items() for rest, words in atoms.items()},
    **{name + rest: words for name, (_, atoms) in PASSING.items() for rest, words in atoms.items()},
}


class GuardError(ValueError):
    """A guard uses something that the language does not have. Raised while the chart is built."""


class Guard:
    """One guard, parsed from its text.

    `text` is the expression; the empty text always holds (a fallback row). Raises `GuardError` for an expression
    outside the language, an unknown name, or an atom without words.
    """

    __slots__ = ("text", "tree")

    def __init__(self, text: str) -> None:
        self.text = text
        #: The expression as it was parsed.
        self.tree = _parsed(text)

    def __repr__(self) -> str:
        return f"Guard({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guard) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, counters: Counters) -> bool:
        """Whether it holds over these counters of a turn."""
        return self.holds(counters)

    def __reduce__(self) -> tuple[type["Guard"], tuple[str]]:
        # Its text is all there is to a guard: so it travels between processes.
        return Guard, (self.text,)

    @property
    def holds(self) -> Callable[[Counters], bool]:
        """What evaluates it over the counters of a turn."""
        return _compiled(self.tree)

    @property
    def words(self) -> str:
        """The guard as a reviewer reads it; empty for a fallback."""
        return _words(self.tree, negated=False, inner=False) if self.text else ""

    @property
    def promela(self) -> str:
        """The guard as an expression of Promela, shorthands written out; `true` for a fallback."""
        return _promela(_expanded(self.tree)) if self.text else "true"


@cache
def _parsed(text: str) -> ast.expr:
    """The expression; the same for the same text, so that it is looked through and compiled once."""
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
            return cast("ast.expr", self.visit(ast.parse(SHORTHANDS[node.id], mode="eval").body))
        return node


class _OnCounters(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Attribute(value=ast.Name(id="c", ctx=ast.Load()), attr=node.id, ctx=ast.Load())


def _expanded(node: ast.expr) -> ast.expr:
    expanded: ast.expr = _Expand().visit(ast.parse(ast.unparse(node), mode="eval").body)
    return expanded


@cache
def _compiled(node: ast.expr) -> Callable[[Counters], Any]:
    # Compiled rather than walked: the machine evaluates some ten guards a step. The tree was checked node by node
    # against the language above and comes from the chart's own literals, never from input.
    body = _OnCounters().visit(_expanded(node))
    arguments = ast.arguments(posonlyargs=[], args=[ast.arg(arg="c")], kwonlyargs=[], kw_defaults=[], defaults=[])
    source = ast.fix_missing_locations(ast.Expression(ast.Lambda(args=arguments, body=body)))
    function: Callable[[Counters], Any] = eval(compile(source, "<guard>", "eval"), {"__builtins__": {}})  # noqa: S307
    return function


def first_of(rows: Sequence[Sequence[tuple[Guard, bool]]]) -> Callable[[Counters], int]:
    """A function that finds the place of the first row whose guards all hold; -1 if there is none.

    A row is its guards, each with whether it must hold or must not. It is one expression, so that a ladder of ten rows
    costs one call and not ten.
    """
    ladder: ast.expr = ast.Constant(-1)
    for place, guards in reversed(list(enumerate(rows))):
        tests = [guard.tree if wanted else ast.UnaryOp(ast.Not(), guard.tree) for guard, wanted in guards]
        test = ast.BoolOp(ast.And(), [ast.Constant(value=True), *tests])
        ladder = ast.IfExp(test=test, body=ast.Constant(place), orelse=ladder)
    return _compiled(ladder)


def reached(counters: Counters) -> tuple[EndReason, ...]:
    """Every limit that holds now, in the order of the chart's rows."""
    return tuple(reason for reason, guard in _LIMITS if guard.holds(counters))


_LIMITS: Final = tuple((reason, Guard(meaning.reached)) for reason, meaning in REASONS.items() if meaning.reached)


def _words(node: ast.expr, *, negated: bool, inner: bool) -> str:
    match node:
        case ast.UnaryOp(operand=operand):
            return _words(operand, negated=not negated, inner=inner)
        case ast.BoolOp(op=op, values=values):
            both = isinstance(op, ast.And) != negated
            text = (" and " if both else " or ").join(_words(v, negated=negated, inner=True) for v in values)
            return f"({text})" if inner else text
        case _:
            return WORDS[ast.unparse(node)][1 if negated else 0]


def _promela(node: ast.expr) -> str:
    match node:
        case ast.UnaryOp(operand=ast.UnaryOp() as operand):
            return f"!({_promela(operand)})"  # two in a row are a send in Promela
        case ast.UnaryOp(operand=operand):
            return f"!{_promela(operand)}"
        case ast.BoolOp(op=op, values=values):
            return "(" + (" && " if isinstance(op, ast.And) else " || ").join(_promela(v) for v in values) + ")"
        case ast.Compare():
            return f"({ast.unparse(node)})"
        case _:
            return ast.unparse(node)
