"""Facts: their payloads, their refusals, and their sizes (docs/rules.md#journal)."""

import json
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, structs
from pydantic import JsonValue

from turnwright_states import (
    CallStatus,
    Cause,
    Decision,
    EndReason,
    Finish,
    GivenResult,
    InterruptKind,
    InvalidJournalError,
    Limits,
    Outcome,
    Spent,
    Stall,
    State,
    ToolCall,
    Usage,
    facts,
)
from turnwright_states.fact import PAYLOAD_VERSION
from turnwright_states.fact_parser import MAX_NESTING, parse_fact
from turnwright_states.facts import KINDS, Fact
from turnwright_states.inputs import JsonObject

if TYPE_CHECKING:
    from .conftest import Begin

TEXT = st.text(max_size=8)
IDS = st.text("abc/-01", min_size=1, max_size=8)
COUNT = st.integers(0, 10**6)
NUMBER = st.floats(0, 1e9, allow_nan=False)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=2)
OBJECTS = st.lists(OBJECT, max_size=2).map(tuple)
REASON = st.sampled_from(EndReason)
ALSO = st.lists(REASON, max_size=3).map(tuple)
USAGE = st.none() | st.builds(
    Usage, input_tokens=COUNT, output_tokens=COUNT, cost=NUMBER, cached_tokens=COUNT, reasoning_tokens=COUNT
)
LIMITS = st.builds(
    Limits,
    steps=st.none() | st.integers(0, 300),
    concluding=st.sampled_from(("after", "within", "never")),
    tool_calls=st.none() | COUNT,
    tokens=st.none() | st.integers(1, 10**6),
    cost=st.none() | st.floats(0.01, 10),
    seconds=st.none() | st.floats(0.01, 1e6),
    doom_threshold=st.none() | st.integers(2, 9),
)
MOMENTS = st.datetimes().map(lambda at: f"{at.isoformat()}Z")
#: The verdicts of rules.
VERDICTS = st.lists(
    st.builds(facts.RuleVerdict, rule=IDS, broken=TEXT, by=st.lists(IDS, max_size=3).map(tuple), words=TEXT), max_size=2
).map(tuple)
LEASE = st.builds(facts.Lease, calls=st.none() | COUNT, tokens=st.none() | COUNT, cost=st.none() | NUMBER)
MADE = st.builds(
    facts.CallMade,
    id=IDS,
    name=TEXT,
    arguments=st.none() | OBJECT,
    raw=TEXT,
    provider_id=TEXT,
    key=TEXT,
    own_key=st.booleans(),
    refused=TEXT,
    invalid=st.booleans(),
    lease=st.none() | LEASE,
    output=st.booleans(),
    reaches=st.lists(TEXT, max_size=2).map(tuple),
)
GIVEN = st.builds(GivenResult, text=TEXT, error=st.booleans(), structured=st.none() | OBJECT, files=OBJECTS)
INTERRUPT = st.builds(
    facts.InterruptRecord,
    id=IDS,
    kind=st.sampled_from(InterruptKind),
    call=TEXT,
    tool=TEXT,
    question=TEXT,
    choices=st.lists(TEXT, max_size=3).map(tuple),
    grant=st.none() | TEXT,
    expires_at=st.none() | NUMBER,
    path=IDS,
    approvals=st.integers(1, 16),
    approved_by=st.lists(TEXT, max_size=2).map(tuple),
    otherwise=st.none() | GIVEN,
    kept=st.none() | OBJECT,
    schema=st.none() | OBJECT,
    restricted=st.booleans(),
    rules=VERDICTS,
)
#: The fields of each kind, beside those of every fact.
FIELDS: Final[dict[type[Fact], dict[str, st.SearchStrategy[object]]]] = {
    facts.TurnStarted: {
        "prompt": TEXT,
        "limits": LIMITS,
        "agent": OBJECT,
        "files": st.lists(OBJECT, max_size=2).map(tuple),
        "message_history": st.lists(OBJECT, max_size=2).map(tuple),
        "synthesis": st.booleans(),
        "parent_turn": st.none() | IDS,
        "parent_call": st.none() | IDS,
        "depth": st.integers(0, 3),
        "continue_from": st.none() | IDS,
        "forked_from": st.none() | IDS,
        "forked_at": st.none() | st.integers(1, 999),
        "forked_with": st.lists(TEXT, max_size=2).map(tuple),
        "session": st.none() | TEXT,
        "model": TEXT,
        "metadata": OBJECT,
        "chart": COUNT,
        "model_settings": OBJECT,
        "hooks": st.lists(TEXT, max_size=2).map(tuple),
        "guardrails": st.lists(TEXT, max_size=2).map(tuple),
        "request": st.dictionaries(TEXT, TEXT, max_size=2),
        "restricted": st.booleans(),
        "rules": OBJECTS,
        "past": OBJECT,
        "client_tools": OBJECTS,
    },
    facts.StepStarted: {
        "number": COUNT,
        "nudge": st.booleans(),
        "stall": st.none() | st.sampled_from(Stall),
        "started_at": st.none() | MOMENTS,
    },
    facts.ModelReplied: {
        "text": TEXT,
        "reasoning": TEXT,
        "reasoning_details": st.lists(OBJECT, max_size=2).map(tuple),
        "calls": st.lists(MADE, max_size=2).map(tuple),
        "finish": st.sampled_from(Finish),
        "usage": USAGE,
    },
    facts.RequestPrepared: {
        "instructions": st.none() | TEXT,
        "tools": st.none() | st.lists(TEXT, max_size=2).map(tuple),
        "settings": OBJECT,
        "append": st.lists(TEXT, max_size=2).map(tuple),
        "model": st.none() | TEXT,
        "decisions": OBJECTS,
    },
    facts.Reviewed: {
        "refused": st.booleans(),
        "retry": st.booleans(),
        "feedback": TEXT,
        "answer": st.none() | IDS,
        "output": JSON,
        "decisions": OBJECTS,
        "rules": VERDICTS,
    },
    facts.CompactionStarted: {"tokens": COUNT},
    facts.Compacted: {"text": TEXT, "cleared": st.booleans(), "kept": COUNT, "usage": USAGE},
    facts.AttemptFailed: {
        "attempt": COUNT,
        "cause": st.sampled_from(Cause),
        "retry": st.booleans(),
        "message": TEXT,
        "partial": TEXT,
        "usage": USAGE,
        "wait": NUMBER,
    },
    facts.CallStarted: {
        "call": IDS,
        "attempt": COUNT,
        "child": st.none() | IDS,
        "arguments": st.none() | OBJECT,
        "decisions": OBJECTS,
        "rules": VERDICTS,
    },
    facts.CallSettled: {
        "call": IDS,
        "status": st.sampled_from(CallStatus),
        "result": TEXT,
        "structured": JSON,
        "files": st.lists(OBJECT, max_size=2).map(tuple),
        "spent": st.none() | st.builds(Spent, calls=COUNT, tokens=COUNT, cost=NUMBER, rules=st.none() | OBJECT),
        "final": st.booleans(),
        "retry": st.booleans(),
        "decisions": OBJECTS,
        "key": TEXT,
        "rules": VERDICTS,
        "arguments": st.none() | OBJECT,
    },
    facts.CallWaiting: {
        "call": IDS,
        "interrupt": INTERRUPT,
        "more": st.lists(INTERRUPT, max_size=2).map(tuple),
        "changed": st.none() | OBJECT,
        "decisions": OBJECTS,
    },
    facts.Paused: {"interrupt": st.none() | INTERRUPT},
    facts.Synthesized: {"text": st.none() | TEXT},
    facts.Answered: {
        "interrupt": IDS,
        "decision": st.sampled_from(Decision),
        "text": TEXT,
        "grant": st.none() | TEXT,
        "always_for": st.lists(TEXT, max_size=2).map(tuple),
        "arguments": st.none() | OBJECT,
        "given": st.none() | GIVEN,
        "by": TEXT,
        "via": TEXT,
        "at": st.none() | st.floats(0, 4e9),
        "always": st.booleans(),
    },
    facts.StepFinished: {
        "number": COUNT,
        "usage": st.builds(Usage, input_tokens=COUNT, output_tokens=COUNT, cost=NUMBER),
        "seconds": NUMBER,
    },
    facts.Stopping: {"reason": REASON, "also_reached": ALSO, "partial": TEXT, "usage": USAGE},
    facts.MessageAdded: {"text": TEXT},
    facts.Concluded: {
        "text": st.none() | TEXT,
        "refused": st.lists(TEXT, max_size=2).map(tuple),
        "usage": USAGE,
        "retry": st.booleans(),
    },
    facts.TurnEnded: {
        "outcome": st.sampled_from(Outcome),
        "reason": REASON,
        "also_reached": ALSO,
        "partial": TEXT,
        "undelivered": st.lists(TEXT, max_size=2).map(tuple),
        "error": TEXT,
        "usage": USAGE,
        "guardrail": st.none() | st.builds(facts.TrippedGuardrail, name=TEXT, message=TEXT, metadata=OBJECT),
        "unmet": st.lists(TEXT, max_size=2).map(tuple),
    },
    facts.Notice: {"limit": TEXT, "used": NUMBER, "of": NUMBER},
}
FACTS = st.one_of(
    [
        st.builds(
            kind, elapsed=NUMBER, state=st.sampled_from(State), hash=st.text("0123456789abcdef", max_size=8), **own
        )
        for kind, own in FIELDS.items()
    ]
)


