"""Hypothesis strategies for what an agent adds to its turns: hooks, guardrails, typed answers, compaction, settings.

`turnwright_testing.strategies` exports them. The simplest value comes first.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, Never, TypeVar

from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.agent import OUTPUT_TOOL, Agent, Compact
from turnwright.context import JsonObject
from turnwright.driver.hooks.decisions import (
    ChangeArguments,
    ChangeRequest,
    Reject,
    RequireApproval,
    ReturnResult,
    ToolDecision,
    Trip,
)
from turnwright.driver.hooks.guardrails import GuardrailKind
from turnwright.driver.typed_output import mode_for
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright.tools import Tool
from turnwright.transcript.output_type import OutputType
from turnwright_states import Cause, Limits

from .flaky import FlakyModel
from .hook_script import GuardrailScript, HookScript, Refuses
from .json_values import arguments_of, json_values, misfits_of

T = TypeVar("T")

#: Decisions of one hook: far fewer than a long turn has steps, so that it also continues without them.
_MOST: Final = 4
_TEXTS: Final = ("", "Be brief.", "naïve ☃")


def hook_scripts(tools: Sequence[Tool]) -> st.SearchStrategy[HookScript]:
    """Decisions of every hook, of `prepare_tools` and of an output validator. A few hooks decide, the others do not."""
    names = st.lists(st.sampled_from([tool.name for tool in tools]), max_size=2, unique=True) if tools else st.just([])
    name_tuples = names.map(tuple)
    return st.builds(
        HookScript,
        before_model=_draw_some(_requests(name_tuples)),
        after_model=_draw_some(st.builds(Refuses, st.sampled_from(["no", ""]))),
        before_tool=_draw_some(_tool_decisions(tools)),
        after_tool=_draw_some(st.builds(ReturnResult, st.sampled_from(["hidden", ""]) | json_values())),
        prepare_tools=_draw_some(name_tuples),
        validator=_draw_some(st.just(Refuses("not so"))),
    )


def guardrail_scripts() -> st.SearchStrategy[tuple[GuardrailScript, ...]]:
    """Guardrails of every kind: most let most things pass, some trip, and the model of some fails."""
    trip = st.builds(Trip, st.just("no"), st.just({}) | st.just({"why": [1]}))
    failure = st.sampled_from([Cause.OVERLOADED, Cause.REJECTED]).map(lambda cause: ModelError(str(cause), cause=cause))
    single_hook = st.builds(
        GuardrailScript,
        st.sampled_from(GuardrailKind),
        st.lists(mix((3, st.none()), (2, trip), (1, failure)), min_size=1, max_size=_MOST).map(tuple),
        run_in_parallel=st.booleans(),
        hold_stream=st.booleans(),
    )
    return mix((1, st.just(())), (1, st.lists(single_hook, min_size=1, max_size=3).map(tuple)))


def typed_answers(agent: Agent[Never, object]) -> st.SearchStrategy[ModelResponse]:
    """Replies with the typed answer of this agent, as its mode asks for it: one that fits, or one with a mistake.

    An answer as a call may have other answers or an unknown tool's call beside it. Raises `ConfigError` for an agent
    without a typed answer.
    """
    has_output_tool = OutputType(agent.name, agent.output_type, agent.output_schema).asked
    data = st.sampled_from([True, True, True, False]).flatmap(
        lambda fits: arguments_of(has_output_tool) if fits else misfits_of(has_output_tool)
    )
    if mode_for(agent.output_mode, FlakyModel(())) == "tool":
        call = data.map(lambda arguments: ResponseToolCall(OUTPUT_TOOL, arguments))
        cut_off = st.just(ResponseToolCall(OUTPUT_TOOL, None, raw='{"'))
        unknown_call = st.just(ResponseToolCall("no_such_tool", {}))
        calls = st.lists(call, min_size=1, max_size=1) | st.lists(call | cut_off | unknown_call, min_size=1, max_size=3)
        return st.builds(lambda call_list: ModelResponse(calls=tuple(call_list)), calls)
    texts = data.map(_as_text) | st.sampled_from(["Done.", "{"])
    return st.builds(ModelResponse, text=texts)


def can_answer(agent: Agent[Never, object], bounds: Limits) -> bool:
    """Return whether a turn of this agent, with a typed answer, can begin under these limits of its engine."""
    agent_limits = agent.limits_for(bounds)
    return agent_limits.allowance > 0 and agent_limits.call_limit != 0


def compactions() -> st.SearchStrategy[Compact]:
    """Compactions of conversations that are short already, in both modes."""
    return st.builds(
        Compact,
        at_tokens=st.integers(1, 120),
        keep_steps=st.integers(0, 3),
        mode=st.sampled_from(["summarize", "clear_tool_results"]),
        max_compactions=st.integers(1, 3),
    )


def model_settings() -> st.SearchStrategy[ModelSettings]:
    """Settings of model calls; `max_tokens` may be below what is left of a budget."""
    fields: dict[str, st.SearchStrategy[object]] = {
        "temperature": st.sampled_from([0.0, 1.0]),
        "max_tokens": st.integers(1, 50),
        "seed": st.integers(0, 3),
        "stop_sequences": st.just(("END",)),
        "thinking": st.sampled_from([True, False, "low", 1024]),
        "parallel_tool_calls": st.booleans(),
    }
    return st.fixed_dictionaries({}, optional=fields).map(ModelSettings.model_validate)


def overflows() -> st.SearchStrategy[list[ModelError]]:
    """Up to two requests that the provider refuses as too long, or is too busy for."""
    causes = st.sampled_from([Cause.CONTEXT_OVERFLOW, Cause.CONTEXT_OVERFLOW, Cause.OVERLOADED])
    return st.lists(causes.map(lambda cause: ModelError(str(cause), cause=cause)), max_size=2)


def additions(tools: Sequence[Tool]) -> dict[str, st.SearchStrategy[Any]]:
    """The fields of a `Scenario` that are added to its agent; compactions and settings seldom."""
    return {
        "hooks": hook_scripts(tools),
        "guardrails": guardrail_scripts(),
        "compaction": seldom(compactions()),
        "settings": seldom(model_settings()),
    }


def mix(*weighted_strategies: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """Draw one of these by its weight, because Hypothesis drops duplicates from `one_of`."""
    places = [strategy for number, strategy in weighted_strategies for _ in range(number)]
    return st.integers(0, len(places) - 1).flatmap(lambda place: places[place])


def seldom(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    """Draw None three times of four."""
    return mix((3, st.none()), (1, strategy))


def _requests(names: st.SearchStrategy[tuple[str, ...]]) -> st.SearchStrategy[ChangeRequest]:
    return st.builds(
        ChangeRequest,
        instructions=st.none() | st.sampled_from(_TEXTS),
        append=st.lists(st.sampled_from(_TEXTS), max_size=2).map(tuple),
        tools=st.none() | names,
        settings=st.none() | model_settings(),
    )


def _tool_decisions(tools: Sequence[Tool]) -> st.SearchStrategy[ToolDecision]:
    arguments: st.SearchStrategy[JsonObject] = st.just({})
    if tools:
        arguments = st.one_of([arguments_of(tool.parameters) for tool in tools])
    decisions: list[st.SearchStrategy[ToolDecision]] = [
        st.builds(ChangeArguments, arguments),
        st.builds(Reject, st.sampled_from(["no", ""])),
        st.builds(RequireApproval, st.sampled_from(["", "Really?"])),
        st.builds(ReturnResult, st.just("known") | json_values()),
    ]
    return st.one_of(decisions)


def _draw_some(decision: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T | None, ...]]:
    decisions = st.lists(st.none() | decision, min_size=1, max_size=_MOST)
    return mix((1, st.just(())), (1, decisions.map(tuple)))


def _as_text(data: dict[str, JsonValue]) -> str:
    text = json.dumps(data)
    return f"```json\n{text}\n```" if len(data) % 2 else text
