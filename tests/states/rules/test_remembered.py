"""The values of a call that are kept for a later one: those that a condition with `this` reads, and no more."""

import pytest

from turnwright_states.rules import History, Rule


@pytest.mark.parametrize(
    ("condition", "result", "is_allowed"),
    [
        ("this.args.to == result.person.name and this.args.n <= result.person.limit.n", 0, True),
        ("this.args.to == result.person.name or this.args.to == result.person", 0, True),
        ("this.args.n < result.person.limit.n", 0, False),
        ("this.args.to in result.names and default(result.note, '') == ''", 0, True),
        ("this.args.to in result.names and result.note == ''", 0, False),
        ("this.args.to in result.names and result.names[0] == 'bob'", 0, True),
        ("this.args.to in text", "for ann", True),
        ("this.args.to in text", "for bob", False),
    ],
)
def test_condition_reads_the_kept_values(condition: str, result: object, is_allowed: bool) -> None:
    value = {"person": {"name": "ann", "limit": {"n": 3}}, "names": ["bob", "ann"], "other": "x" * 10_000}
    history = History([Rule("named", before="pay", need=f"check if {condition}")])
    history.started("1", "check", {})
    history.settled("1", ok=True, result=result or value)
    assert bool(history.judge("pay", {"to": "ann", "n": 3})) is not is_allowed


@pytest.mark.parametrize(
    "extra",
    [[[1] * 5_000], {"list": [1] * 5_000}, float("nan"), {"inner": [float("inf")]}, object()],
    ids=["long list", "long list in an object", "no number", "no number inside", "no JSON"],
)
def test_value_that_cannot_be_kept_is_unknown(extra: object) -> None:
    """Nothing of the call is kept then, so the call is not evidence."""
    history = History([Rule("named", before="pay", need="check if this.args.to in result.names")])
    for call, names in (("1", ["ann"]), ("2", ["ann", extra])):
        history.started(call, "check", {})
        history.settled(call, ok=True, result={"names": names})
        assert bool(history.judge("pay", {"to": "ann"})) is (call == "2")