def test_every_kind_is_generated_with_all_fields() -> None:
    """So that a new kind, or a new field, is part of the tests below."""
    assert set(FIELDS) == set(KINDS.values())
    for kind, own in FIELDS.items():
        assert set(kind.__struct_fields__) == {*own, "elapsed", "state", "hash"}, kind


def test_kind_equals_the_class_name() -> None:
    for name, kind in KINDS.items():
        assert name.replace("_", "") == kind.__name__.lower()
        assert kind.kind == name


@given(FACTS)
def test_every_fact_survives_a_payload_round_trip(fact: Fact) -> None:
    payload = fact.payload()
    back = parse_fact(fact.kind, payload, 1)
    assert type(back) is type(fact)
    assert back == fact
    assert back.payload() == payload


@given(FACTS)
def test_payload_is_a_single_json_object_with_a_version(fact: Fact) -> None:
    payload = fact.payload()
    assert json.loads(payload)["v"] == PAYLOAD_VERSION == 1
    assert "\n" not in payload


@given(LIMITS)
def test_turn_started_contains_all_limits(limits: Limits) -> None:
    """A later release may have other defaults, and must not change what this turn was allowed."""
    started = facts.TurnStarted(elapsed=0, state=State.CHECK, prompt="x", limits=limits, chart=1)
    assert set(json.loads(started.payload())["limits"]) == set(Limits.model_fields)


