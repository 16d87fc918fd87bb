"""Hypothesis strategies for turns: limits, scripts of replies, behavior of tools and people, and faults.

They compose: `scenarios(tools)` is made of the others, and each takes what you want fixed. What a script says is drawn
for a given list of tools, the arguments from each tool's own schema. The simplest value comes first, so that a
failing example shrinks to a short one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import chain
from typing import Any, Final, Never, TypeVar, get_args

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
from turnwright_states import Cause, Finish, InterruptKind, Limits, Usage
from turnwright_states.limits import MAX_CALLS_PER_STEP, PresetName

from .behavior import Asks, Behavior, Floods, Hangs, Raises, Returns, Runs
from .flaky import Cut, FlakyModel, Line, Stalls
from .hook_script import GuardrailScript, HookScript, Refuses
from .json_values import ArgumentValues, arguments_of, choose_values, json_values, misfits_of, values_of
from .scenario import Answers, Crash, Leaves, Person, Scenario

__all__ = [
    "abort_points",
    "arguments_of",
    "bad_calls",
    "behaviours",
    "broken_streams",
    "compactions",
    "crashes",
    "disobedient_replies",
    "guardrail_scripts",
    "hook_scripts",
    "json_values",
    "limits",
    "misfits_of",
    "model_errors",
    "model_settings",
    "obedient_replies",
    "people",
    "scenarios",
    "scripts",
    "tool_calls",
    "typed_answers",
    "usages",
    "values_of",
]

T = TypeVar("T")

#: The most lines and runs of a script.
_RUNS: Final = 8
_NO_VALUES: Final[ArgumentValues] = {}
#: The tuples of tools whose strategies are kept.
_DESKS: Final = 16
_PRESETS: Final[tuple[PresetName, ...]] = get_args(PresetName)
_TEXTS: Final = ("Done.", "I look.", "", " ", "naïve ☃ \ud83d", "a b c " * 400)
_CUT_OFF: Final = ('{"path": "a', "{", "[1, 2]", "nonsense", '{"a": 1} {"a": 2}')
_NO_TOOL: Final = ("no_such_tool", "", "Read File")
_ASKING: Final = (InterruptKind.APPROVAL, InterruptKind.QUESTION, InterruptKind.GRANT)
#: Calls and characters of a reply that may be said for ever.
_REPEATABLE: Final = 20
_INSATIABLE: Final = 1_000  # pauses: more than any turn has
#: Seconds that are over before anything happens, and seconds that only what hangs uses up.
_NO_TIME, _SOME_TIME = 1e-6, 60.0
#: Decisions of one hook: far fewer than a long turn has steps, so that it also continues without them.
_MOST_DECISIONS: Final = 4
_ADDED_TEXTS: Final = ("", "Be brief.", "naïve ☃")

#: Small ranges of every limit, so that each of them is the one that stops a turn now and then.
LIMITS: Final[Mapping[str, st.SearchStrategy[object]]] = {
    "steps": st.integers(0, 6) | st.none(),
    "ceiling": st.integers(1, 12),
    "concluding": st.sampled_from(["after", "within", "never"]),
    "tool_calls": st.integers(0, 8) | st.none(),
    "max_calls_per_step": st.integers(1, 4),
    "tokens": st.integers(1, 200),
    "cost": st.sampled_from([1.0, 30.0, 200.0]),
    "seconds": st.sampled_from([_SOME_TIME, _NO_TIME]),
    "doom_threshold": st.integers(2, 4) | st.none(),
    "doom_compare": st.sampled_from(["results", "calls"]),
    "doom_response": st.sampled_from(["ask", "stop"]),
    "nudges": st.integers(0, 2),
    "stall_errors": st.integers(2, 4) | st.none(),
    "stall_rounds": st.integers(2, 4) | st.none(),
    "stall_response": st.sampled_from(["hint", "loop"]),
    "idle_steps": st.integers(1, 3) | st.none(),
    "max_retries": st.integers(0, 2),
    "max_pauses": st.integers(0, 4),
    "conclude_tokens": st.integers(1, 10),
    "output_retries": st.integers(0, 2),
}
#: The limits that make a turn long. At their defaults of 200 and 100 they take a second to reach: that is for few.
_LONG: Final = ("ceiling", "max_pauses")


def limits(**values: st.SearchStrategy[object] | object) -> st.SearchStrategy[Limits]:
    """Limits of an engine: any of them in a small range, the others at their defaults, also those of a preset.

    `values` gives a value, or a strategy of your own, for a field by name: `limits(steps=3, tool_calls=st.none())`.
    """
    fixed_limits = {
        name: strategy if isinstance(strategy, st.SearchStrategy) else st.just(strategy)
        for name, strategy in values.items()
    }
    loose = {name: strategy for name, strategy in LIMITS.items() if name not in fixed_limits}
    names_drawn = mix((1, st.just([])), (4, st.lists(st.sampled_from(sorted(loose)), max_size=6, unique=True)))
    names = (
        names_drawn.flatmap(lambda few: mix((1, st.just(few)), (9, st.just([*few, *_LONG])))) if loose else names_drawn
    )
    fields = names.flatmap(
        lambda few: st.fixed_dictionaries({**fixed_limits, **{n: loose[n] for n in few if n in loose}})
    )
    return mix((3, fields.map(Limits.model_validate)), (1, st.builds(_preset, st.sampled_from(_PRESETS), fields)))


def tool_calls(tools: Sequence[Tool], values: ArgumentValues = _NO_VALUES) -> st.SearchStrategy[ResponseToolCall]:
    """Calls of these tools, with arguments that fit their schemas.

    `values` has strategies for arguments: by parameter (`order`, or `cancel.order` of one tool), or by type.
    """
    return _tool_calls(tuple(tools), tuple(values.items()))


# A strategy of scenarios has each of these many times, and to make one takes longer than to draw from it.
@lru_cache(maxsize=_DESKS)
def _tool_calls(
    tools: tuple[Tool, ...], values: tuple[tuple[str | type, st.SearchStrategy[object]], ...]
) -> st.SearchStrategy[ResponseToolCall]:
    if not tools:
        return st.just(ResponseToolCall(_NO_TOOL[0], {}))
    strategies_of = {tool.name: choose_values(tool.name, dict(values)) for tool in tools}
    return st.one_of([_call(tool.name, arguments_of(tool.parameters, strategies_of[tool.name])) for tool in tools])


def bad_calls(tools: Sequence[Tool]) -> st.SearchStrategy[ResponseToolCall]:
    """Calls that cannot run: of no tool, with arguments that do not fit, or that are not a complete JSON object."""
    return _bad_calls(tuple(tools))


@lru_cache(maxsize=_DESKS)
def _bad_calls(tools: tuple[Tool, ...]) -> st.SearchStrategy[ResponseToolCall]:
    unknown = _call(
        st.sampled_from(_NO_TOOL), st.dictionaries(st.sampled_from(["a", "path"]), json_values(), max_size=2)
    )
    names = st.sampled_from([tool.name for tool in tools] or _NO_TOOL)
    cut_off = st.builds(ResponseToolCall, names, st.none(), st.sampled_from(_CUT_OFF), _ids())
    return st.one_of([unknown, cut_off, *(_call(tool.name, misfits_of(tool.parameters)) for tool in tools)])


@cache
def usages() -> st.SearchStrategy[Usage | None]:
    """The usage of a reply: little, much, or unknown."""
    # A part of each count, as of a cache and of reasoning.
    usage = st.builds(
        lambda input_tokens, output_tokens, part: Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_tokens=input_tokens * part // 4,
            reasoning_tokens=output_tokens * part // 4,
        ),
        st.integers(0, 100),
        st.integers(0, 50),
        st.integers(0, 4),
    )
    return st.just(Usage(input_tokens=1, output_tokens=1)) | usage | st.none()


def obedient_replies(tools: Sequence[Tool], values: ArgumentValues = _NO_VALUES) -> st.SearchStrategy[ModelResponse]:
    """A text, or a few calls that can run. `values`: see `tool_calls`."""
    answer = st.builds(ModelResponse, text=st.just("Done."), usage=usages())
    return mix((1, answer), (5, _asking(st.lists(tool_calls(tools, values), min_size=1, max_size=3))))


def disobedient_replies(tools: Sequence[Tool]) -> st.SearchStrategy[ModelResponse]:
    """The misbehavior of models.

    Empty replies, only reasoning, very long text, cut-off and filtered replies, unknown tools, arguments that do not
    fit or are not JSON, two calls of one provider id, more calls than a step may run.
    """
    any_calls = st.lists(tool_calls(tools) | bad_calls(tools), max_size=4)
    finish = st.sampled_from([Finish.STOP, Finish.STOP, Finish.LENGTH, Finish.CONTENT_FILTER])
    reply = st.builds(
        ModelResponse,
        text=st.sampled_from(_TEXTS),
        reasoning=st.sampled_from(["", "hm"]),
        calls=any_calls.map(tuple),
        finish=finish,
        usage=usages(),
    )
    mistaken_reply = _asking(st.lists(bad_calls(tools), min_size=1, max_size=2))
    empty = st.sampled_from([ModelResponse(), ModelResponse(reasoning="I think, and say nothing.")])
    # One call is the simplest crowd: what fails without a crowd is then shown without one.
    crowd = st.sampled_from([1, *range(MAX_CALLS_PER_STEP, MAX_CALLS_PER_STEP + 3)])
    crowded_reply = _asking(st.builds(lambda call, number: [call] * number, tool_calls(tools), crowd))
    return mix((2, mistaken_reply), (1, empty), (3, reply), (1, crowded_reply))


@cache
def model_errors() -> st.SearchStrategy[ModelError]:
    """A failed model call of every cause, with a part of the reply or without."""
    partial = st.none() | st.just(ModelResponse(text="So f", usage=Usage(input_tokens=5)))
    wait = st.none() | st.just(1.0)
    passing = [cause for cause in Cause if cause.may_pass]
    return st.builds(
        lambda cause, retry_after, partial: ModelError(
            str(cause), cause=cause, retry_after=retry_after, partial=partial
        ),
        mix((3, st.sampled_from(passing)), (1, st.sampled_from(Cause))),
        wait,
        partial,
    )


def broken_streams(tools: Sequence[Tool], *, real_time: bool = False) -> st.SearchStrategy[Cut | Stalls]:
    """Streams that break off after any character, end without a reply, or fall silent."""
    texts = st.builds(
        ModelResponse, text=st.sampled_from(["Done.", "I look. ☃"]), reasoning=st.sampled_from(["", "hm"])
    )
    cut_stream = st.builds(Cut, texts | obedient_replies(tools), st.integers(0, 12), st.booleans())
    silence = st.builds(
        Stalls, st.sampled_from(["", "So f"]), st.just(0.001) if real_time else st.just(Stalls().seconds)
    )
    return cut_stream | silence


def scripts(
    tools: Sequence[Tool],
    *,
    real_time: bool = False,
    answers: st.SearchStrategy[ModelResponse] | None = None,
    values: ArgumentValues = _NO_VALUES,
) -> st.SearchStrategy[tuple[Line, ...]]:
    """The script of a model for a turn, one line per call: `play` repeats the last line for ever.

    Lines come alone and in runs: the same reply again and again, and cycles of two to four. A script whose last line
    asks for tools is of a model that never stops by itself, not even when asked to conclude. `answers` are replies with
    a typed answer. `values`: see `tool_calls`.
    """
    obedient, disobedient = obedient_replies(tools, values), disobedient_replies(tools)
    broken_lines = broken_streams(tools, real_time=real_time)
    answer: st.SearchStrategy[Line] = st.just("Done.")
    line: st.SearchStrategy[Line] = mix(
        (1, answer),
        (6, obedient),
        (3, disobedient),
        (1, model_errors()),
        (1, broken_lines),
        (4, obedient if answers is None else answers),
    )
    alone = line.map(lambda scripted_line: (scripted_line,))
    mistaken_reply = _asking(st.lists(bad_calls(tools), min_size=1, max_size=2))
    outage = model_errors()  # a provider that is down fails again and again
    cycle = st.lists(mix((3, obedient), (3, mistaken_reply), (1, outage)), min_size=1, max_size=4)
    repeated_lines = st.builds(lambda lines, times: tuple(lines) * times, cycle, st.integers(1, 4))
    runs = st.lists(mix((2, alone), (1, repeated_lines)), min_size=1, max_size=_RUNS)
    once = st.just(()) if answers is None else answers.map(lambda scripted_line: (scripted_line,))
    ending = mix((3, st.just(())), (2, _endings(tools, real_time=real_time)), (3, once))
    return st.builds(lambda lines, last: _not_for_ever(tuple(chain(*lines, last))), runs, ending)


def behaviours(*, run_tools: bool = False) -> st.SearchStrategy[Behavior]:
    """The behavior of a call: it returns, raises, hangs until it is canceled, floods the model, or asks a person.

    With `run_tools` time is real, so nothing hangs for long, and the real tool runs most of the time.
    """
    works: st.SearchStrategy[Returns | Runs] = st.just(Runs()) if run_tools else st.sampled_from(_TEXTS).map(Returns)
    hangs = st.just(Hangs(0.001)) if run_tools else st.sampled_from([Hangs(), Hangs(1.0)])
    errors = st.sampled_from(["RuntimeError", "ToolError", "SystemExit", "Retry"])
    other_behaviors = mix(
        (4 if run_tools else 2, works), (1, st.builds(Raises, errors)), (1, hangs), (1, st.just(Floods()))
    )
    times = st.sampled_from([1, 1, 1, 1, 1, 2, 2, 3, _INSATIABLE])
    midway = st.sampled_from([False, False, True])
    asks = st.builds(Asks, st.sampled_from(_ASKING), times, st.sampled_from([None, _NO_TIME]), other_behaviors, midway)
    return mix((3, other_behaviors), (2, asks))


def people(tools: Sequence[Tool] = ()) -> st.SearchStrategy[Person]:
    """The reaction to a pause: any allowed answers, to all or only to some, or no answer.

    An approval may change the arguments of a call of these tools.
    """
    choice = st.sampled_from([None, None, 1, 0])
    arguments = st.none() | st.one_of([arguments_of(tool.parameters) for tool in tools])
    answers = st.builds(Answers, st.integers(0, 2), st.sampled_from(["yes", "", "go on ☃"]), choice, arguments)
    return mix((3, answers), (1, st.sampled_from([Leaves("abort"), Leaves("message")])))


def crashes(most: int = 20) -> st.SearchStrategy[Crash]:
    """Deaths of the process at any of the first `most` appends, before or after it is written; or one append fails."""
    return st.builds(Crash, st.integers(1, most), st.booleans(), st.booleans())


def abort_points(most: int = 20) -> st.SearchStrategy[int]:
    """Aborts of the turn after any of its first `most` appends."""
    return st.integers(1, most)


def scenarios(
    tools: Sequence[Tool],
    *,
    agent: Agent[Never, object] | None = None,
    run_tools: bool = False,
    synthesis: bool = True,
    values: ArgumentValues = _NO_VALUES,
) -> st.SearchStrategy[Scenario]:
    """Scenarios for `play` with these tools, of which `agent`, if given, uses its own.

    With `run_tools` the real tools run, and nothing waits for long. `synthesis`: whether some turns have one; not for
    an engine with a synthesis of its own. `values`: see `tool_calls`.
    """
    usable = [tool for tool in tools if agent is None or agent.may_use(tool.name, delegates=tool.delegates)]
    typed_agent = agent if agent is not None and agent.is_typed else None
    answers = None if typed_agent is None else typed_answers(typed_agent)
    batches = st.lists(st.none() | st.just("In short."), max_size=2).map(tuple)

    def build_scenario(
        script: st.SearchStrategy[tuple[Line, ...]],
        turn_limits: st.SearchStrategy[Limits],
        abort_at: st.SearchStrategy[int | None],
        **additions: st.SearchStrategy[Any],
    ) -> st.SearchStrategy[Scenario]:
        return st.builds(
            Scenario,
            script=script,
            limits=turn_limits if typed_agent is None else turn_limits.filter(partial(can_answer, typed_agent)),
            behaviours=_few_of(behaviours(run_tools=run_tools), 4),
            people=_few_of(people(usable), 3),
            synthesis=seldom(batches) if synthesis else st.none(),
            crash=seldom(crashes()),
            abort_at=abort_at,
            **additions,
        )

    script = scripts(usable, real_time=run_tools, answers=answers, values=values)
    replies = obedient_replies(usable, values) if answers is None else obedient_replies(usable, values) | answers
    willing = st.lists(replies, min_size=1, max_size=4).map(tuple)
    common = (limits(), seldom(abort_points()))
    any_turn, additional = (
        build_scenario(script, *common),
        build_scenario(willing | script, *common, **additions(usable)),
    )
    kinds = _kinds(usable, build_scenario, real_time=run_tools, typed=typed_agent is not None, values=values)
    return _shown_plainly(mix((4, any_turn), (8, additional), *kinds))


def _kinds(
    tools: Sequence[Tool],
    play: Callable[..., st.SearchStrategy[Scenario]],
    *,
    real_time: bool,
    typed: bool,
    values: ArgumentValues,
) -> Iterator[tuple[int, st.SearchStrategy[Scenario]]]:
    """Rare situations, and how often they are wanted: loops, compactions, limits, no time, no steps."""
    ending, some_ending = (_endings(tools, least=least, real_time=real_time) for least in (0, 1))
    cycles = st.lists(_asking(st.lists(tool_calls(tools, values), min_size=1, max_size=2)), min_size=1, max_size=2)
    times = st.sampled_from([1, 2, 3, 3, 6])
    loop = st.builds(lambda cycle, again, last: (*(tuple(cycle) * again), *last), cycles, times, ending)
    soon = st.builds(lambda lines, last: (*lines, *last), cycles, ending)
    no_steps = limits(steps=0, seconds=st.none() | LIMITS["seconds"])
    yield (
        2,
        play(
            loop,
            _only(
                *("doom_threshold", "doom_compare", "doom_response", "nudges", "max_pauses", "ceiling"),
                *("stall_errors", "stall_rounds", "stall_response"),
            ),
            st.none(),
        ),
    )
    long = st.builds(lambda cycle, failures, last: (*cycle, *cycle, *failures, *last), cycles, overflows(), ending)
    budget_limits = _only("tokens", "cost", "max_retries", "seconds")
    yield 1, play(long, budget_limits, seldom(abort_points(8)), compaction=compactions())
    refusals = st.builds(
        lambda few, last: (*few, *last),
        st.lists(_asking(st.lists(bad_calls(tools), min_size=1, max_size=2)), min_size=2, max_size=4),
        ending,
    )
    yield 1, play(refusals, _only("idle_steps", "max_retries", "doom_threshold", "nudges", "tool_calls"), st.none())
    yield 1, play(soon, _only("steps", "tool_calls", "concluding", "max_retries"), seldom(abort_points(8)))
    yield 1, play(soon, _only("seconds", "tokens", "cost", "max_retries"), st.none())
    if not typed:
        yield 1, play(some_ending, no_steps, seldom(abort_points(3)))


@st.composite
def _shown_plainly(draw: st.DrawFn, scenario: st.SearchStrategy[Scenario]) -> Scenario:
    """A copy: of the original, Hypothesis would show by which calls it was made."""
    return replace(draw(scenario))


def _only(*names: str) -> st.SearchStrategy[Limits]:
    return st.fixed_dictionaries({}, optional={name: LIMITS[name] for name in names}).map(Limits.model_validate)


def _endings(tools: Sequence[Tool], *, least: int = 0, real_time: bool) -> st.SearchStrategy[tuple[Line, ...]]:
    """The replies after a limit: they fail as often as they succeed, and the last line is repeated for ever."""
    broken_lines = broken_streams(tools, real_time=real_time)
    line: st.SearchStrategy[Line] = mix((1, disobedient_replies(tools)), (1, model_errors()), (1, broken_lines))
    return st.lists(line, min_size=least, max_size=2).map(tuple)


def _call(
    name: str | st.SearchStrategy[str], arguments: st.SearchStrategy[dict[str, JsonValue]]
) -> st.SearchStrategy[ResponseToolCall]:
    names = st.just(name) if isinstance(name, str) else name
    return st.builds(
        lambda name, arguments, own_id: ResponseToolCall(name, arguments, id=own_id), names, arguments, _ids()
    )


@cache
def _ids() -> st.SearchStrategy[str]:
    """Provider ids, mostly none: providers send none, and the same twice."""
    return st.sampled_from(["", "", "", "id"])


def _asking(calls: st.SearchStrategy[list[ResponseToolCall]]) -> st.SearchStrategy[ModelResponse]:
    text = st.sampled_from(["", "I look."])
    return st.builds(
        lambda calls, text, usage: ModelResponse(text=text, calls=tuple(calls), usage=usage), calls, text, usages()
    )


def _few_of(strategy: st.SearchStrategy[T], most: int) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


def _preset(name: PresetName, changes: Mapping[str, object]) -> Limits:
    if name == "opencode" and changes.get("steps") == 0:
        changes = {**changes, "steps": 1}  # it has no limit of 0
    return Limits.preset(name, **changes)


def _not_for_ever(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Drop long replies at the end: 200 steps of them take a minute and show nothing more."""
    last = lines[-1]
    return (
        (*lines, "Done.")
        if isinstance(last, ModelResponse) and len(last.calls) + len(last.text) > _REPEATABLE
        else lines
    )


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
        st.lists(mix((3, st.none()), (2, trip), (1, failure)), min_size=1, max_size=_MOST_DECISIONS).map(tuple),
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
        instructions=st.none() | st.sampled_from(_ADDED_TEXTS),
        append=st.lists(st.sampled_from(_ADDED_TEXTS), max_size=2).map(tuple),
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
    decisions = st.lists(st.none() | decision, min_size=1, max_size=_MOST_DECISIONS)
    return mix((1, st.just(())), (1, decisions.map(tuple)))


def _as_text(data: dict[str, JsonValue]) -> str:
    text = json.dumps(data)
    return f"```json\n{text}\n```" if len(data) % 2 else text
