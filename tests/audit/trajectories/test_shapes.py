"""Typed reading keeps what fits of a value that does not."""

from typing import Any

from msgspec import Struct

from turnwright_audit.trajectories.atif import TrajectoryStep
from turnwright_audit.trajectories.shapes import Shape


class Inner(Struct):
    n: int | None = None


class Outer(Struct):
    name: str = ""
    share: float | None = None
    done: bool = False
    parts: list[Inner | str] | None = None
    by_name: dict[str, Inner] | None = None
    any: Any = None


SHAPE = Shape(Outer)


def test_field_of_the_wrong_type_is_left_out() -> None:
    data = b'{"name": 7, "share": "x", "done": 1, "parts": [{"n": 1}, 5, null, "a"], "any": [1],'
    data += b' "by_name": {"a": 1, "b": {}}}'
    assert SHAPE.decode(data) == Outer(name="7", parts=[Inner(1), "5", "a"], any=[1], by_name={"b": Inner()})


def test_numbers_are_read_as_the_expected_kind() -> None:
    assert Shape(Inner).decode(b'{"n": 2.0}') == Inner(2)
    assert Shape(Inner).decode(b'{"n": true}') == Inner()
    assert SHAPE.decode(b'{"share": 1, "name": []}') == Outer(share=1.0)
    assert SHAPE.decode(b'{"share": 1' + b"0" * 400 + b', "done": true}') == Outer(done=True)
    assert SHAPE.convert({"share": 10**400, "done": True}) == Outer(done=True)
    assert SHAPE.convert({"share": 10**400, "done": 1}) == Outer()


def test_only_allowed_literals_are_kept() -> None:
    assert Shape(list[TrajectoryStep]).convert([{"step_id": 2, "source": "robot"}]) == []
    assert Shape(TrajectoryStep).convert({"step_id": 2.0, "source": "agent", "message": 7}) == TrajectoryStep(
        step_id=2, source="agent", message="7"
    )


def test_invalid_text_and_nan_are_repaired() -> None:
    assert SHAPE.decode(b'{"name": "a\xff\\ud83d\n", "share": NaN}') == Outer(name="a\ufffd?\n")


def test_unparsable_value_is_none() -> None:
    assert SHAPE.decode(b"[1]") is None
    assert SHAPE.decode(b'{"name": "cut') is None
    assert SHAPE.decode(b"[" * 100_000) is None
