"""A tree of turns ends within the budgets of its root, with any replies and a death of its process anywhere."""

from collections.abc import Iterator
from itertools import cycle

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples
from tests.rule_bounds import DEEPEST, most_steps, most_tool_calls

from turnwright import Agent, EndReason, Engine, Price, StoreError, TurnResult, tool
from turnwright.driver.subagents import agent_tool
from turnwright.journal.answers import ANSWERABLE
from turnwright.message import ToolCallPart, ToolResultPart
from turnwright.model.protocol import Model, ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel
from turnwright.store import MemoryStore, Store
from turnwright.transcript.pairing import check_pairing
from turnwright_states import Cause, InterruptKind, Limits, Usage
from turnwright_states import facts as f
from turnwright_states.limits import Concluding, DoomResponse
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore

NAMES = ("Root", "Left", "Right")
#: The most tokens that one reply uses, and what a token costs.
MOST = 20
PRICE = Price(input=1e6, output=1e6)
CONCLUDING: tuple[Concluding, ...] = ("after", "within", "never")
RESPONSES: tuple[DoomResponse, ...] = ("stop", "ask")

Journal = list[tuple[int, f.Fact]]


@tool
async def ok(n: int = 0) -> str:
    return f"ok {n}"


@tool(needs_approval=True)
async def ask(n: int = 0) -> str:
    return f"allowed {n}"


def _call(name: str, n: int) -> ResponseToolCall:
    return ResponseToolCall(name, {"prompt": f"task {n}"} if name in NAMES else {"n": n})


def _reply(text: str, calls: list[ResponseToolCall], tokens: int) -> ModelResponse:
    return ModelResponse(text=text, calls=tuple(calls), usage=Usage(input_tokens=tokens))


token_counts = st.integers(0, MOST)
calls = st.builds(_call, st.sampled_from([*NAMES, "Left", "Right", "ok", "ask", "nowhere"]), st.integers(0, 9))
delegations = st.builds(
    _reply,
    st.just(""),
    st.lists(st.builds(_call, st.sampled_from(NAMES), st.integers(0, 9)), min_size=1, max_size=4),
    token_counts,
)
replies = st.builds(_reply, st.just(""), st.lists(calls, min_size=1, max_size=4), token_counts)
other_lines = st.builds(_reply, st.sampled_from(["", "Well."]), st.just([]), token_counts) | st.builds(
    lambda cause: ModelError(f"{cause}", cause=cause),
    st.sampled_from([Cause.OVERLOADED, Cause.INTERRUPTED, Cause.CONTENT_FILTER, Cause.REJECTED]),
)
lines = st.one_of(replies, delegations, replies, delegations, other_lines)
scripts = st.builds(lambda first, rest: [first, *rest], replies | delegations, st.lists(lines, max_size=6))
roots = st.builds(lambda first, rest: [first, *rest], delegations, st.lists(lines, max_size=6))
own: st.SearchStrategy[dict[str, object]] = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.integers(1, 3),
        "max_pauses": st.integers(0, 2),
        "budget": st.builds(Limits, tool_calls=st.none() | st.integers(1, 6), tokens=st.none() | st.integers(20, 200)),
    },
)
limits = st.builds(
    Limits,
    steps=st.integers(2, 4),
    concluding=st.sampled_from(CONCLUDING),
    tool_calls=st.integers(3, 30),
    tokens=st.none() | st.integers(30, 600),
    cost=st.none() | st.floats(30, 600),
    doom_threshold=st.none() | st.integers(2, 3),
    idle_steps=st.none() | st.integers(1, 3),
    doom_compare=st.sampled_from(("results", "calls")),
    doom_response=st.sampled_from(RESPONSES),
    max_retries=st.integers(0, 2),
    max_pauses=st.integers(0, 3),
)
answers = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=5)


class Tree:
    """Three agents that may each call all three, their models, and the person whom they ask."""

    def __init__(
        self,
        lines: tuple[list[ModelResponse | ModelError], ...],
        agents: tuple[dict[str, object], ...],
        bounds: Limits,
        say: list[tuple[int, bool]],
    ) -> None:
        self.lines: dict[str, Iterator[ModelResponse | ModelError]] = {
            name: cycle(script) for name, script in zip(NAMES, lines, strict=True)
        }
        self.agents = [
            Agent.model_validate({"name": name, "description": "Helps.", "model": name, **settings})
            for name, settings in zip(NAMES, agents, strict=True)
        ]
        self.bounds = bounds
        self.say = say
        self.models: dict[str, ScriptedModel] = {}
        self.journals: dict[str, Journal] = {}
        self.turns: dict[str, TurnResult] = {}

    def find(self, name: str) -> Model:
        """The model of an agent: one for all its turns, and for all processes."""
        if name not in self.models:
            self.models[name] = ScriptedModel(lambda _: next(self.lines[name]), name=name, repeat=True)
        return self.models[name]

    @property
    def requests(self) -> list[ModelRequest]:
        """All that was sent to any model."""
        return [request for model in self.models.values() for request in model.requests]

    def engine(self, store: Store) -> Engine:
        """The engine of a process of its own."""
        return Engine(
            models=self.find,
            tools=[ok, ask, *map(agent_tool, self.agents)],
            store=store,
            limits=self.bounds,
            prices=dict.fromkeys(NAMES, PRICE),
            backoff=Backoff(initial=0),
        )

    async def drive(self, at: int, *, after: bool, patience: int) -> TurnResult:
        """Run the tree until it has ended. Its process dies at its `at`-th append, if there are as many.

        A person answers `patience` times, and then stops it.
        """
        memory = MemoryStore()
        store = FaultyStore(memory, at=at, after=after)
        try:
            turn = await self._answered(self.engine(store), None, patience)
        except StoreError:
            await store.aclose()
            (root,) = [row.id for row in await memory.turns() if ":" not in row.id]
            turn = await self._answered(self.engine(memory), root, patience)
        engine = self.engine(memory)
        for row in await memory.turns():
            self.journals[row.id] = await memory.facts(row.id)
            self.turns[row.id] = await engine.get(row.id)
        return turn

    async def _answered(self, engine: Engine, root: str | None, patience: int) -> TurnResult:
        if root is None:
            turn: TurnResult = await engine.run(self.agents[0], "hi")
        else:
            turn = await engine.get(root)
            turn = turn if turn.outcome is not None else await engine.resume(root)
        rounds = 0
        while turn.outcome is None:
            number, at_once = self.say[rounds % len(self.say)]
            if rounds == patience:
                await engine.abort(turn.id)
                turn = await engine.get(turn.id)
                continue
            interrupts = turn.interrupts if at_once else turn.interrupts[:1]
            turn = await engine.resume(
                turn.id, {interrupt.id: _decision(interrupt.kind, number) for interrupt in interrupts}
            )
            rounds += 1
        return turn