def test_turn_started_omits_empty_files_and_agent_limits() -> None:
    """The agent's own limits are not part of it."""
    agent: JsonObject = {"name": "Tidier", "files": [], "more": {"name": "x", "files": []}}
    started = facts.TurnStarted(0.0, State.CHECK, prompt=',"files":[]', limits=Limits(), agent=agent, chart=1)
    payload = json.loads(started.payload())
    assert "files" not in payload
    assert (payload["agent"], payload["prompt"]) == (agent, ',"files":[]')
    assert json.loads(structs.replace(started, files=({},)).payload())["files"] == [{}]
    assert "model_settings" not in payload
    configured = structs.replace(started, model_settings={"seed": 1})
    assert json.loads(configured.payload())["model_settings"] == {"seed": 1}
    assert "files" not in json.loads(configured.payload())


def test_other_facts_omit_empty_defaults() -> None:
    payload = facts.CallSettled(elapsed=1.5, state=State.TOOL_EXEC, call="call00001").payload()
    assert json.loads(payload) == {"v": 1, "elapsed": 1.5, "state": "TOOL_EXEC", "call": "call00001"}


# Half a surrogate pair is replaced where it is written: nobody can read it back.
ANY_TEXT: Final = st.text(st.characters() | st.sampled_from("\ud800\udfff"), max_size=4)


