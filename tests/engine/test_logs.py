"""The log of a turn: which record has which text and fields, and none with logging off."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.logs import FIELDS, JsonFormatter
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError
from turnwright.model.scripted import Line
from turnwright.privacy.secrets import Secrets
from turnwright_states import Cause

SECRET = "hunter2-0123456789"  # noqa: S105 (nobody's)
#: What `logging` itself gives every record: none of our fields may be called so.
OWN = set(vars(logging.makeLogRecord({})))


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    return f"the secret place is {place}"


async def run(*script: Line, steps: int = 5, agent: str = "Looker") -> TurnResult:
    async with Engine(model=ScriptedModel(*script), tools=[look]) as engine:
        return await engine.run(Agent(name=agent, steps=steps), "Look under the sofa")


def fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name in FIELDS}


class Kept(logging.Handler):
    """Keeps the records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """The records of this package, from DEBUG on."""
    log, handler = logging.getLogger("turnwright"), Kept()
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield handler.records
    log.setLevel(logging.NOTSET)
    log.removeHandler(handler)


@pytest.mark.anyio
async def test_info_logs_each_state_of_a_turn(records: list[logging.LogRecord]) -> None:
    turn = await run(asks_for(("look", {"place": "here"})), "Nothing.")
    infos = [(record.getMessage(), fields(record)) for record in records if record.levelno == logging.INFO]
    name = {"turn": turn.id}
    assert infos == [
        (f"turn {turn.id}: started, with at most 5 steps", name | {"step": 0, "state": "CHECK", "agent": "Looker"}),
        (f"turn {turn.id}: step 1 of at most 5", name | {"step": 1, "state": "STREAM"}),
        (f"turn {turn.id}: the model replied; 1 of 1 calls run", name | {"step": 1, "state": "TOOL_EXEC"}),
        (f"turn {turn.id}: step 2 of at most 5", name | {"step": 2, "state": "STREAM"}),
        (
            f"turn {turn.id}: ended: finished: answered",
            name | {"step": 2, "state": "FINISHED", "reason": "answered", "outcome": "finished"},
        ),
    ]


@pytest.mark.anyio
async def test_debug_logs_each_call(records: list[logging.LogRecord]) -> None:
    await run(asks_for(("look", {"place": "here"})), "Nothing.")
    about = [fields(record) for record in records if record.levelno == logging.DEBUG and hasattr(record, "call")]
    assert [(line["call"], line["state"], line["tool"]) for line in about[:1]] == [("call00001", "TOOL_EXEC", "look")]
    assert len(about) == 2, "one line for its start, one for its end"


@pytest.mark.anyio
async def test_reached_limit_is_the_reason_from_then_on(records: list[logging.LogRecord]) -> None:
    await run(asks_for(("look", {"place": "here"})), "I looked.", steps=1)
    reasons = [(fields(record)["state"], fields(record)["reason"]) for record in records if hasattr(record, "reason")]
    assert reasons == [("CONCLUDE", "step_cap"), ("CAP_HIT", "step_cap")]


@pytest.mark.anyio
async def test_failed_attempt_logs_the_cause_and_no_warning(
    records: list[logging.LogRecord],
) -> None:
    turn = await run(ModelError("no such model", cause=Cause.BAD_REQUEST))
    assert turn.outcome == "failed"
    assert [fields(record)["cause"] for record in records if hasattr(record, "cause")] == ["bad_request"]
    assert max(record.levelno for record in records) == logging.INFO


@pytest.mark.anyio
async def test_log_contains_no_text_of_models_tools_or_people(records: list[logging.LogRecord]) -> None:
    await run(asks_for(("look", {"place": "attic"}), ("made up\nERROR forged", {})), "The sofa is under the attic.")
    log_text = "\n".join(JsonFormatter().format(record) for record in records)
    assert len(records) > 5
    assert [word for word in ("attic", "sofa", "forged", "secret place") if word in log_text] == []


@pytest.mark.anyio
async def test_bug_is_logged_as_an_error_with_turn_and_state(records: list[logging.LogRecord]) -> None:
    def broken(_: object) -> str:
        raise RuntimeError("it broke")

    turn = await run(broken)
    (error,) = [record for record in records if record.levelno == logging.ERROR]
    assert error.getMessage() == f"turn {turn.id} failed in STREAM"
    assert fields(error) == {"turn": turn.id, "step": 1, "state": "STREAM"}
    assert "RuntimeError: it broke" in json.loads(JsonFormatter().format(error))["exception"]


@pytest.mark.anyio
async def test_info_logs_the_resumption_of_a_turn(records: list[logging.LogRecord]) -> None:
    @tool(needs_approval=True)
    async def pay() -> str:
        return "paid"

    async with Engine(model=ScriptedModel(asks_for(("pay", {})), "Paid."), tools=[pay]) as engine:
        turn = await engine.run(Agent(name="Payer"), "Pay")
        records.clear()
        await engine.resume(turn.id, {turn.interrupts[0].id: True})
    resumed = records[0]
    assert (resumed.getMessage(), fields(resumed)) == (
        f"turn {turn.id}: resumed in PAUSED, step 1",
        {"turn": turn.id, "step": 1, "state": "PAUSED"},
    )


