"""The capacity model says what it is said to say: the scarcest thing bounds the rate, and is named."""

import pytest
from bench.scale.model import Cost, Costs, Fleet, Work, actions, capacity

#: A turn without steps takes no time of its own, and a step a hundredth of a CPU second of its worker.
COSTS = Costs(
    cpu={
        "worker": Cost(0.0, 0.01),
        "client": Cost(0.0, 0.0),
        "postgres": Cost(0.0, 0.002),
        "temporal": Cost(0.03, 0.0),
    },
    idle={},
    waits=Cost(0.0, 0.0),
    commits=Cost(1.0, 4.0),
    commit=0.001,
    actions=500.0,
)
WORK = Work(steps=8, model=3.0, tools=1.0)


def test_turn_thinks_once_more_than_the_number_of_steps() -> None:
    assert WORK.thinking == 9 * 3 + 8 * 1


def test_slots_bound_the_rate_of_slow_models() -> None:
    result = capacity(Fleet(2, concurrency=35), WORK, COSTS)
    assert result.slot == 35
    assert (result.turns, result.bound_by) == (2.0, "slots")


def test_waits_besides_the_model_use_the_slot_of_a_turn() -> None:
    costs = Costs(cpu=COSTS.cpu, idle={}, waits=Cost(3.0, 4.0), commits=COSTS.commits, commit=0.001)
    assert capacity(Fleet(1, concurrency=70), WORK, costs).bounds["slots"] == 70 / (35 + 3 + 4 * 8)


def test_quick_models_are_bounded_by_the_cpu_of_the_workers() -> None:
    result = capacity(Fleet(2, actions=1e6), Work(steps=10, model=0.0), COSTS)
    assert result.turns == pytest.approx(20.0)
    assert result.bound_by == "CPU of the workers"


def test_parts_on_a_single_machine_share_the_cores() -> None:
    result = capacity(Fleet(8, cores=1, actions=1e6), Work(steps=10, model=0.0), COSTS)
    assert result.turns == pytest.approx(1 / (0.1 + 0.02 + 0.03))
    assert result.bound_by == "CPU of all"


def test_idle_use_is_not_available_for_work() -> None:
    costs = Costs(COSTS.cpu, {"worker": 0.1, "postgres": 0.2}, COSTS.waits, COSTS.commits, COSTS.commit)
    result = capacity(Fleet(4, cores=2), Work(steps=10, model=0.0), costs)
    assert result.bounds["CPU of all"] == pytest.approx((2 - 4 * 0.1 - 0.2) / 0.15)


def test_pool_bounds_the_number_of_concurrent_appends() -> None:
    assert capacity(Fleet(10), WORK, COSTS).bounds["connections"] == pytest.approx(10 * 4 / (33 * 0.001))


def test_each_heartbeat_of_a_long_turn_is_a_temporal_action() -> None:
    assert actions(0.0) == 5
    assert actions(35.0) == 5 + 17.5
    result = capacity(Fleet(50), WORK, COSTS)
    assert result.turns == pytest.approx(500 / 22.5)
    assert result.bound_by == "Temporal"
    assert capacity(Fleet(50, heartbeat=10.0), WORK, COSTS).turns == pytest.approx(500 / 8.5)


def test_temporal_bounds_nothing_if_unused() -> None:
    costs = Costs(COSTS.cpu, {}, COSTS.waits, COSTS.commits, COSTS.commit)
    assert capacity(Fleet(50), WORK, costs).bounds["Temporal"] == float("inf")


def test_cost_is_a_line_through_short_and_long_turns() -> None:
    line = Cost.through((1, 3.0), (9, 19.0))
    assert line == Cost(turn=1.0, step=2.0)
    assert line.of(4) == 9.0


def test_noisy_measurement_gives_no_negative_cost() -> None:
    assert Cost.through((1, 3.0), (9, 2.0)) == Cost(turn=3.0, step=0.0)
    assert Cost.through((1, 1.0), (3, 9.0)) == Cost(turn=0.0, step=4.0)
