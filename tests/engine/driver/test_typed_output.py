"""A typed answer is asked for, judged before anything runs, and asked for again while output retries are left."""

from dataclasses import dataclass, field
from math import nan
from typing import Annotated, Literal

import anyio
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from turnwright import Agent, ConfigError, EndReason, Engine, Limits, Outcome, Retry, tool
from turnwright.context import TurnContext
from turnwright.model.capabilities import Capabilities
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.transcript.events import OutputDeltaEvent, TurnEndedEvent
from turnwright.transcript.pairing import check_pairing

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]


class Invoice(BaseModel):
    """An invoice."""

    customer: str
    total: float


@dataclass
class Point:
    x: int
    y: int


class Named(TypedDict):
    name: str


@tool
async def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


GOOD: dict[str, JsonValue] = {"customer": "ACME", "total": 5}
BILLER = Agent(name="Biller", output_type=Invoice)


def answers(data: object, name: str = "final_result") -> ModelResponse:
    assert isinstance(data, dict)
    return asks_for((name, data))


class NativeModel(ScriptedModel):
    """A model whose provider holds replies to a schema."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(json_schema_output=True)


def engine_of(*lines: Line, store: MemoryStore | None = None) -> tuple[Engine, ScriptedModel]:
    model = ScriptedModel(*lines)
    return Engine(model=model, tools=[look], store=store or MemoryStore()), model


async def test_model_without_a_format_answers_by_a_tool() -> None:
    engine, model = engine_of(asks_for(("look", {"word": "a"})), answers(GOOD))
    turn = await engine.run(BILLER, "Invoice ACME.")
    assert (turn.outcome, turn.reason, turn.output) == (
        Outcome.FINISHED,
        EndReason.ANSWERED,
        Invoice(customer="ACME", total=5),
    )
    assert turn.require_output().customer == "ACME"
    assert turn.text == '{"customer": "ACME", "total": 5.0}'
    assert turn.tool_calls == 1  # the answer takes no budget
    assert [spec.name for spec in model.requests[0].tools] == ["look", "final_result"]
    assert model.requests[0].tool_choice == "required"


async def test_a_provider_with_a_format_is_asked_for_the_schema() -> None:
    model = NativeModel('{"customer": "ACME", "total": 5}')
    turn = await Engine(model=model).run(BILLER, "Invoice ACME.")
    assert turn.output == Invoice(customer="ACME", total=5)
    (request,) = model.requests
    assert request.output is not None
    assert request.output.schema["properties"]
    assert request.tools == ()


async def test_a_model_may_be_asked_in_words() -> None:
    engine, model = engine_of('```json\n{"customer": "ACME", "total": 5}\n```')
    turn = await engine.run(Agent(name="Biller", output_type=Invoice, output_mode="prompt"), "Invoice ACME.")
    assert turn.output == Invoice(customer="ACME", total=5)
    assert '"customer"' in model.requests[0].messages[0].text


@pytest.mark.parametrize("mode", ["tool", "native", "prompt"])
async def test_a_misfit_goes_back_to_the_model_with_the_mistake(mode: Literal["tool", "native", "prompt"]) -> None:
    wrong, right = ({"customer": "ACME", "total": "much"}, GOOD)
    lines: list[Line] = (
        [answers(wrong), answers(right)]
        if mode == "tool"
        else ['{"customer": "ACME", "total": "much"}', '{"customer": "ACME", "total": 5}']
    )
    engine, model = engine_of(*lines)
    turn = await engine.run(Agent(name="Biller", output_type=Invoice, output_mode=mode), "Invoice ACME.")
    assert (turn.steps, turn.output) == (2, Invoice(customer="ACME", total=5))
    check_pairing(model.requests[1].messages)
    retry_message = str(model.requests[1].messages[-1])
    assert "total: Input should be a valid number" in retry_message
    assert "much" in retry_message


async def test_turn_without_an_output_retry_fails_with_the_reason() -> None:
    engine, _ = engine_of("no", "no", "no", "no")
    turn = await engine.run(Agent(name="Biller", output_type=Invoice, output_retries=1), "Invoice ACME.")
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.FAILED, EndReason.INVALID_OUTPUT, 2)
    assert turn.output is None
    assert "final_result" in turn.error


async def test_repeated_wrong_answer_is_no_doom_loop() -> None:
    model = ScriptedModel(*[answers({"customer": "ACME", "total": "much"})] * 5)
    engine = Engine(model=model, limits=Limits(doom_compare="calls"))
    turn = await engine.run(Agent(name="Biller", output_type=Invoice, output_retries=4), "Invoice ACME.")
    assert (turn.reason, turn.steps) == (EndReason.INVALID_OUTPUT, 5)


async def test_conclusion_at_a_limit_is_text_without_output() -> None:
    engine, _ = engine_of("no", "I could not finish.")
    turn = await engine.run(Agent(name="Biller", output_type=Invoice, steps=1), "Invoice ACME.")
    assert (turn.outcome, turn.text, turn.output) == (Outcome.CAP_HIT, "I could not finish.", None)


async def test_the_other_calls_of_the_reply_run_before_the_turn_ends() -> None:
    reply = ModelResponse(
        calls=(*asks_for(("look", {"word": "a"})).calls, ResponseToolCall("final_result", GOOD, id="x"))
    )
    engine, _ = engine_of(reply)
    turn = await engine.run(BILLER, "Invoice ACME.")
    assert turn.output == Invoice(customer="ACME", total=5)
    assert "a: found" in str(turn.messages)


async def test_second_answer_in_a_reply_is_not_used() -> None:
    first, second = ({"customer": name, "total": 1} for name in ("A", "B"))
    engine, _ = engine_of(asks_for(("final_result", first), ("final_result", second)))
    turn = await engine.run(BILLER, "Invoice.")
    assert turn.output == Invoice(customer="A", total=1)
    assert "not used" in str(turn.messages)


async def test_a_validator_may_change_the_answer_or_ask_again() -> None:
    totals: list[float] = []

    def positive(context: TurnContext, invoice: Invoice) -> Invoice:
        totals.append(invoice.total)
        if invoice.total < 0:
            raise Retry(f"{context.agent}: the total is negative")
        return invoice.model_copy(update={"customer": invoice.customer.upper()})

    async def checked(context: TurnContext, invoice: Invoice) -> Invoice:
        assert context.turn_id
        return invoice

    agent = Agent(name="Biller", output_type=Invoice, output_validators=[positive, checked])
    engine, model = engine_of(answers({"customer": "a", "total": -1}), answers({"customer": "a", "total": 1}))
    turn = await engine.run(agent, "Invoice.")
    assert turn.output == Invoice(customer="A", total=1)
    assert totals == [-1, 1]
    assert "the total is negative" in str(model.requests[1].messages)


@pytest.mark.parametrize("value", [None, "two", -1, float("nan")])
async def test_validator_returning_no_answer_ends_the_turn_and_is_named(value: object) -> None:
    def forgets(*_: object) -> float:
        return value  # type: ignore[return-value]

    agent: Agent[object, float] = Agent(
        name="Biller", output_type=Annotated[float, Field(ge=0)], output_validators=[forgets]
    )
    engine, _ = engine_of(answers({"response": 2}))
    turn = await engine.run(agent, "Invoice.")
    assert (turn.reason, turn.output) == (EndReason.ENGINE_ERROR, None)
    assert turn.error.startswith("agent 'Biller': output validator 'forgets' returned ")


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "[" * 300 + "]" * 300])
async def test_unjournalable_answer_is_refused(text: str) -> None:
    agent = Agent(name="Biller", output_type=list[object] | float, output_mode="prompt")
    engine, model = engine_of(f'{{"response": {text}}}', '{"response": 4}')
    turn = await engine.run(agent, "Invoice.")
    assert (turn.output, turn.steps) == (4, 2)
    assert "Your reply was not accepted" in model.requests[1].messages[-1].text


class Keyed(BaseModel):
    """A model whose validator needs a key."""

    total: float

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: dict[str, float]) -> dict[str, float]:
        return {"total": data["sum"]}


@pytest.mark.parametrize("wrong", [{"total": 1}, {"sum": nan}])
async def test_answer_that_breaks_a_validator_is_asked_for_again(wrong: dict[str, JsonValue]) -> None:
    """As are the arguments of a tool; and a model of yours may pass NaN."""
    engine, model = engine_of(answers(wrong), answers({"sum": 2}))
    turn = await engine.run(Agent(name="Biller", output_type=Keyed), "Invoice.")
    assert "refused: the answer could not be validated: " in str(model.requests[1].messages[-1])
    assert turn.output == Keyed.model_validate({"sum": 2})


@pytest.mark.parametrize(
    ("type_", "answer", "value"),
    [
        (Point, {"x": 1, "y": 2}, Point(1, 2)),
        (Named, {"name": "a"}, {"name": "a"}),
        (list[Invoice], {"response": [GOOD]}, [Invoice(customer="ACME", total=5)]),
        (Literal["good", "bad"], {"response": "bad"}, "bad"),
        (Invoice | Point, {"response": {"x": 1, "y": 2}}, Point(1, 2)),
        (int, {"response": 4}, 4),
    ],
)
async def test_types_of_every_shape_are_answers(type_: type[object], answer: object, value: object) -> None:
    engine, _ = engine_of(answers(answer))
    turn = await engine.run(Agent(name="Biller", output_type=type_), "Go.")
    assert turn.output == value


class Aliased(BaseModel):
    n: int = Field(alias="theN")
    tags: list[str] = []


class Renamed(BaseModel):
    n: int = Field(validation_alias="theN")


class Written(BaseModel):
    n: int

    @field_serializer("n")
    def _write(self, value: int) -> str:
        return f"#{value}"


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    n: int

    @computed_field
    def twice(self) -> int:
        return self.n * 2


class Counted(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _count(cls, value: int) -> int:
        return value + 1


@dataclass(eq=False)
class Uncompared:
    n: int
    tags: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    ("type_", "data", "journaled"),
    [
        (Aliased, {"theN": 1}, '{"theN": 1, "tags": []}'),
        (list[Aliased], {"response": [{"theN": 1}]}, '[{"theN": 1, "tags": []}]'),
        (Renamed, {"theN": 1}, '{"theN": 1}'),
        (Written, {"n": 1}, '{"n": 1}'),
        (Computed, {"n": 1}, '{"n": 1}'),
        (Counted, {"n": 1}, '{"n": 1}'),
        (Uncompared, {"n": 1}, '{"n": 1, "tags": []}'),
    ],
)
async def test_answer_in_the_journal_reads_as_the_same_answer(
    type_: type[object], data: dict[str, JsonValue], journaled: str
) -> None:
    """Also of a type that writes what it does not read, or that changes what it reads."""
    agent = Agent(name="Biller", output_type=type_)
    engine, _ = engine_of(answers(data))
    turn = await engine.run(agent, "Go.")
    again = await engine.get(turn.id, agent=agent)
    value = TypeAdapter(type_).validate_python(data.get("response", data))
    assert repr(again.output) == repr(turn.output)
    assert type_ is Uncompared or turn.output == again.output == value
    assert turn.text == journaled


async def test_a_schema_alone_gives_plain_json() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    engine, _ = engine_of(answers({"n": "x"}), answers({"n": 1}))
    turn = await engine.run(Agent(name="Counter", output_schema=schema), "Count.")
    assert (turn.steps, turn.output) == (2, {"n": 1})


async def test_schema_with_a_dangling_reference_is_refused_before_the_turn() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}
    engine, _ = engine_of()
    with pytest.raises(ConfigError, match=r"agent 'Counter': output_schema: properties\.n\.\$ref: '#/\$defs/n'"):
        await engine.run(Agent(name="Counter", output_schema=schema), "Count.")
    assert not await engine.store.turns()


async def test_schema_that_nests_too_deep_is_refused_before_the_turn() -> None:
    schema: dict[str, JsonValue] = {"type": "integer"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    engine, _ = engine_of("Never asked.")
    with pytest.raises(ConfigError, match="agent 'Biller': output_schema nests too many"):
        await engine.run(Agent(name="Biller", output_schema=schema), "Invoice.")


async def test_deep_answer_for_a_schema_that_refers_to_itself_is_refused() -> None:
    tree: dict[str, JsonValue] = {"allOf": [{"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}}]}
    schema: dict[str, JsonValue] = {"type": "object", "$ref": "#/$defs/tree", "$defs": {"tree": {"anyOf": [tree]}}}
    deep: dict[str, JsonValue] = {}
    for _ in range(200):
        deep = {"a": deep}
    engine, model = engine_of(answers(deep), answers({}))
    turn = await engine.run(Agent(name="Biller", output_schema=schema), "Invoice.")
    assert "nests too many lists and objects" in str(model.requests[1].messages[-1])
    assert turn.output == {}


async def test_another_process_rebuilds_the_answer_without_the_validators() -> None:
    store, ran = MemoryStore(), list[object]()

    def watch(_: TurnContext, invoice: Invoice) -> Invoice:
        ran.append(invoice)
        return invoice

    agent = Agent(name="Biller", output_type=Invoice, output_validators=[watch])
    engine, _ = engine_of(answers(GOOD), store=store)
    turn = await engine.run(agent, "Invoice.")
    without = Engine(model=ScriptedModel(), tools=[look], store=store)
    assert (await without.get(turn.id)).output == {"customer": "ACME", "total": 5.0}
    again = Engine(model=ScriptedModel(), agents=[agent], tools=[look], store=store)
    assert (await again.get(turn.id)).output == Invoice(customer="ACME", total=5)
    assert (await again.attach(turn.id, agent).result()).output == Invoice(customer="ACME", total=5)
    assert len(ran) == 1


async def test_typed_answer_streams_the_known_part() -> None:
    model = NativeModel('{"customer": "ACME Inc of here", "total": 5}')
    async with Engine(model=model).stream(BILLER, "Invoice.") as events:
        deltas = [event async for event in events if isinstance(event, OutputDeltaEvent)]
    partial = [event.partial for event in deltas]
    assert {event.seq for event in deltas} == {2}, "the last fact is the step's beginning"
    assert {"customer": "ACME Inc"} in partial
    assert partial[-1] == {"customer": "ACME Inc of here", "total": 5}


async def test_half_a_surrogate_pair_in_an_answer_is_no_failure_of_the_engine() -> None:
    """JSON cannot hold it: the answer is refused, and a `?` replaces it in a text that fits."""
    model = NativeModel("\ud83d", '{"customer": "\ud83d", "total": 5}')
    async with Engine(model=model).stream(BILLER, "Invoice.") as events:
        (ended,) = [event async for event in events if isinstance(event, TurnEndedEvent)]
    assert (ended.outcome, ended.reason) == (Outcome.FINISHED, EndReason.ANSWERED)
    turn = await Engine(model=NativeModel('{"customer": "\ud83d", "total": 5}')).run(BILLER, "Invoice.")
    assert turn.output == Invoice(customer="?", total=5)


@pytest.mark.parametrize("limits", [{"steps": 0}, {"budget": 0}])
async def test_a_typed_agent_needs_a_step_and_a_call(limits: dict[str, int]) -> None:
    engine, _ = engine_of()
    agent = Agent.model_validate({"name": "Biller", "output_schema": {"type": "object"}, **limits})
    with pytest.raises(ConfigError, match="a typed answer needs a step and a tool call"):
        await engine.run(agent, "Invoice.")


async def test_wrong_output_type_is_refused_with_advice() -> None:
    agent = Agent(name="Counter", output_type=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(
        ConfigError, match=r"^agent 'Counter': output_type: 3 is not a type of data: give a pydantic model, "
    ):
        await Engine(model=ScriptedModel("x")).run(agent, "hi")


async def test_the_name_of_a_type_is_refused_in_code() -> None:
    agent = Agent(name="Counter", output_type="app.models:Invoice")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(ConfigError, match=r"'app\.models:Invoice' is a name: give the type itself"):
        await Engine(model=ScriptedModel("x")).run(agent, "hi")


async def test_abort_abandons_a_stubborn_validator() -> None:
    """It has the engine's grace to end."""
    go_on = anyio.Event()

    async def stubborn(context: TurnContext, invoice: Invoice) -> Invoice:
        await engine.abort(context.turn_id)
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        return invoice

    agent = Agent(name="Biller", output_type=Invoice, output_validators=[stubborn])
    engine, _ = engine_of(answers({"customer": "A", "total": 1}))
    with anyio.fail_after(60):
        turn = await engine.run(agent, "Invoice.")
    go_on.set()
    assert turn.outcome is Outcome.ABORTED