def plain(value: object) -> JsonValue:  # noqa: PLR0911 (one case a type: flat)
    """A value of a fact as JSON, without the fields of a fact that are at their defaults."""
    match value:
        case facts.TurnStarted():
            whole = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
            left_out = (
                *("files", "model_settings", "forked_with", "hooks", "guardrails", "request", "restricted"),
                *("rules", "past", "client_tools"),
            )
            return {name: entry for name, entry in whole.items() if entry or name not in left_out}
        case Struct():
            defaults = {field.name: field.default for field in structs.fields(value)}
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return {name: plain(entry) for name, entry in fields.items() if entry != defaults[name]}
        case Limits():
            return dict(value)
        case tuple() | list():
            return [plain(entry) for entry in value]
        case dict():
            return {name: plain(entry) for name, entry in value.items()}
        case StrEnum():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"{value!r} is not JSON")


@given(FACTS)
def test_payload_equals_plain_json_of_non_default_fields(fact: Fact) -> None:
    """Field by field in their order, without spaces. Only a large or a small number may be written in another way."""
    fields = plain(fact)
    assert isinstance(fields, dict)
    expected = json.dumps({"v": PAYLOAD_VERSION, **fields}, ensure_ascii=False, separators=(",", ":"))
    assert respelled(fact.payload()) == respelled(expected)


def respelled(payload: str) -> str:
    """The JSON with its numbers spelled in one way: 1e-07 is 1e-7, and 0.00001 is 1e-5."""
    return json.dumps(json.loads(payload), ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (10**30, str(10**30)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (float("nan"), "null"),
        (float("inf"), "null"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        ('é\u2028\x00"/', '"é\u2028\\u0000\\"/"'),
        ({"a": [1, {"b": None}], "": True}, '{"a":[1,{"b":null}],"":true}'),
        (("x", 1), '["x",1]'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        ("\ud83d", '"?"'),
        ({"\ud83d": 10**30}, '{"?":1000000000000000000000000000000}'),
    ],
)
def test_any_json_is_written(value: JsonValue, expected: str) -> None:
    fact = facts.CallSettled(1.0, State.TOOL_EXEC, call="c", structured=value)
    assert fact.payload() == f'{{"v":1,"elapsed":1.0,"state":"TOOL_EXEC","call":"c","structured":{expected}}}'


def test_non_json_value_is_not_written() -> None:
    fact = facts.CallSettled(1.0, State.TOOL_EXEC, call="c", structured=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="object is not JSON"):
        fact.payload()


@given(ANY_TEXT, ANY_TEXT)
def test_unencodable_text_is_written_with_question_marks(text: str, key: str) -> None:
    fact = facts.ModelReplied(1.0, State.STREAM, text=text, reasoning_details=({key: [text]},))
    back = parse_fact(fact.kind, fact.payload())
    mended, mended_key = (raw.encode(errors="replace").decode() for raw in (text, key))
    assert back == structs.replace(fact, text=mended, reasoning_details=({mended_key: [mended]},))


def test_computed_zero_is_omitted_as_a_default() -> None:
    failed = facts.AttemptFailed(1.0, State.STREAM, attempt=1, cause=Cause.TIMEOUT, wait=float("0"))
    notice = facts.Notice(1.0, State.STREAM, limit="usage_unknown", used=0, of=float("0"))
    assert '"wait"' not in failed.payload()
    assert notice.payload() == '{"v":1,"elapsed":1.0,"state":"STREAM","limit":"usage_unknown"}'


def test_used_amount_is_written_as_a_fraction() -> None:
    notice = facts.Notice(1.0, State.STREAM, limit="steps", used=4, of=5)
    assert notice.payload().endswith('"used":4.0,"of":5.0}')


@given(FACTS)
def test_fact_as_data_equals_the_payload(fact: Fact) -> None:
    """But for the version, and for empty files, settings, changes, hooks, guardrails and digests."""
    data = fact.to_json()
    payload = json.loads(fact.payload())
    assert payload.pop("v") == PAYLOAD_VERSION
    empty: dict[str, JsonValue] = {"model_settings": {}, "request": {}, "restricted": False, "past": {}}
    left_out = empty | {name: [] for name in ("files", "forked_with", "hooks", "guardrails", "rules", "client_tools")}
    assert data == (left_out if isinstance(fact, facts.TurnStarted) else {}) | payload


@given(FACTS)
def test_fact_cannot_be_changed(fact: Fact) -> None:
    for name in fact.__struct_fields__:
        with pytest.raises(AttributeError, match="immutable"):
            setattr(fact, name, None)


# What cannot be read.


@given(FACTS)
def test_plain_and_fast_parsers_agree(fact: Fact) -> None:
    """The quick one is for payloads as they are written here: of any other spacing and order it is not tried."""
    fields = json.loads(fact.payload())
    assert parse_fact(fact.kind, json.dumps(fields)) == fact
    assert parse_fact(fact.kind, json.dumps(dict(reversed(fields.items())))) == fact


@pytest.mark.parametrize(("length", "shown_kind"), [(58, f"'{58 * 'k'}'"), (59, f"'{59 * 'k'}...")])
def test_long_unknown_kind_is_cut_in_the_message(length: int, shown_kind: str) -> None:
    """At 60 characters, with its quotes."""
    with pytest.raises(InvalidJournalError) as caught:
        parse_fact(length * "k", "{}", 1)
    assert f"its kind {shown_kind} is unknown" in str(caught.value)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(
        InvalidJournalError, match="fact 7 of the journal: its kind 'steps_started' is unknown"
    ) as caught:
        parse_fact("steps_started", "{}", 7)
    assert caught.value.seq == 7


@pytest.mark.parametrize("version", ["2", "0", '"1"', "null", "[1]"])
def test_another_version_is_refused(version: str) -> None:
    payload = f'{{"v":{version},"elapsed":0,"state":"STREAM","number":1}}'
    with pytest.raises(
        InvalidJournalError, match=r"fact 3 of the journal: its payload has version .*, and this release reads 1"
    ):
        parse_fact("step_started", payload, 3)


def test_payload_without_a_version_is_refused() -> None:
    with pytest.raises(InvalidJournalError, match="version None"):
        parse_fact("step_started", '{"elapsed":0,"state":"STREAM","number":1}', 3)


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ('{"v":1,"elapsed":0.0,"state":"STREAM","number":1,"number":2}', "number"),
        ('{"v":1,"elapsed":0.0,"state":"STREAM","number":1,"number":1}', "number"),
        ('{"v":1,"elapsed":0.0,"state":"STREAM","\\u006eumber":1,"number":1}', "number"),
        ('{"v":1,"v":1,"elapsed":0.0,"state":"STREAM","number":1}', "v"),
        ('{ "v":1,"elapsed":0.0,"state":"STREAM","state":"STREAM","number":1}', "state"),
    ],
)
def test_duplicate_name_is_refused(payload: str, name: str) -> None:
    """Readers of JSON differ in which of the two they take."""
    with pytest.raises(
        InvalidJournalError, match=f"fact 3 of the journal: its payload has '{name}' twice in one object"
    ):
        parse_fact("step_started", payload, 3)


