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
    log, kept = logging.getLogger("turnwright"), Kept()
    log.addHandler(kept)
    log.setLevel(logging.DEBUG)
    yield kept.records
    log.setLevel(logging.NOTSET)
    log.removeHandler(kept)


@pytest.mark.anyio
async def test_info_tells_each_state_that_a_turn_comes_to(records: list[logging.LogRecord]) -> None:
    turn = await run(asks_for(("look", {"place": "here"})), "Nothing.")
    told = [(one.getMessage(), fields(one)) for one in records if one.levelno == logging.INFO]
    name = {"turn": turn.id}
    assert told == [
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
async def test_debug_tells_each_call(records: list[logging.LogRecord]) -> None:
    await run(asks_for(("look", {"place": "here"})), "Nothing.")
    about = [fields(one) for one in records if one.levelno == logging.DEBUG and hasattr(one, "call")]
    assert [(one["call"], one["state"], one["tool"]) for one in about[:1]] == [("call00001", "TOOL_EXEC", "look")]
    assert len(about) == 2, "one line for its start, one for its end"


@pytest.mark.anyio
async def test_a_limit_that_was_reached_is_the_reason_from_there_on(records: list[logging.LogRecord]) -> None:
    await run(asks_for(("look", {"place": "here"})), "I looked.", steps=1)
    reasons = [(fields(one)["state"], fields(one)["reason"]) for one in records if hasattr(one, "reason")]
    assert reasons == [("CONCLUDE", "step_cap"), ("CAP_HIT", "step_cap")]


@pytest.mark.anyio
async def test_a_failed_attempt_names_its_cause_and_a_failed_turn_is_no_warning(
    records: list[logging.LogRecord],
) -> None:
    turn = await run(ModelError("no such model", cause=Cause.BAD_REQUEST))
    assert turn.outcome == "failed"
    assert [fields(one)["cause"] for one in records if hasattr(one, "cause")] == ["bad_request"]
    assert max(one.levelno for one in records) == logging.INFO


@pytest.mark.anyio
async def test_no_line_holds_what_a_model_a_tool_or_a_person_wrote(records: list[logging.LogRecord]) -> None:
    await run(asks_for(("look", {"place": "attic"}), ("made up\nERROR forged", {})), "The sofa is under the attic.")
    written = "\n".join(JsonFormatter().format(one) for one in records)
    assert len(records) > 5
    assert [word for word in ("attic", "sofa", "forged", "secret place") if word in written] == []


@pytest.mark.anyio
async def test_a_bug_is_an_error_with_its_turn_and_state(records: list[logging.LogRecord]) -> None:
    def broken(_: object) -> str:
        raise RuntimeError("it broke")

    turn = await run(broken)
    (error,) = [one for one in records if one.levelno == logging.ERROR]
    assert error.getMessage() == f"turn {turn.id} failed in STREAM"
    assert fields(error) == {"turn": turn.id, "step": 1, "state": "STREAM"}
    assert "RuntimeError: it broke" in json.loads(JsonFormatter().format(error))["exception"]


@pytest.mark.anyio
async def test_info_tells_where_a_turn_goes_on(records: list[logging.LogRecord]) -> None:
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
async def test_an_approval_check_that_raises_is_told_of_with_its_turn_and_call(
    records: list[logging.LogRecord],
) -> None:
    @tool(needs_approval=lambda amount: amount.typo)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    async with Engine(model=ScriptedModel(asks_for(("pay", {"amount": 1})), "It was refused."), tools=[pay]) as engine:
        turn = await engine.run(Agent(name="Payer"), "Pay")
    (warned,) = [one for one in records if one.levelno == logging.WARNING]
    assert fields(warned) == {"turn": turn.id, "call": "call00001", "tool": "pay"}


@pytest.mark.anyio
async def test_who_switches_the_log_on_while_a_turn_runs_sees_it_go_on(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("turnwright")

    def second(_: object) -> str:
        log.setLevel(logging.INFO)
        return "Nothing."

    try:
        await run(asks_for(("look", {"place": "here"})), second)
    finally:
        log.setLevel(logging.NOTSET)
    assert [one.getMessage().partition(": ")[2] for one in caplog.records] == ["ended: finished: answered"]


class Broken(Kept):
    """A handler that raises."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        raise RuntimeError("the log is full")


@pytest.mark.anyio
async def test_a_handler_that_raises_changes_no_turn(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_program_that_configures_no_log_sees_none() -> None:
    """Neither a warning nor an error: the standard library would print those to stderr."""
    code = "import logging; from turnwright import Engine\n"
    code += "logging.getLogger('turnwright.journal.event_bus').error('an observer failed')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_what_says_it_in_words_is_loaded_only_where_somebody_listens() -> None:
    late = "('turnwright.logs', 'turnwright.journal.turn_log')"
    code = f"import sys; from turnwright import Engine; print([m for m in {late} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_no_field_is_called_as_one_of_logging_itself() -> None:
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


def written(one: logging.LogRecord, formatter: JsonFormatter | None = None) -> dict[str, Any]:
    line = (formatter or JsonFormatter()).format(one)
    assert line.isascii()
    assert "\n" not in line
    entry: dict[str, Any] = json.loads(line)
    return entry


def test_a_line_is_one_json_object_with_time_level_logger_and_message() -> None:
    entry = written(record("step %d", 3))
    moment = datetime.fromisoformat(entry.pop("time"))
    assert moment.utcoffset() == timedelta(0)
    assert entry == {"level": "INFO", "logger": "some.log", "message": "step 3"}


def test_a_line_has_the_fields_that_the_record_has_and_no_others() -> None:
    entry = written(record("so", turn="t1", step=0, reason=None, colour="red"))
    assert {name: entry.get(name) for name in ("turn", "step", "reason", "colour")} == {
        "turn": "t1",
        "step": 0,
        "reason": None,
        "colour": None,
    }
    assert "reason" not in entry


def test_fields_of_ones_own_can_be_written_too() -> None:
    assert written(record("so", turn="t1", tenant="acme"), JsonFormatter(fields=["tenant"]))["tenant"] == "acme"


def test_whatever_text_there_is_stays_in_its_line() -> None:
    text = 'a "quoted"\nsecond line\x1b[31m\x7f\x9b \u2028 \U0001f600'
    assert JsonFormatter().format(record("%s", text)).isprintable()
    assert written(record("%s", text))["message"] == text


def test_half_a_surrogate_pair_which_strict_readers_refuse_is_a_question_mark() -> None:
    line = JsonFormatter().format(record("%s", "a\ud800", tool="\udc80b"))
    assert "\\ud" not in line
    assert (json.loads(line)["message"], json.loads(line)["tool"]) == ("a?", "?b")


def test_a_traceback_is_text_and_a_stack_too() -> None:
    entry = written(record("so", exc_info=raised("it broke"), stack_info="Stack (most recent call last): here"))
    assert entry["exception"].startswith("Traceback")
    assert "ValueError: invalid literal" in entry["exception"]
    assert entry["exception"].endswith("here")


def test_secrets_are_hidden_wherever_they_stand() -> None:
    hiding = JsonFormatter(secrets=Secrets([SECRET, 'with "quotes"']))
    line = hiding.format(record('%s with "quotes"', SECRET, exc_info=raised(SECRET), tool=SECRET))
    assert SECRET not in line
    assert json.loads(line)["message"] == "*** ***"


def test_what_a_filter_hid_stays_hidden(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("somebody.else")
    with Secrets([SECRET]).hidden_in("somebody.else"):
        try:
            int(SECRET)
        except ValueError:
            log.exception("it failed")
    entry = written(caplog.records[0])
    assert "ValueError: invalid literal for int() with base 10: '***'" in entry["exception"]
