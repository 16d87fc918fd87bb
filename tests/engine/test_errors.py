"""Errors go to other processes: with their class, their text and their fields."""

import copy
import enum
import inspect
import multiprocessing
import pickle
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest
from pydantic import JsonValue
from tests.repository.test_public_api import modules

from turnwright import Agent, Engine, InvalidAnswerError, TurnAlreadyEndedError
from turnwright.model import ModelError, ModelResponse
from turnwright.model.scripted import ScriptedModel
from turnwright_states import Cause


def error_classes() -> Iterator[type[BaseException]]:
    """Every exception class of both distributions."""
    classes = {
        value
        for module in modules()
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    ours = [kind for kind in classes if kind.__module__.split(".")[0] in ("turnwright", "turnwright_states")]
    return iter(sorted(ours, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}"))


#: A value of each plain type.
PLAIN = {str: "some text", object: "some text", int: 7, float: 7.0, bool: True, JsonValue: "some text"}


def value_of(hint: object) -> object:
    """Return some value of a type: the arguments of a constructor are made of their annotations."""
    if hint in PLAIN:
        return PLAIN[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return value_of(next(argument for argument in arguments if argument is not type(None)))
    if origin in (Sequence, Iterable):
        return (value_of(arguments[0]),)
    if origin is Mapping:
        return {}
    if origin is not None:
        return origin()
    assert inspect.isclass(hint), hint
    return next(iter(hint)) if issubclass(hint, enum.Enum) else hint(**required_values(hint))


def required_values(kind: type) -> dict[str, object]:
    """Return a value for each field of a record that has no default."""
    hints = typing.get_type_hints(kind)
    return {
        parameter.name: value_of(hints[parameter.name])
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.default is parameter.empty
    }


def made(kind: type[BaseException]) -> BaseException:
    """Return an error with a value for each argument of its constructor, and a note."""
    constructor = next(base for base in kind.__mro__ if "__init__" in vars(base))
    if constructor.__module__.startswith("turnwright"):
        make: Callable[..., None] = vars(constructor)["__init__"]
        hints = typing.get_type_hints(make)
        values: dict[str, object] = {}
        more: list[object] = []
        for parameter in [*inspect.signature(make).parameters.values()][1:]:
            value = value_of(hints[parameter.name])
            if parameter.kind is parameter.VAR_POSITIONAL:
                more = [*values.values(), value]  # after those before it
                values = {}
            else:
                values[parameter.name] = value
        error = kind(*more, **values)
    else:
        error = kind("some text")
    error.add_note("a note")
    return error


@pytest.mark.slow
def test_every_error_survives_pickling_and_copying() -> None:
    kinds = list(error_classes())
    assert len(kinds) > 40
    for kind in kinds:
        error = made(kind)
        for back in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 (our own)
            assert type(back) is kind
            assert (str(back), back.args) == (str(error), error.args), kind
            assert repr(vars(back)) == repr(vars(error)), kind


def test_error_fields_survive_pickling() -> None:
    error = ModelError("it broke", cause=Cause.OVERLOADED, status=529, retry_after=2.0, partial=ModelResponse("Hel"))
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own)
    assert (back.cause, back.status, back.retry_after, back.partial) == (error.cause, 529, 2.0, ModelResponse("Hel"))
    answer = InvalidAnswerError("approval-1", "is not open", ["approval-2"])
    back = pickle.loads(pickle.dumps(answer))  # noqa: S301 (our own)
    assert (str(back), back.interrupts) == (str(answer), ("approval-2",))


def answer_an_ended_turn(path: str) -> None:
    """Run a turn to its end, and answer it: this runs in another process."""
    with Engine(model=ScriptedModel("Done."), store=f"sqlite:///{path}/turns.db") as engine:
        turn = engine.run_sync(Agent(name="Clerk"), "hi")
        engine.resume_sync(turn.id)


@pytest.mark.slow
def test_error_survives_a_process_pool(tmp_path: object) -> None:
    """A pool waits for ever for an error that it cannot read."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply_async(answer_an_ended_turn, (str(tmp_path),))
        with pytest.raises(TurnAlreadyEndedError, match="has ended") as caught:
            result.get(timeout=60)
    assert (caught.value.outcome, caught.value.reason) == ("finished", "answered")