def test_duplicate_name_inside_data_is_refused() -> None:
    """In data that the machine only keeps, too; and one name in two objects is not a repetition."""
    head = '{"v":1,"elapsed":0.0,"state":"TOOL_EXEC","call":"call00001","structured":[{"a":1},'
    assert parse_fact("call_settled", head + '{"a":1,"b":2}]}').kind == "call_settled"
    with pytest.raises(InvalidJournalError, match="its payload has 'a' twice in one object"):
        parse_fact("call_settled", head + '{"b":{"a":1,"c":2,"a":1}}]}')


@pytest.mark.parametrize("at", ["", "2026-11-30", "2026-11-30T02:13:20+01:00", "2026-11-30T02:13:20", 0.5])
def test_step_start_outside_utc_is_refused(at: object) -> None:
    payload = json.dumps({"v": 1, "elapsed": 0, "state": "STREAM", "number": 1, "started_at": at})
    with pytest.raises(InvalidJournalError, match="its payload does not fit step_started: started_at"):
        parse_fact("step_started", payload)


@pytest.mark.parametrize("payload", ["", "{", "null", "1", '"x"', "[]", '[{"v":1}]', "NaN", "{'v': 1}"])
def test_payload_other_than_an_object_is_refused(payload: str) -> None:
    with pytest.raises(InvalidJournalError, match="fact 4 of the journal: its payload is not a JSON object"):
        parse_fact("step_started", payload, 4)


