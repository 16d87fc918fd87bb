"""Results are equal for the doom-loop detector if they differ in noise alone."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright_states import (
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    Limits,
    ModelRepliedInput,
    StartedInput,
    SteeredInput,
    ToolCall,
    TurnMachine,
)
from turnwright_states.call import Call
from turnwright_states.facts import CallSettled, Fact
from turnwright_states.replay import replay
from turnwright_states.result_key import (
    SHORT,
    checksum,
    compared_text,
    result_key,
    without_noise,
)
from turnwright_states.turn import fold
from turnwright_states.verdict import Verdict

SAME = [
    ("done at 2026-11-27T12:00:01.250Z", "done at 2026-11-27T12:07:59Z"),
    ("[2026-11-27 12:00:01,250] ok", "[2026-11-27 13:00:01,999] ok"),
    ("12:00:01 ready", "23:59:59.5 ready"),
    ("-rw-r--r-- 1 me 7 Nov 27 12:25 a", "-rw-r--r-- 1 me 7 Nov  3 09:01 a"),
    ("3 passed in 0.25s", "3 passed in 1.5s"),
    ("took 12 ms", "took 7 ms"),
    ("real\t0m0.012s", "real\t1m3.5s"),
    ("after 3.4 seconds", "after 5 seconds"),
    ("id 566d3680-a5d0-11ea-8a15-5596f77b6c20", "id 6291ce1b-96cf-4b0f-9648-7f993fc15611"),
    ("container d2310f647359", "container b6819179d266"),
    ("<a object at 0x7eab4a29a8b0>", "<a object at 0x766ed2a9da60>"),
    ("wrote /tmp/pytest-1/a.txt.", "wrote /tmp/pytest-22/a.txt."),
    ("wrote /var/folders/x1/T/a", "wrote /var/folders/x2/T/b"),
    ("in tmp_9x2k3ab", "in tmpq1w2e3r4"),
    ("./proc/1518/task/1518/fdinfo/5: gone", "./proc/9260/task/9260/fdinfo/5: gone"),
    ("[sub-agent: finished; turn a1b2:call00001]", "[sub-agent: finished; turn a1b2:call00002]"),
    ("turn a1b2:call00001:call00007", "turn a1b2:call00003:call00002"),
    ("1764360725", "1764360726"),
    ('{"ts": 1764360725.123}', '{"ts": 1764360801}'),
    ("[1764360725123] ok", "[1764360725999] ok"),
    ("t=1764360725123456.", "t=1764360725123457."),
    ("at 1764360725123456789 ns", "at 1764360725123456999 ns"),
    ("started, pid 4711", "started, pid 12"),
    ("PID=4711 PPID: 1", "PID=4712 PPID: 20"),
    ('{"worker_pid": 88}', '{"worker_pid": 1088}'),
    ("processId: 4711", "processId: 4712"),
    ("Process ID 4711 (pid=4711)", "Process ID 9 (pid=9)"),
    ("process 4711 exited", "process 4712 exited"),
    ("==4711== HEAP SUMMARY", "==815== HEAP SUMMARY"),
    ("[1] 4711\nready", "[1] 4712\nready"),
    ("/bin/bash: line 17871: cd: a/: No such file", "/bin/bash: line 17886: cd: a/: No such file"),
    ("bash: line 9: foo: command not found", "bash: line 10: foo: command not found"),
    ("sh: 1: foo: not found", "sh: 22: foo: not found"),
    ("zsh:1: no matches found", "zsh:22: no matches found"),
    ("Cell In[7], line 3", "Cell In[12], line 3"),
    ("<ipython-input-7-0a1b2c3d4e5f> in <module>", "<ipython-input-12-f5e4d3c2b1a0> in <module>"),
]
DIFFERENT = [
    ("page 1", "page 2"),
    ("12 of 40", "13 of 40"),
    ("balance: 123456789012", "balance: 123456789013"),
    ("flight on 2026-11-27", "flight on 2026-11-28"),
    ("version 1.2.3", "version 1.2.4"),
    ("commit d2310f6", "commit b681917"),
    ("/process/1518", "/process/9260"),
    ("deadbeefdeadbeef", "feedfacefeedface"),
    ("the temperature is 12.5", "the temperature is 12.6"),
    ("line 10 sorted", "line 11 sorted"),
    ("./build.sh: line 3: syntax error", "./build.sh: line 9: syntax error"),
    ("Cell In[7], line 3", "Cell In[7], line 4"),
    ("hash: 7: ok", "hash: 8: ok"),
    ("build.bash: line 3: x", "build.bash: line 9: x"),
    ("a", ""),
    ("balance: 1264360725", "balance: 1264360726"),
    ("$1764360725", "$1764360726"),
    ("1764360725 bytes", "1764360726 bytes"),
    ("item 17643607251", "item 17643607252"),
    ("v1.1764360725", "v1.1764360726"),
    ("rapid 5", "rapid 6"),
    ("process 5 of 9", "process 6 of 9"),
    ("process 500 of 900", "process 501 of 900"),
    ("items[1] 12 left", "items[1] 13 left"),
    ("a ==12== b", "a ==13== b"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_noise_does_not_change_the_result_key(first: str, second: str) -> None:
    assert without_noise(first) == without_noise(second)
    assert result_key(first) == result_key(second)


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_other_text_changes_the_result_key(first: str, second: str) -> None:
    assert result_key(first) != result_key(second)


@given(st.text())
def test_key_has_twelve_digits_and_noise_is_removed_once(text: str) -> None:
    assert len(bytes.fromhex(result_key(text))) == 6
    assert without_noise(without_noise(text)) == without_noise(text)


def test_text_with_half_a_surrogate_pair_has_a_key() -> None:
    assert result_key("\ud83d") == result_key("?")


def test_long_hostile_text_takes_linear_time() -> None:
    """Each of these would take hours if a pattern looked at the same characters again and again."""
    for text in (
        "a" * 200_000,
        "1" * 200_000,
        "/private/tmp" * 40_000,
        "0x" * 100_000,
        "Nov " * 50_000,
        "1m" * 100_000,
    ):
        assert result_key(text)


def test_middle_of_a_huge_text_is_not_searched_for_noise() -> None:
    """The time that a key takes is bounded: 131,072 characters are searched, half of them at each end."""
    filler = "lorem ipsum " * 10_000
    assert result_key(f"at 12:00:01 {filler}{filler} 7 ms") == result_key(f"at 12:00:02 {filler}{filler} 8 ms")
    assert result_key(f"{filler}at 12:00:01 {filler}") != result_key(f"{filler}at 12:00:02 {filler}")


LONG = "lorem ipsum dolor " * 40
#: Results that are equal, or not, with and without noise.
RESULTS = ["", "at 12:00:01", "at 12:00:02", LONG, f"{LONG}at 12:00:01", f"{LONG}at 12:00:02", f"{LONG}1", "x" * SHORT]


class Keyed(TurnMachine):
    """A machine without checksums: each result has its key at once."""

    def _result_key(
        self, call: Call, status: CallStatus, result: str, files: "Sequence[Mapping[str, JsonValue]]" = ()
    ) -> str:
        if not super()._result_key(call, status, result, files):
            return ""
        return result_key(compared_text(result, files))


def begun(kind: type[TurnMachine], limits: Limits) -> tuple[TurnMachine, list[Fact]]:
    machine, facts = TurnMachine.start(StartedInput(prompt="x", limits=limits))
    return kind(machine.turn), facts


def step(machine: TurnMachine, calls: list[tuple[int, int, bool]]) -> list[Fact]:
    """One step of calls, each with its argument, the place of its result, and whether it fails."""
    tool_calls = tuple(ToolCall(name="look", arguments={"n": argument}) for argument, _, _ in calls)
    facts = machine.feed(ModelRepliedInput(calls=tool_calls))
    for call, (_, place, fails) in zip(machine.turn.runnable(), calls, strict=True):
        facts += machine.feed(CallStartedInput(call=call.id))
        status = CallStatus.ERROR if fails else CallStatus.OK
        event = CallSettledInput(call=call.id, status=status, result=RESULTS[place])
        assert machine.takes_messages_before(event) is kept_copy(machine).takes_messages_before(event)
        facts += machine.feed(event)
    return facts


def kept_copy(machine: TurnMachine) -> TurnMachine:
    """A machine of the same turn, folded from nothing but what the machine keeps."""
    return type(machine)(machine.turn.copy())


calls = st.tuples(st.integers(0, 2), st.integers(0, len(RESULTS) - 1), st.booleans())
steps = st.lists(st.one_of(st.none(), st.lists(calls, min_size=1, max_size=3)), max_size=14)


limits = st.fixed_dictionaries(
    {
        "doom_compare": st.sampled_from(["results", "calls"]),
        "doom_threshold": st.sampled_from([None, 2, 3]),
        "stall_errors": st.sampled_from([None, 2]),
        "stall_rounds": st.sampled_from([None, 2]),
        "stall_response": st.sampled_from(["hint", "loop"]),
    }
)
ROUNDS = {"doom_threshold": 2, "stall_errors": None, "stall_rounds": None}
STALLS = {"doom_threshold": None, "stall_errors": 2, "stall_rounds": 2, "stall_response": "loop"}


@given(steps, limits)
@example([[(0, 4, False)], [(0, 5, False)]], ROUNDS)
@example([[(0, 3, False)], [(0, 3, True)]], STALLS)
@example([[(0, 4, False), (0, 5, False)], [(0, 5, False), (0, 4, False)]], ROUNDS)
@example([[(0, 4, False)], [(1, 4, False)], [(0, 5, False)], [(1, 5, False)]], STALLS)
def test_checksums_do_not_change_the_detection(
    script: list[list[tuple[int, int, bool]] | None], limits: dict[str, object]
) -> None:
    """A turn takes the same course with keys made when calls recur as with keys made at once, live and replayed."""
    under = Limits.model_validate(limits)
    (late, journal), (once, _) = begun(TurnMachine, under), begun(Keyed, under)
    for calls in script:
        if not isinstance(late.action, CallModel):
            break
        if calls is None:
            for machine in (late, once):
                new = machine.feed(SteeredInput(text="go on"))
                journal += new if machine is late else []
            continue
        journal += step(late, calls)
        step(once, calls)
        assert (late.state, late.action) == (once.state, once.action)
        assert late.turn.rounds.tools == once.turn.rounds.tools
        assert late.turn.rounds.stalls.stall == once.turn.rounds.stalls.stall
    assert fold(journal).rounds == late.turn.rounds
    assert replay(enumerate(journal, start=1)).check.verdict is Verdict.HOLDS


def test_long_results_get_keys_when_calls_recur() -> None:
    """The first result of a call has a checksum; a replay notices that the text was changed."""
    machine, journal = begun(TurnMachine, Limits())
    journal += step(machine, [(0, 4, False)])
    journal += step(machine, [(0, 5, False)])
    first, second = [fact for fact in journal if isinstance(fact, CallSettled)]
    assert first.key == checksum(RESULTS[4])
    assert second.key == result_key(RESULTS[5]) == result_key(RESULTS[4])
    assert machine.turn.rounds.unkeyed == {}
    journal[journal.index(first)] = replace(first, result=RESULTS[6])
    assert replay(enumerate(journal, start=1)).check.verdict is Verdict.VIOLATED