@pytest.mark.anyio
async def test_failing_approval_check_is_logged_with_turn_and_call(
    records: list[logging.LogRecord],
) -> None:
    @tool(needs_approval=lambda amount: amount.typo)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    async with Engine(model=ScriptedModel(asks_for(("pay", {"amount": 1})), "It was refused."), tools=[pay]) as engine:
        turn = await engine.run(Agent(name="Payer"), "Pay")
    (warned,) = [record for record in records if record.levelno == logging.WARNING]
    assert fields(warned) == {"turn": turn.id, "call": "call00001", "tool": "pay"}


@pytest.mark.anyio
async def test_log_enabled_during_a_turn_shows_later_records(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("turnwright")

    def second(_: object) -> str:
        log.setLevel(logging.INFO)
        return "Nothing."

    try:
        await run(asks_for(("look", {"place": "here"})), second)
    finally:
        log.setLevel(logging.NOTSET)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["ended: finished: answered"]


class Broken(Kept):
    """A handler that raises."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        raise RuntimeError("the log is full")


@pytest.mark.anyio
async def test_failing_log_handler_does_not_change_the_turn(capsys: pytest.CaptureFixture[str]) -> None:
    log, broken = logging.getLogger("turnwright.journal.turn_journal"), Broken()
    log.addHandler(broken)
    log.setLevel(logging.DEBUG)
    try:
        turn = await run(asks_for(("look", {"place": "here"})), "Nothing.")
    finally:
        log.setLevel(logging.NOTSET)
        log.removeHandler(broken)
    assert (turn.outcome, turn.text) == ("finished", "Nothing.")
    assert len(broken.records) > 1
    assert "RuntimeError: the log is full" in capsys.readouterr().err


@pytest.mark.slow
def test_unconfigured_log_prints_nothing() -> None:
    """Neither a warning nor an error: the standard library would print those to stderr."""
    code = "import logging; from turnwright import Engine\n"
    code += "logging.getLogger('turnwright.journal.event_bus').error('an observer failed')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


@pytest.mark.slow
def test_log_module_is_not_loaded_with_an_engine() -> None:
    code = "import sys; from turnwright import Engine; print('turnwright.logs' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_field_names_do_not_collide_with_logging() -> None:
    assert set(FIELDS).isdisjoint(OWN | {"message", "asctime"})


def record(message: str, *args: object, **extra: Any) -> logging.LogRecord:  # noqa: ANN401 (as `extra` takes it)
    return logging.makeLogRecord({"name": "some.log", "levelname": "INFO", "msg": message, "args": args, **extra})


def raised(text: str) -> object:
    """Return `sys.exc_info` of an error that quotes a text."""
    try:
        int(text)
    except ValueError:
        return sys.exc_info()
    return None


def written(record: logging.LogRecord, formatter: JsonFormatter | None = None) -> dict[str, Any]:
    line = (formatter or JsonFormatter()).format(record)
    assert line.isascii()
    assert "\n" not in line
    entry: dict[str, Any] = json.loads(line)
    return entry


def test_line_is_a_json_object_with_time_level_logger_and_message() -> None:
    entry = written(record("step %d", 3))
    moment = datetime.fromisoformat(entry.pop("time"))
    assert moment.utcoffset() == timedelta(0)
    assert entry == {"level": "INFO", "logger": "some.log", "message": "step 3"}


def test_line_has_only_the_fields_of_the_record() -> None:
    entry = written(record("so", turn="t1", step=0, reason=None, colour="red"))
    assert {name: entry.get(name) for name in ("turn", "step", "reason", "colour")} == {
        "turn": "t1",
        "step": 0,
        "reason": None,
        "colour": None,
    }
    assert "reason" not in entry


def test_custom_fields_can_be_written() -> None:
    assert written(record("so", turn="t1", tenant="acme"), JsonFormatter(fields=["tenant"]))["tenant"] == "acme"


def test_any_text_stays_in_a_single_line() -> None:
    text = 'a "quoted"\nsecond line\x1b[31m\x7f\x9b \u2028 \U0001f600'
    assert JsonFormatter().format(record("%s", text)).isprintable()
    assert written(record("%s", text))["message"] == text


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    line = JsonFormatter().format(record("%s", "a\ud800", tool="\udc80b"))
    assert "\\ud" not in line
    assert (json.loads(line)["message"], json.loads(line)["tool"]) == ("a?", "?b")


def test_traceback_and_stack_are_text() -> None:
    entry = written(record("so", exc_info=raised("it broke"), stack_info="Stack (most recent call last): here"))
    assert entry["exception"].startswith("Traceback")
    assert "ValueError: invalid literal" in entry["exception"]
    assert entry["exception"].endswith("here")


def test_secrets_are_hidden_in_every_field() -> None:
    hiding = JsonFormatter(secrets=Secrets([SECRET, 'with "quotes"']))
    line = hiding.format(record('%s with "quotes"', SECRET, exc_info=raised(SECRET), tool=SECRET))
    assert SECRET not in line
    assert json.loads(line)["message"] == "*** ***"


def test_secret_hidden_by_a_filter_stays_hidden(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("somebody.else")
    with Secrets([SECRET]).hidden_in("somebody.else"):
        try:
            int(SECRET)
        except ValueError:
            log.exception("it failed")
    entry = written(caplog.records[0])
    assert "ValueError: invalid literal for int() with base 10: '***'" in entry["exception"]