@pytest.mark.parametrize(
    ("kind", "changed", "field"),
    [
        ("attempt_failed", {"attempt": 1, "cause": "timeout", "wait": -0.5}, "wait"),
        ("attempt_failed", {"attempt": 1, "cause": "timeout", "wait": float("nan")}, "wait"),
        ("attempt_failed", {"attempt": 1, "cause": "timeout", "wait": float("inf")}, "wait"),
        ("notice", {"limit": "steps", "used": -1, "of": 5}, "used"),
        ("notice", {"limit": "steps", "used": 1, "of": float("nan")}, "of"),
        ("notice", {"limit": "steps", "used": 10**400}, "used"),
        ("step_started", {"number": "1"}, "number"),
        ("step_started", {"number": 1.5}, "number"),
        ("step_started", {"nudge": "yes"}, "nudge"),
        ("step_finished", {"usage": {}, "seconds": None}, "seconds"),
        ("step_finished", {"usage": None, "seconds": 1}, "usage"),
        ("step_finished", {"usage": {"cost": float("inf")}, "seconds": 1}, "usage.cost"),
        ("step_finished", {"usage": {"tokens": 1}, "seconds": 1}, "usage.tokens"),
        ("call_settled", {"call": "c", "spent": {"calls": -1}}, "spent.calls"),
        ("call_settled", {"call": "c", "files": [{}, 1]}, "files.1"),
        ("model_replied", {"calls": [{"id": "c", "name": "x", "lease": {"calls": "8"}}]}, "calls.0.lease.calls"),
        ("model_replied", {"calls": [{"id": "c", "name": "x", "nom": 1}]}, "calls.0.nom"),
        ("turn_ended", {"outcome": "failed", "reason": "crashed", "also_reached": ["tokens", "x"]}, "also_reached.1"),
        ("turn_ended", {"outcome": "failed", "reason": "crashed", "undelivered": "abc"}, "undelivered"),
        ("turn_started", {"prompt": "x", "chart": 1, "limits": {"ceiling": 201}}, "limits"),
        ("model_replied", {"calls": [{"id": "c", "name": "x"}] * 513}, "calls"),
        ("concluded", {"refused": ["x"] * 513}, "refused"),
        ("step_started", {"number": "one"}, "number"),
        ("step_started", {"number": None}, "number"),
        ("step_started", {"numbr": 1}, "numbr"),
        ("step_started", {"state": "DREAM"}, "state"),
        ("step_started", {"elapsed": "long"}, "elapsed"),
        ("attempt_failed", {"attempt": 1, "cause": "weather"}, "cause"),
        ("model_replied", {"calls": [{"id": "call00001"}]}, "calls.0.name"),
        ("model_replied", {"usage": {"input_tokens": -1}}, "usage.input_tokens"),
        ("turn_ended", {"reason": "answered"}, "outcome"),
        ("call_waiting", {"call": "call00001", "interrupt": {"id": "x", "kind": "coffee"}}, "interrupt.kind"),
        ("turn_started", {"prompt": "x", "chart": 1, "limits": {"steps": -1}}, "limits.steps"),
        ("turn_started", {"prompt": "x", "chart": 1}, "limits"),
        ("step_started", {"a\nb": 1}, "a\nb"),
    ],
)
def test_payload_of_another_shape_is_refused(kind: str, changed: dict[str, object], field: str) -> None:
    """The message names the fact and the field."""
    fields: dict[str, object] = {"v": 1, "elapsed": 0, "state": "STREAM"}
    if kind in {"step_started", "step_finished"}:
        fields["number"] = 1
    with pytest.raises(
        InvalidJournalError, match=f"fact 5 of the journal: its payload does not fit {kind}: {field}: "
    ) as caught:
        parse_fact(kind, json.dumps(fields | changed), 5)
    assert caught.value.seq == 5


@pytest.mark.parametrize("limits", [3, None, [], "x"])
def test_limits_other_than_an_object_are_refused_as_limits(limits: object) -> None:
    fields = {"v": 1, "elapsed": 0, "state": "CHECK", "prompt": "x", "chart": 1, "limits": limits}
    with pytest.raises(InvalidJournalError, match=r"limits: Input should be a valid dictionary or instance of Limits$"):
        parse_fact("turn_started", json.dumps(fields))


