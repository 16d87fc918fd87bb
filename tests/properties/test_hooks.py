"""With hooks, guardrails, typed answers and compactions a turn keeps every invariant, and a crash changes nothing.

The scenarios of the fuzzing kit, with agents of every kind; then a turn with everything in it, whose process dies
before and after each append.
"""

import itertools
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, Unpack, cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.hypothesis_examples import percent_of_examples

from turnwright import (
    Agent,
    ChangeArguments,
    ChangeRequest,
    Compact,
    Engine,
    ModelSettings,
    Reject,
    RequireApproval,
    ReturnResult,
    Trip,
    tool,
)
from turnwright.context import TurnContext
from turnwright.driver.hooks.guardrails import GuardrailKind
from turnwright.journal.result import result_of
from turnwright.message import Message, StepFinishPart, StepStartPart
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import Delta, ModelRequest, ModelResponse
from turnwright.store import SqliteStore, Store
from turnwright.tools import Tool
from turnwright_states import EndReason, Limits, Outcome, Usage
from turnwright_states import facts as f
from turnwright_states.verdict import Verdict
from turnwright_testing import (
    Answers,
    Asks,
    Behavior,
    Crash,
    EngineParts,
    FaultyStore,
    GuardrailScript,
    HookScript,
    Line,
    Raises,
    Refuses,
    Returns,
    Runs,
    Scenario,
    assert_invariants,
    play,
)
from turnwright_testing.fuzz import Target, fuzz
from turnwright_testing.strategies import (
    compactions,
    hook_scripts,
    model_settings,
    obedient_replies,
    people,
    typed_answers,
)

#: An agent of any answer.
AnyAgent: TypeAlias = Agent[object, object]


class Report(BaseModel):
    """The typed answer."""

    notes: int
    label: str = ""


async def counted(_: TurnContext[object], report: Report) -> Report:
    return report.model_copy(update={"label": "counted"})


@tool(idempotent=True, retries=1)
async def look(n: int = 0) -> str:
    return f"saw {n}"


@tool(idempotent=True, needs_approval=True)
async def erase(n: int = 0) -> str:
    return f"erased {n}"


@tool(idempotent=True, return_direct=True)
async def give(n: int) -> str:
    return f"given {n}"


@tool
async def send(n: int = 0) -> str:
    return f"sent {n}"


IDEMPOTENT: list[Tool] = [look, erase, give]
TOOLS: list[Tool] = [*IDEMPOTENT, send]
CALLED = Agent(name="Called", output_type=Report, output_mode="tool", output_validators=[counted])
AGENTS: list[AnyAgent] = [
    Agent(name="Plain"),
    CALLED,
    Agent(name="Prompted", output_type=Report, output_mode="prompt"),
    Agent(name="Listing", output_type=list[int], output_mode="native"),
    Agent(name="Compacted", compaction=Compact(at_tokens=20, keep_steps=1)),
]


