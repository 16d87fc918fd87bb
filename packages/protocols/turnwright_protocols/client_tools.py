"""Tools that a client declares with its request and runs itself. It sends their results with its next request."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, cast

from pydantic import JsonValue

from turnwright import ConfigError, ExternalTool, Interrupt, InvalidAnswerError, external_tool
from turnwright.journal.answers import Answer, settled
from turnwright.runtime.engine import Engine
from turnwright_states import DECISIONS, Decision, InterruptKind
from turnwright_states import facts as f

_REFERENCE: Final = re.compile(r"call_([A-Za-z0-9._-]{1,128})_(call[0-9]{1,9})")
_NO_ARGUMENTS: JsonValue = {"type": "object", "properties": {}}


class ToolDeclaration(NamedTuple):
    """A tool as a client declares it. Nothing is checked yet."""

    name: JsonValue
    description: JsonValue
    parameters: JsonValue

    def make_tool(self) -> ExternalTool:
        """Return the tool. Without `parameters` it takes no arguments. Raises `ConfigError`."""
        parameters = _NO_ARGUMENTS if self.parameters is None else self.parameters
        return external_tool(
            name=cast("str", self.name),
            description="" if self.description is None else cast("str", self.description),
            parameters=cast("Mapping[str, JsonValue]", parameters),
        )


def external_tools(engine: Engine) -> frozenset[str]:
    """Return the names of an engine's tools without a function, which the client runs."""
    return frozenset(name for name, tool in engine.setup.tools.items() if isinstance(tool, ExternalTool))


def client_tools_in(turn_start: f.TurnStarted) -> frozenset[str]:
    """Return the names of the tools that the client of a turn runs."""
    return frozenset(str(tool["name"]) for tool in turn_start.client_tools)


def waits_for_client(interrupt: Interrupt, client_tools: Collection[str]) -> bool:
    """Return whether the client owes the result of the call: it has the tool, and no sub-agent calls it."""
    return interrupt.kind is InterruptKind.RESULT and interrupt.tool in client_tools and ":" not in interrupt.call


def settleable(interrupts: Sequence[Interrupt], client_tools: Collection[str]) -> list[Interrupt]:
    """Return the interrupts without waits for results that others than the client owe."""
    return [
        interrupt
        for interrupt in interrupts
        if interrupt.kind is not InterruptKind.RESULT or waits_for_client(interrupt, client_tools)
    ]


def call_reference(turn: str, call: str) -> str:
    """Return the id of a client's call in OpenAI's protocols, which names its turn."""
    return f"call_{turn}_{call}"


def read_call_reference(reference: str) -> tuple[str, str]:
    """Return the turn and the call of an id; both empty for a foreign one."""
    match = _REFERENCE.fullmatch(reference)
    return (match[1], match[2]) if match else ("", "")


def give_results(interrupts: Sequence[Interrupt], results: Mapping[str, Callable[[], Answer]]) -> dict[str, Answer]:
    """Return the answers that give open calls their results. `results` makes them, by call.

    Results of calls that are closed are ignored, because a client repeats them. Raises `InvalidAnswerError` if a call
    waits for something else than a result, and for a result that is too large.
    """
    ids = [interrupt.id for interrupt in interrupts]
    answers: dict[str, Answer] = {}
    for interrupt in interrupts:
        result = results.get(interrupt.call)
        if result is None:
            continue
        if interrupt.kind is not InterruptKind.RESULT:
            why = f"call {interrupt.call} waits for it, not for a result"
            raise InvalidAnswerError(interrupt.id, why, ids)
        try:
            answers[interrupt.id] = result()
        except ConfigError as error:
            raise InvalidAnswerError(interrupt.id, str(error), ids) from None
    return answers


def client_error(text: object) -> str:
    """Return the error with which a client's tool failed, also if the client names none."""
    return text if isinstance(text, str) and text.strip() else "the tool failed"


def read_settlement(interrupt: Interrupt, value: object, ids: Sequence[str]) -> Answer | None:
    """Return the answer that settles a call, of an object with its `result` or its `error`; None for another value.

    Raises `InvalidAnswerError` for a result that is too large.
    """
    if Decision.SETTLE not in DECISIONS[interrupt.kind] or not isinstance(value, Mapping):
        return None
    error = value.get("error")
    try:
        if value.keys() == {"result"}:
            return settled(value["result"])
        return settled(error=error) if value.keys() == {"error"} and isinstance(error, str) else None
    except ConfigError as fault:
        raise InvalidAnswerError(interrupt.id, str(fault), ids) from None


def need_result(answers: Mapping[str, object], results: Collection[str]) -> None:
    """Raise `InvalidAnswerError` if results answer nothing."""
    if results and not answers:
        raise InvalidAnswerError(next(iter(results)), "it waits for no result", [], subject="call")