def _decision(kind: InterruptKind, number: int) -> str:
    takes = ANSWERABLE[kind]
    return str(takes[number % len(takes)])


trees = st.builds(
    Tree,
    lines=st.tuples(roots, scripts, scripts),
    agents=st.tuples(st.just({}), own, own),
    bounds=limits,
    say=answers,
)
deaths = st.just(0) | st.integers(1, 60)


def started_calls(journal: Journal) -> int:
    """The calls that a turn started itself."""
    return len({fact.call for _, fact in journal if isinstance(fact, f.CallStarted)})


def own_tokens(journal: Journal) -> int:
    """The tokens that a turn's own model calls used."""
    total = 0
    for _, fact in journal:
        if isinstance(fact, f.ModelReplied | f.AttemptFailed | f.Stopping | f.Concluded | f.TurnEnded) and fact.usage:
            total += fact.usage.tokens
    return total


def limits_of(journal: Journal) -> Limits:
    (_, first), *_ = journal
    assert isinstance(first, f.TurnStarted)
    return first.limits


@settings(max_examples=percent_of_examples(60))
@given(tree=trees, at=deaths, after=st.booleans(), patience=st.integers(0, 6))
def test_tree_ends_within_the_budgets_of_the_root(tree: Tree, at: int, after: bool, patience: int) -> None:
    """Calls exactly; tokens and cost but for one reply, its attempts, and the conclusion of each turn."""
    root = anyio.run(lambda: tree.drive(at, after=after, patience=patience))
    bounds = limits_of(tree.journals[root.id])
    assert all(turn.outcome is not None for turn in tree.turns.values())
    assert all(turn.reason is not EndReason.ENGINE_ERROR for turn in tree.turns.values()), root.error
    assert all(name.count(":") <= DEEPEST for name in tree.turns)
    total = sum(map(started_calls, tree.journals.values()))
    tokens = sum(map(own_tokens, tree.journals.values()))
    overshoot = len(tree.turns) * 2 * (1 + bounds.max_retries) * MOST
    budget = most_tool_calls(bounds)
    assert budget is None or total <= budget
    if bounds.tokens is not None:
        assert tokens <= bounds.tokens + overshoot
    if bounds.cost is not None:
        assert tokens <= bounds.cost + overshoot
    assert (root.tool_calls, root.usage.tokens) == (total, tokens), "the root knows what all of them used"
    for name, journal in tree.journals.items():
        below = [journal_name for journal_name in tree.journals if journal_name.startswith(f"{name}:")]
        call_count = started_calls(journal) + sum(started_calls(tree.journals[journal_name]) for journal_name in below)
        lent = most_tool_calls(limits_of(journal))
        assert lent is None or call_count <= lent, f"{name} was lent {lent}"
        assert tree.turns[name].steps <= most_steps(limits_of(journal))


@settings(max_examples=percent_of_examples(40))
@given(tree=trees, at=deaths, after=st.booleans(), patience=st.integers(0, 6))
def test_every_journal_of_a_tree_replays_with_paired_requests(tree: Tree, at: int, after: bool, patience: int) -> None:
    anyio.run(lambda: tree.drive(at, after=after, patience=patience))
    for name, journal in tree.journals.items():
        check = replay(journal).check
        assert check.verdict is Verdict.HOLDS, f"{name}: {check.detail}"
    for request in tree.requests:
        check_pairing(request.messages)
    for turn in tree.turns.values():
        check_pairing(turn.messages)
        parts = [part for message in turn.messages for part in message.parts]
        call_ids = [part.id for part in parts if isinstance(part, ToolCallPart)]
        assert call_ids == [part.call for part in parts if isinstance(part, ToolResultPart)]


@settings(max_examples=percent_of_examples(25))
@given(tree=trees, patience=st.integers(0, 6))
def test_sub_agent_limits_are_own_and_within_the_lease(tree: Tree, patience: int) -> None:
    anyio.run(lambda: tree.drive(0, after=False, patience=patience))
    for name, journal in tree.journals.items():
        caller, _, call = name.rpartition(":")
        if not caller:
            continue
        calls = [
            started_call
            for _, fact in tree.journals[caller]
            if isinstance(fact, f.ModelReplied)
            for started_call in fact.calls
            if started_call.id == call
        ]
        lease, lent, callers = calls[0].lease, limits_of(journal), limits_of(tree.journals[caller])
        assert lease is not None
        for name_, share in (("tool_calls", lease.calls), ("tokens", lease.tokens), ("cost", lease.cost)):
            mine, theirs = getattr(lent, name_), getattr(callers, name_)
            assert (share is None) == (theirs is None)
            assert share is None or (0 < share <= theirs and mine is not None and mine <= share)