# What they weigh.


def test_two_call_step_takes_at_most_1_kb_besides_texts(begin: "Begin") -> None:
    """With times, ids of a provider, keys, hashes and usage with a price: all but the names and arguments of calls."""
    turn = begin(doom_threshold=None, tool_calls=None)
    tool_calls = [
        ToolCall(name="read_file", arguments={"path": f"src/{name}.py"}, provider_id=f"call_{name * 24}")
        for name in ("a", "b")
    ]
    texts = sum(len(f"{call.name}{json.dumps(call.arguments)}") for call in tool_calls)
    for number in range(1, 150):
        before = len(turn.facts)
        turn.clock = 123.456789 * number
        turn.reply(*tool_calls, usage=Usage(input_tokens=123456, output_tokens=1234, cost=0.012345))
        turn.settle()
        step = turn.facts[before:]
        calls = ["call_started", "call_settled"] * 2
        assert [fact.kind for fact in step] == ["model_replied", *calls, "step_finished", "step_started"]
        assert sum(len(fact.payload()) for fact in step) - texts <= 1000


@pytest.mark.parametrize("value", [None, b"\xff", 1.5, 2**70, "", ["turn_started"], {}])
def test_non_fact_in_a_store_row_is_refused(value: object) -> None:
    """Stores read what databases hold, and these hold anything."""
    for kind, payload in ((value, "{}"), ("turn_started", value), (value, value)):
        with pytest.raises(InvalidJournalError, match=r"fact 7 of the journal: its (kind|payload)"):
            parse_fact(kind, payload, 7)
    if not isinstance(value, str):
        with pytest.raises(InvalidJournalError) as caught:
            parse_fact("turn_started", value, 7)
        assert str(caught.value) == f"fact 7 of the journal: its payload {value!r} is not text"


@pytest.mark.parametrize("text", [r'"\ud800"', '"\udfff"'])
def test_half_a_surrogate_pair_in_a_payload_is_refused(text: str) -> None:
    """As an escape or not: nobody could show it, or write it again."""
    payload = f'{{"v":1,"elapsed":0.0,"state":"STREAM","text":{text}}}'
    with pytest.raises(InvalidJournalError, match="fact 7 of the journal: its payload holds half a surrogate pair"):
        parse_fact("message_added", payload, 7)


@pytest.mark.parametrize(("deep", "begin"), [("[", '"a":'), ('{"a":', '"[{":')])
def test_deep_nesting_is_refused_at_any_stack_depth(deep: str, begin: str) -> None:
    """The bound is a number of lists and objects, and brackets inside of texts are none."""
    shut = "]" if deep == "[" else "}"

    def payload(levels: int) -> str:
        inner = f"{deep * levels}1{shut * levels}"
        texts = json.dumps(["[" * MAX_NESTING, '"{"' * MAX_NESTING], separators=(",", ":"))
        return f'{{"v":1,"elapsed":0.0,"state":"TOOL_EXEC","call":"c","structured":{{"t":{texts},{begin}{inner}}}}}'

    assert parse_fact("call_settled", payload(MAX_NESTING - 2)).payload() == payload(MAX_NESTING - 2)
    assert parse_fact("call_settled", f" {payload(MAX_NESTING - 2)}") == parse_fact("call_settled", payload(298))
    for levels in (MAX_NESTING - 1, 600, 100_000):
        with pytest.raises(
            InvalidJournalError, match="fact 7 of the journal: its payload is nested too deeply: more than 300"
        ):
            parse_fact("call_settled", payload(levels), 7)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_non_json_number_is_refused(number: str) -> None:
    payload = f'{{"v":1,"elapsed":{number},"state":"STREAM","text":"hi"}}'
    with pytest.raises(InvalidJournalError) as caught:
        parse_fact("message_added", payload, 7)
    assert str(caught.value).startswith("fact 7 of the journal: its payload ")
    assert str(caught.value).endswith("holds a number that JSON does not have, or is nested too deeply")
