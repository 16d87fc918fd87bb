"""Tools that a client declares with its request and runs itself. It sends their results with its next request."""

from collections.abc import Collection, Mapping, Sequence

from pydantic import JsonValue

from turnwright import ConfigError, ExternalTool, Interrupt, InvalidAnswerError, ToolResult, external_tool
from turnwright.journal.answers import Answer, settled
from turnwright_states import InterruptKind
from turnwright_states import facts as f

_NO_ARGUMENTS: Mapping[str, JsonValue] = {"type": "object", "properties": {}}


def declare_tool(name: str, description: str | None, parameters: Mapping[str, JsonValue] | None) -> ExternalTool:
    """Return a tool as the client declares it: without `parameters` it takes no arguments. Raises `ConfigError`."""
    return external_tool(name=name, description=description or "", parameters=parameters or _NO_ARGUMENTS)


def client_tools_in(started: f.TurnStarted) -> frozenset[str]:
    """Return the names of the tools that the client of a turn runs."""
    return frozenset(str(tool["name"]) for tool in started.tools)


def waits_for_client(interrupt: Interrupt, client_tools: Collection[str]) -> bool:
    """Return whether the client owes the result of the call: it has the tool, and no sub-agent calls it."""
    return interrupt.kind is InterruptKind.RESULT and interrupt.tool in client_tools and ":" not in interrupt.call


def give_results(interrupts: Sequence[Interrupt], results: Mapping[str, ToolResult | str]) -> dict[str, Answer]:
    """Return the answers that give open calls their results. `results` has them by call; a text is an error.

    Results of calls that are closed are ignored, because a client repeats them. Raises `InvalidAnswerError` if no call
    of `results` is open, if one waits for something else than a result, and for a result that is too large.
    """
    ids = [interrupt.id for interrupt in interrupts]
    answers: dict[str, Answer] = {}
    for interrupt in interrupts:
        result = results.get(interrupt.call)
        if result is None:
            continue
        if interrupt.kind is not InterruptKind.RESULT:
            why = f"call {interrupt.call} waits for {interrupt.id}, not for a result"
            raise InvalidAnswerError(interrupt.id, why, ids)
        try:
            answers[interrupt.id] = settled(error=result) if isinstance(result, str) else settled(result)
        except ConfigError as error:
            raise InvalidAnswerError(interrupt.id, str(error), ids) from None
    if results and not answers:
        call = next(iter(results))
        raise InvalidAnswerError(call, f"no call {call!r:.80} waits for a result", ids)
    return answers