@settings(
    max_examples=percent_of_examples(20),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.nested_given],
)
@given(st.integers(0, 1_000_000))
def test_every_invariant_holds_for_any_agent_features(seed: int) -> None:
    """Ten scenarios a seed: one long run of Hypothesis would vary what it has drawn already."""
    agents = cast("tuple[Agent, ...]", tuple(AGENTS))
    report = fuzz(Target(agents, tuple(TOOLS)), examples=10, seed=seed)
    assert report.found is None, report.found
    assert report.verdict is Verdict.HOLDS


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Do not log the planned failures: there are thousands."""
    log = logging.getLogger("turnwright")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


class JournalModel:
    """A model whose reply depends on the journal: the n-th line of its script after n replies that were kept.

    So a reply that a crash lost is said again. A summary is the same each time. `asked` has each request, by what the
    journal had before it.
    """

    name = "journal"

    def __init__(self, script: Sequence[Line], store: Callable[[], Store]) -> None:
        self._script = script
        self._store = store
        self.numbered_requests: list[tuple[tuple[int, int], object]] = []

    def unsupported_settings(self, settings: ModelSettings) -> Mapping[str, str]:  # noqa: ARG002 (it takes any)
        return {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        (row,) = await self._store().turns(limit=1)
        facts = [fact for _, fact in await self._store().facts(row.id)]
        reply_count = sum(isinstance(fact, f.ModelReplied | f.Concluded) for fact in facts)
        begun = sum(isinstance(fact, f.CompactionStarted | f.Compacted) for fact in facts)
        self.numbered_requests.append(((reply_count, begun), sent(request)))
        line: Line
        summarizes = "only your summary of it will remain" in request.messages[-1].text
        line = "In short." if summarizes else self._script[min(reply_count, len(self._script) - 1)]
        assert isinstance(line, str | ModelResponse)
        async for item in ScriptedModel(line).stream(request):
            yield item


class Played:
    """A scenario that was played once: its turn, its requests, and the number of its appends."""

    def __init__(
        self,
        agent: AnyAgent,
        scenario: Scenario,
        folder: Path | None = None,
    ) -> None:
        self.stores: list[Store] = []
        self.model = JournalModel(scenario.script, self._inner)
        opens = None if folder is None else partial(SqliteStore, folder / "turns.db", durability="normal")
        plain = replace(scenario, script=())
        turns = play(
            plain, agent=agent, tools=IDEMPOTENT, build=self.build, run_tools=True, real_time=True, store=opens
        )
        assert_invariants([replace(turn, requests=None) for turn in turns])
        (self.driven,) = turns
        self.turn = result_of("turn", self.driven.facts)

    def _inner(self) -> Store:
        store = self.stores[-1]
        assert isinstance(store, FaultyStore)
        return store.inner

    @property
    def appends(self) -> int:
        store = self.stores[0]
        assert isinstance(store, FaultyStore)
        return store.appends

    def build(self, **parts: Unpack[EngineParts]) -> Engine:
        self.stores.append(parts["store"])
        parts["model"] = self.model
        return Engine(**parts)

    @property
    def shown(self) -> object:
        """All that must not depend on a crash: the transcript, the end, the answer and the counts."""
        turn = self.turn
        ended = (turn.outcome, turn.reason, turn.also_reached, turn.text, turn.output, turn.error, turn.guardrail)
        return [spoken(message) for message in turn.messages], ended, (turn.steps, turn.tool_calls)


def spoken(message: Message) -> object:
    """Return a message without what differs from run to run: places in the journal, and times."""
    parts = (part.to_json() for part in message.parts if not isinstance(part, StepStartPart | StepFinishPart))
    return message.role, [
        {name: value for name, value in part.items() if name not in ("seq", "seconds")} for part in parts
    ]


def sent(request: ModelRequest) -> object:
    """Return a request in a form that can be compared."""
    tools = [spec.name for spec in request.tools]
    settings_sent = None if request.settings is None else request.settings.to_json()
    more = (request.tool_choice, request.max_tokens, settings_sent, str(request.output))
    return [spoken(message) for message in request.messages], tools, more


def crashes_change_nothing(agent: AnyAgent, scenario: Scenario, folder: Path | None = None) -> Played:
    """Play the scenario with a death before and after each of its appends, and compare it with the undisturbed turn."""
    databases = itertools.count()

    def played(crash: Crash | None) -> Played:
        place = None if folder is None else folder / str(next(databases))
        if place is not None:
            place.mkdir()
        return Played(agent, replace(scenario, crash=crash), place)

    whole = played(None)
    requests = dict(whole.model.numbered_requests)
    assert len(requests) == len(whole.model.numbered_requests)
    for at, after in itertools.product(range(1, whole.appends + 1), (False, True)):
        again = played(Crash(at, after=after))
        assert again.shown == whole.shown, (at, after)
        for number, request in again.model.numbered_requests:
            assert request == requests.get(number), (at, after, number)
    return whole


#: Limits that a crash does not reach: its attempts and reruns have retries.
ROOMY = Limits(steps=8, max_retries=9, max_pauses=30, doom_threshold=None)


@st.composite
def disturbed(draw: st.DrawFn) -> tuple[AnyAgent, Scenario]:
    """An agent and a scenario in which all that decides is an object of the journal, not a count of calls."""
    agent = draw(st.sampled_from(AGENTS))
    replies = obedient_replies(IDEMPOTENT)
    lines = st.lists(replies | typed_answers(agent) if agent.is_typed else replies, min_size=1, max_size=5)
    # One that trips beside other calls leaves these where they are, which a crash may change.
    passes = st.builds(GuardrailScript, st.sampled_from([GuardrailKind.TOOL_INPUT, GuardrailKind.TOOL_OUTPUT]))
    verdicts = st.sampled_from([(), (None, Trip("no")), (None, None, None, Trip("no"))])
    trips = st.builds(GuardrailScript, st.sampled_from([GuardrailKind.INPUT, GuardrailKind.OUTPUT]), verdicts)
    return agent, Scenario(
        script=(*draw(lines), "Done."),
        limits=ROOMY,
        behaviours=tuple(draw(st.lists(BEHAVIORS, max_size=4))),
        people=tuple(draw(st.lists(people(IDEMPOTENT).filter(lambda person: isinstance(person, Answers)), max_size=2))),
        hooks=draw(hook_scripts(IDEMPOTENT)),
        guardrails=tuple(draw(st.lists(passes | trips, max_size=2))),
        compaction=draw(st.none() | compactions()),
        settings=draw(st.none() | model_settings()),
    )


BEHAVIORS: st.SearchStrategy[Behavior] = st.sampled_from(
    [Returns("well"), Raises("Retry", "once more"), Raises("ToolError"), Asks(), Asks(midway=True), Asks(times=2)]
)


@pytest.mark.slow
@settings(max_examples=percent_of_examples(20))
@given(disturbed())
def test_crash_at_any_append_changes_nothing(case: tuple[AnyAgent, Scenario]) -> None:
    """The same transcript, the same end, the same answer; and the same request for each reply."""
    crashes_change_nothing(*case)


@pytest.mark.slow
@settings(max_examples=percent_of_examples(10))
@given(disturbed())
def test_crash_at_any_append_changes_nothing_in_sqlite(case: tuple[AnyAgent, Scenario]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        crashes_change_nothing(*case, Path(folder))


#: A turn with everything in it. Its steps: a refused reply; calls that hooks change, reject, ask about and answer; a
#: call whose tool asks for another try; a compaction; answers that do not fit, are refused, and fit.
EVERYTHING = Scenario(
    script=(
        asks_for(("look", {"n": 1}), text="At first."),
        asks_for(("look", {"n": 2}), ("erase", {"n": 3}), ("look", {"n": 4}), ("look", {"n": 5}), ("look", {"n": 6})),
        asks_for(("look", {"n": 7}), ("erase", {"n": 8}), usage=Usage(input_tokens=90, output_tokens=1)),
        asks_for(("final_result", {"notes": "many"})),
        asks_for(("final_result", {"notes": 1}), ("look", {"n": 9})),
        asks_for(("final_result", {"notes": 2})),
    ),
    limits=ROOMY.model_copy(update={"output_retries": 3}),
    behaviours=(Returns("a " * 40), Runs(), Returns("b " * 40), Raises("Retry", "once more")),
    people=(Answers(arguments={"n": 33}), Answers(decision=1, text="no")),
    hooks=HookScript(
        before_model=(ChangeRequest(instructions="Be brief.", append=("It is step 1.",)), None),
        after_model=(Refuses("not at first"),),
        before_tool=(
            None,
            ChangeArguments({"n": 22}),
            None,
            Reject("not that"),
            RequireApproval("really?"),
            ReturnResult("known"),
        ),
        after_tool=(None, ReturnResult("hidden")),
        prepare_tools=(("look", "erase"),),
        validator=(None, None, None, None, Refuses("count again")),
    ),
    guardrails=(
        GuardrailScript(GuardrailKind.INPUT),
        GuardrailScript(GuardrailKind.INPUT, run_in_parallel=False),
        GuardrailScript(GuardrailKind.OUTPUT),
        GuardrailScript(GuardrailKind.TOOL_INPUT),
        GuardrailScript(GuardrailKind.TOOL_OUTPUT),
    ),
    compaction=Compact(at_tokens=80, keep_steps=1, max_compactions=1),
    settings=ModelSettings(temperature=0, max_tokens=500),
)


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "sqlite"])
def test_turn_with_every_feature_ends_the_same_after_any_death(durable: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = crashes_change_nothing(CALLED, EVERYTHING, Path(folder) if durable else None)
    turn, facts = whole.turn, [fact for _, fact in whole.driven.facts]
    assert (turn.outcome, turn.reason, turn.output) == (
        Outcome.FINISHED,
        EndReason.ANSWERED,
        {"notes": 2, "label": "counted"},
    )
    decisions = {str(decision["decision"]) for fact in facts for decision in getattr(fact, "decisions", ())}
    assert decisions == {
        "change_request",
        "passed",
        "retry",
        "change_arguments",
        "reject",
        "require_approval",
        "return_result",
    }
    assert {type(fact) for fact in facts} >= {f.RequestPrepared, f.Reviewed, f.CompactionStarted, f.Compacted, f.Paused}
    assert [fact.refused for fact in facts if isinstance(fact, f.Reviewed)].count(True) == 3
    assert next(fact.arguments for fact in facts if isinstance(fact, f.Answered)) == {"n": 33}
    results = {fact.call: fact.result for fact in facts if isinstance(fact, f.CallSettled)}
    assert results["call00003"] == "erased 33", "the person's arguments ran"
    assert any(fact.retry for fact in facts if isinstance(fact, f.CallSettled))
