"""The walk over all configurations: the shipped machine passes it with fixed counts (docs/rules.md#termination)."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final, Self

import pytest
from hypothesis import settings
from tests.proof.conformance import ConformingMachine

from turnwright_proof.rank import Rank, rank_of
from turnwright_proof.verify import (
    BOUND,
    ENDS,
    Case,
    Environment,
    Property,
    ViolationError,
    Walk,
    WalkedMachine,
    campaign,
    findings,
    grid,
    walk,
)
from turnwright_proof.verify.configuration import Key, key_of, whole_key_of
from turnwright_proof.verify.path import describe_path
from turnwright_states import (
    AbortInput,
    CallStartedInput,
    EndReason,
    ExpireInput,
    FailInput,
    Limits,
    ModelRepliedInput,
    Spent,
    State,
    ToolCall,
    Usage,
)
from turnwright_states.chart import CHART, ROWS, Chart
from turnwright_states.facts import Fact
from turnwright_states.inputs import CompactedInput, Input, StopInput
from turnwright_states.state import FINAL
from turnwright_states.turn import Turn
from turnwright_states.verdict import Verdict

AGENT: Final = ToolCall(name="agent", arguments={}, delegates=True)
SMALL: Final = Case(Limits(steps=1, tool_calls=1, max_pauses=1, max_retries=0, doom_threshold=None), widest=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whole_campaign_passes_and_covers_every_row_and_end() -> None:
    """On every edge, the machine does what the moves as data say. With the profile `deep` the bound is 2.

    Two processes share it, in pieces small enough that both are busy to the end.
    """
    cases, total = list(grid(2 if settings().max_examples > 100 else 1)), Walk()
    checked = partial(campaign, machine=ConformingMachine)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(checked, [cases[start::16] for start in range(16)]):
            total.add(part)
    assert total.walks == len(cases) > 300
    assert total.cut == 0
    assert total.edges > total.configurations > 50_000
    assert total.untaken() == ()
    assert set(total.ends) == set(ENDS)
    assert {check.verdict for check in findings(total)} == {Verdict.HOLDS}


def test_walk_counts_configurations_calls_and_ends() -> None:
    """A turn without steps and retries: text, cut off, filtered, empty, calls, the causes, a crash, abort, failure."""
    total = walk(Case(Limits(steps=0, max_retries=0)))
    assert (total.walks, total.cut, total.configurations, total.model_calls) == (1, 0, 1, 1)
    assert total.ends == {
        "finished/text_only": 3,
        "failed/content_filter": 1,
        "failed/empty_reply": 1,
        "failed/model_error": 2,
        "failed/context_overflow": 1,
        "failed/crashed": 1,
        "failed/engine_error": 1,
        "aborted/aborted": 1,
    }
    assert total.edges == sum(total.ends.values())
    assert {row.source for row in total.rows} == {State.CHECK, State.TEXT_ONLY}
    assert len(total.untaken()) == len(ROWS) - len(total.rows)


@pytest.mark.parametrize(("steps", "retries"), [(1, 0), (1, 1), (2, 0), (2, 1)])
def test_longest_path_equals_the_formula(steps: int, retries: int) -> None:
    """(allowance + 1) x (1 + max_retries) model calls are possible, so the bound could not be lower."""
    limits = Limits(steps=steps, max_retries=retries, max_pauses=0, tool_calls=4, doom_threshold=None)
    assert walk(Case(limits, widest=1)).model_calls == limits.model_calls


def plain(**limits: object) -> Limits:
    small = {"steps": 2, "tool_calls": 2, "max_pauses": 1, "max_retries": 1, "doom_threshold": None}
    return Limits.model_validate(small | limits)


REDUCED: Final = {
    "a batch of two": Case(plain(steps=1), synthesis=True),
    "two batches": Case(plain(max_retries=0, max_pauses=0), synthesis=True),
    "a batch of three": Case(plain(steps=1, max_retries=0), widest=3),
    "no budget of calls": Case(plain(tool_calls=None, max_retries=0, max_pauses=0)),
    "doom loops": Case(plain(steps=3, tool_calls=3, doom_threshold=2, max_retries=0, max_pauses=0, nudges=1), widest=1),
    "doom loops that ask": Case(plain(steps=3, doom_threshold=2, doom_response="ask", max_retries=0), widest=1),
    "a cycle": Case(
        plain(steps=4, tool_calls=None, doom_threshold=2, doom_compare="calls", max_retries=0, max_pauses=0), widest=1
    ),
    "stalls": Case(
        plain(steps=3, stall_errors=2, stall_rounds=2, stall_response="loop", max_retries=0, max_pauses=0), widest=1
    ),
    "idle steps": Case(plain(steps=3, idle_steps=2, max_retries=0), widest=1),
    "spent budgets": Case(plain(tokens=1, cost=1.0, seconds=1.0, max_retries=0, max_pauses=0)),
    "sub-agents": Case(plain(steps=1, tool_calls=4, max_retries=0), delegates=True),
    "sub-agents that crash": Case(plain(steps=1, tool_calls=4, max_pauses=0), delegates=True),
    "sub-agents that are lent tokens": Case(plain(tokens=2, max_retries=0), widest=1, delegates=True),
    "hooks": Case(plain(steps=1, tool_calls=1, max_retries=0, output_retries=1, max_compactions=1), hooked=True),
    "waits": Case(plain(steps=1, max_retries=0), waits=True),
}

#: The inputs of a configuration lead here: the rows, the rank, and the reduced key or the end.
Outcomes = set[tuple[tuple[str, ...], Rank, Key]]


def recorder(outcomes: dict[Key, dict[Key, Outcomes]]) -> type[WalkedMachine]:
    """A machine that records where inputs lead, by the reduced and the whole key of the configuration before them."""

    class Recorder(WalkedMachine):
        __slots__ = ("here", "outcomes")
        here: Outcomes
        outcomes: Outcomes | None

        def __init__(self, turn: Turn, chart: Chart = CHART) -> None:
            super().__init__(turn, chart)
            self.outcomes = None

        def twin(self) -> Self:
            if self.outcomes is None:
                of_key = outcomes.setdefault(key_of(self.turn), {})
                self.outcomes = of_key.setdefault(whole_key_of(self.turn), set())
            twin = super().twin()
            twin.here, twin.outcomes = self.outcomes, None
            return twin

        def feed(self, event: Input) -> list[Fact]:
            facts, turn = super().feed(event), self.turn
            after = (turn.state, turn.reason) if turn.state in FINAL else key_of(turn)
            self.here.add((tuple(row.name for row in self.rows), rank_of(turn), after))
            return facts

    return Recorder


@pytest.mark.slow
@pytest.mark.parametrize("name", REDUCED)
def test_configurations_with_equal_keys_have_equal_futures(name: str) -> None:
    """Each input takes the same rows to the same keys. Without the reduction the walk is longer, with equal results."""
    of_reduced: dict[Key, dict[Key, Outcomes]] = {}
    of_whole: dict[Key, dict[Key, Outcomes]] = {}
    reduced = walk(REDUCED[name], machine=recorder(of_reduced))
    whole = walk(REDUCED[name], reduced=False, machine=recorder(of_whole))
    assert all(len({*map(frozenset, alike.values())}) == 1 for alike in of_whole.values())
    # Until a turn has distinguished two tools, the reduced walk acts on only one of them.
    assert all(
        outcomes <= next(iter(of_whole[key].values())) for key in of_reduced for outcomes in of_reduced[key].values()
    )
    assert set(reduced.ends) == set(whole.ends)
    assert reduced.rows == whole.rows
    assert reduced.model_calls == whole.model_calls
    assert reduced.configurations < whole.configurations


def test_truncated_walk_is_reported() -> None:
    whole = walk(SMALL)
    assert (whole.cut, walk(SMALL, most=whole.configurations).cut) == (0, 0)
    cut = walk(SMALL, most=whole.configurations - 1)
    assert (cut.cut, cut.configurations) == (1, whole.configurations - 1)
    assert campaign([SMALL, SMALL], most=3).cut == 2


# The grid.


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0, 1, 2, BOUND])
def test_grid_combines_every_cap_and_every_budget(bound: int) -> None:
    """Caps 0 to the bound, budgets 0 to one more and none, batches of up to half of the bound and one."""
    cases = list(grid(bound))
    other_cases = [case for case in cases if case.delegates or case.hooked or case.waits or case.rules]
    plain_ones = [
        case
        for case in cases
        if case.limits.shortest_loop is None and case.limits.idle_steps is None and case not in other_cases
    ]
    combinations = {(case.limits.steps, case.limits.tool_calls, case.synthesis) for case in plain_ones}
    budgets = (*range(bound + 2), None)
    assert {
        (cap, budget, syn) for cap in range(bound + 1) for budget in budgets for syn in (False, True)
    } <= combinations
    assert max(case.widest for case in plain_ones) == max((bound + 2) // 2, 1)
    assert {case.limits.max_pauses for case in plain_ones} == {0, 1, 2}
    assert len(set(map(repr, cases))) == len(cases)


def test_command_grid_has_the_documented_range() -> None:
    """Caps 0 to 4, budgets 0 to 5, batches of 0 to 3 calls over two tools, spent budgets, sub-agents."""
    cases = list(grid())
    assert {case.limits.steps for case in cases} == set(range(6))
    assert {case.limits.call_limit for case in cases} == {*range(6), None}
    assert {case.widest for case in cases} == {1, 2, 3}
    assert {case.limits.concluding for case in cases} == {"after", "within"}
    doom = {(case.limits.doom_threshold, case.limits.doom_response, case.limits.nudges) for case in cases}
    assert doom >= {
        (threshold, answer, nudges) for threshold in (2, 3) for answer in ("stop", "ask") for nudges in (0, 1)
    }
    spent = {(case.limits.tokens is None, case.limits.cost is None, case.limits.seconds is None) for case in cases}
    assert spent >= {(False, True, True), (True, False, True), (True, True, False), (False, False, False)}
    children = [case for case in cases if case.delegates]
    assert {case.limits.steps for case in children} == {1, 2, 3, 4}
    assert {case.limits.call_limit for case in children} == {1, 2, 3, 4, 5, None}
    assert {case.limits.tokens for case in children} == {None, 2, 3}


@pytest.mark.parametrize(
    ("case", "sizes", "tools"),
    [
        (Case(plain(), widest=3), {0, 1, 2, 3}, {"a"}),
        (Case(plain(doom_threshold=2), widest=2), {0, 1, 2}, {"a", "b"}),
        (Case(plain(), widest=2, delegates=True), {0, 1, 2}, {"a", "agent"}),
    ],
)
def test_model_requests_batches_of_every_size(case: Case, sizes: set[int], tools: set[str]) -> None:
    machine, _ = WalkedMachine.start(case.started)
    events = Environment(case, reduced=False).moves(machine.turn, machine.action)
    replies = [event for event in events if isinstance(event, ModelRepliedInput)]
    assert {len(reply.calls) for reply in replies} == sizes
    assert {call.name for reply in replies for call in reply.calls} == tools


def test_stop_has_the_usage_of_open_sub_agents_and_a_description() -> None:
    """All that they were lent, and a token more: the last reply of a sub-agent may overshoot its tokens."""
    case = Case(plain(tool_calls=5, tokens=9, seconds=1.0), widest=2, delegates=True)
    machine, _ = WalkedMachine.start(case.started)
    machine.feed(ModelRepliedInput(calls=(AGENT, AGENT), usage=Usage()))
    machine.feed(CallStartedInput(call="call00001"))
    stops = [move for move in Environment(case).moves(machine.turn, machine.action) if isinstance(move, StopInput)]
    assert [(type(stop), dict(stop.spent)) for stop in stops if stop.spent] == [
        (kind, {"call00001": Spent(calls=1, tokens=5)}) for kind in (ExpireInput, AbortInput, FailInput)
    ]
    assert [describe_path(stop, machine.turn) for stop in stops] == [
        *("the time is up", "somebody aborts the turn", "the engine fails"),
        "the time is up, its sub-agent made 1 call",
        "somebody aborts the turn, its sub-agent made 1 call",
        "the engine fails, its sub-agent made 1 call",
    ]


def test_compaction_is_described_with_the_usage() -> None:
    texts = [describe_path(CompactedInput(usage=usage), Turn()) for usage in (Usage(), Usage(input_tokens=3))]
    assert texts[0] == "the conversation is compacted"
    assert texts[1].startswith("the conversation is compacted, ")


def test_undescribed_input_is_named() -> None:
    class OtherInput(Input, frozen=True):
        """An input of somebody else."""

    assert describe_path(OtherInput(), Turn()) == "Other"


# What is said of it.


def verdicts(total: Walk, violation: ViolationError | None = None) -> dict[str, Verdict]:
    return {check.claim: check.verdict for check in findings(total, violation)}


def everything() -> Walk:
    return Walk(walks=1, configurations=1, edges=1, ends=dict.fromkeys(ENDS, 1), rows=set(CHART.rows))


def test_every_claim_has_a_single_verdict() -> None:
    assert list(verdicts(everything())) == list(Property)
    assert set(verdicts(everything()).values()) == {Verdict.HOLDS}


def test_truncated_walk_shows_results_and_proves_nothing() -> None:
    total = everything()
    total.cut = 1
    results = verdicts(total)
    assert {results.pop(Property.ROWS), results.pop(Property.ENDS)} == {Verdict.HOLDS}
    assert set(results.values()) == {Verdict.INCONCLUSIVE}


def test_empty_walk_proves_nothing() -> None:
    assert set(verdicts(Walk()).values()) == {Verdict.INCONCLUSIVE}


@pytest.mark.parametrize(("cut", "verdict"), [(0, Verdict.VIOLATED), (1, Verdict.INCONCLUSIVE)])
def test_untaken_row_and_unreached_end_are_named(cut: int, verdict: Verdict) -> None:
    """Unless a walk was cut: then they may be in what nobody saw."""
    total = everything()
    total.cut = cut
    total.rows.discard(ROWS[0])
    del total.ends["cap_hit/cost"]
    rows, ends = findings(total)[-2:]
    assert (rows.verdict, rows.witness) == (verdict, (ROWS[0].name,))
    assert (ends.verdict, ends.witness) == (verdict, ("cap_hit/cost",))


def test_fault_violates_a_claim_and_leaves_the_others_open() -> None:
    violation = ViolationError(Property.RANK, "the rank did not fall", SMALL, ())
    checks = findings(Walk(), violation)
    assert {check.claim: check.verdict for check in checks} == {
        claim: Verdict.VIOLATED if claim is Property.RANK else Verdict.INCONCLUSIVE for claim in Property
    }
    assert checks[0].detail.startswith("the rank did not fall; steps=1, ")


def test_ends_are_every_reason_of_every_outcome() -> None:
    assert len(ENDS) == len(set(ENDS)) == 21
    assert {end.split("/")[1] for end in ENDS} == set(EndReason)


@pytest.mark.parametrize(("budget", "refused"), [(4, {"call00001", "nobody"}), (None, {"nobody"})])
def test_false_account_has_more_calls_than_the_lease(budget: int | None, refused: set[str]) -> None:
    """A lease without a budget of calls allows any number, so only the usage of an unknown call is impossible."""
    case = Case(plain(tool_calls=budget, tokens=9), widest=1, delegates=True)
    machine, _ = WalkedMachine.start(case.started)
    machine.feed(ModelRepliedInput(calls=(AGENT,), usage=Usage()))
    machine.feed(CallStartedInput(call="call00001"))
    accounts = Environment(case).false_accounts(machine.turn, machine.action)
    assert {call for account in accounts if isinstance(account, StopInput) for call in account.spent} == refused
