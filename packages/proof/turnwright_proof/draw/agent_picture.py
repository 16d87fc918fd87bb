"""The picture of the chart as it is for one agent: its rows, with its numbers and its tools."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from turnwright_proof.texts import describe_guard, simplify_guard
from turnwright_states.chart import ROWS, Row
from turnwright_states.guards import WORDS
from turnwright_states.limits import Limits
from turnwright_states.state import OUTCOMES

from .model import Picture, TextLine, extract

#: A small number of names is listed; of more, the first ones.
_NAMES: Final = 4


def agent_picture(rows: Collection[Row], ends: Collection[str], limits: Limits, beside: Mapping[int, str]) -> Picture:
    """Return the picture of an agent's turns.

    `rows` are the rows that its turns can take, and `ends` their endings as "outcome/reason". `beside` has words for
    some rows, by number.
    """
    whole, words, atoms = extract(), limit_words(limits), known_atoms(limits)

    def is_taken(line: TextLine) -> bool:
        return ROWS[line.number - 1] in rows

    def of_agent(line: TextLine) -> TextLine:
        row = ROWS[line.number - 1]
        alone = not any(
            sibling in rows
            for sibling in ROWS
            if sibling is not row and (sibling.source, sibling.trigger) == (row.source, row.trigger)
        )
        guard = describe_guard(simplify_guard(row.guard, atoms), words) or ("" if alone else "otherwise")
        return replace(line, guard=guard, beside=beside.get(line.number, ""))

    arrows = (replace(arrow, lines=tuple(map(of_agent, filter(is_taken, arrow.lines)))) for arrow in whole.arrows)
    drawn_arrows = tuple(arrow for arrow in arrows if arrow.lines)
    touched_states = {whole.initial}.union(*({arrow.source, arrow.dest} for arrow in drawn_arrows))
    nodes = (
        replace(node, reasons=tuple(reason for reason in node.reasons if f"{OUTCOMES[node.state]}/{reason}" in ends))
        if node.reasons
        else node
        for node in whole.nodes
        if node.state in touched_states
    )
    return Picture(whole.initial, tuple(nodes), drawn_arrows)


def limit_words(limits: Limits) -> Mapping[str, tuple[str, str]]:
    """Return the words of each atom of a guard, with the numbers of these limits: for true and for false."""
    calls, tokens = limits.call_limit, limits.tokens
    own_words: dict[str, tuple[str, str]] = {
        "steps >= allowance": (f"steps ≥ {limits.allowance}", f"steps below {limits.allowance}"),
        "calls_spent": (f"{calls} calls spent", f"calls of {calls} left"),
        "tokens_spent": (f"{tokens} tokens spent", f"tokens of {tokens} left"),
        "cost_spent": (f"cost of {limits.cost or 0:g} spent", f"money of {limits.cost or 0:g} left"),
        "time_spent": (f"{limits.seconds or 0:g} s spent", f"time of {limits.seconds or 0:g} s left"),
        "idled": (f"no call ran in {limits.idle_steps} steps in a row", "a call ran lately"),
        "doom": (f"doom loop of {limits.shortest_loop} rounds", "no doom loop"),
        "nudges_left > 0": _describe_left("nudge", limits.nudges),
        "pauses_left == 0": (f"{limits.max_pauses} pauses taken", f"a pause of {limits.max_pauses} left"),
        "retries_left > 0": _describe_left("retry", limits.max_retries),
        "output_retries_left > 0": _describe_left("output retry", limits.output_retries),
        "compactions_left > 0": _describe_left("compaction", limits.max_compactions),
    }
    spending = _spending_limits(limits)
    return {**WORDS, **{atom: words for atom, words in own_words.items() if spending.get(atom, 0) is not None}}


def known_atoms(limits: Limits) -> Mapping[str, bool]:
    """Return the atoms of guards whose values never change in turns with these limits."""
    spending = _spending_limits(limits)
    atoms = {
        "allowance == 0": limits.allowance == 0,
        "no_calls": limits.call_limit == 0,
        "doom_asks": limits.doom_response == "ask",
    }
    never = {
        **{atom: limit is None for atom, limit in spending.items()},
        "spent": not any(limit is not None for limit in spending.values()),
        "doom": limits.shortest_loop is None,
        "nudges_left > 0": limits.nudges == 0,
        "retries_left > 0": limits.max_retries == 0,
        "output_retries_left > 0": limits.output_retries == 0,
        "compactions_left > 0": limits.max_compactions == 0,
    }
    always = {"pauses_left == 0": True} if limits.max_pauses == 0 else {}
    return atoms | {atom: False for atom, is_off in never.items() if is_off} | always


def _spending_limits(limits: Limits) -> Mapping[str, float | None]:
    """Return the limits that `spent` in a guard is about, by their atoms; None for no limit."""
    return {
        "calls_spent": limits.call_limit,
        "tokens_spent": limits.tokens,
        "cost_spent": limits.cost,
        "time_spent": limits.seconds,
        "idled": limits.idle_steps,
    }


def _describe_left(label: str, most: int) -> tuple[str, str]:
    return f"{'an' if label[0] in 'aeiou' else 'a'} {label} of {most} left", f"no {label} of {most} left"


def some_names(names: Collection[str]) -> str:
    """Return names in a list, the first ones of many."""
    first_names, more_count = list(names)[:_NAMES], len(names) - _NAMES
    return ", ".join(first_names) + (f" and {more_count} more" if more_count > 0 else "")


def drawn_rows(picture: Picture) -> set[int]:
    """Return the numbers of the rows in a picture."""
    return {line.number for arrow in picture.arrows for line in arrow.lines}
