from dataclasses import replace

import pytest

from turnwright.errors import ConfigError
from turnwright.model.http.timeouts import Timeouts, Waiting
from turnwright_states import Cause

PATIENCE = Timeouts(first_byte=300, idle=60, after=2)


def waiting(patience: Timeouts = PATIENCE) -> Waiting:
    return Waiting(patience, "http://host", now=1000)


def test_wait_for_the_first_part_counts_from_the_request() -> None:
    wait = waiting()
    assert wait.limit(1000, progress=0, whole=False) == 300
    wait.note_read(1100)
    assert wait.limit(1100, progress=0, whole=False) == 200
    assert wait.limit(1400, progress=0, whole=False) == 0
    assert "sent no part of a reply for 300 s" in str(wait.over())


def test_silence_and_signs_of_life_inside_the_reply_are_bounded() -> None:
    wait = waiting()
    wait.note_read(1001)
    assert wait.limit(1001, progress=1, whole=False) == 60
    assert "was silent for 60 s in the middle of its reply" in str(wait.over())
    wait.note_read(1050)
    assert wait.limit(1050, progress=1, whole=False) == 60
    assert "was silent for 60 s" in str(wait.over())
    wait.note_read(1290)
    assert wait.limit(1290, progress=1, whole=False) == 11
    assert "sent no part of a reply for 300 s" in str(wait.over())
    assert wait.limit(1290, progress=2, whole=False) == 60


def test_signs_of_life_never_shorten_the_silence_timeout() -> None:
    wait = waiting(replace(PATIENCE, first_byte=5, idle=60))
    wait.limit(1001, progress=1, whole=False)
    wait.note_read(1031)
    assert wait.limit(1031, progress=1, whole=False) == 30


def test_endless_progress_ends_at_the_reply_timeout() -> None:
    wait = waiting(replace(PATIENCE, reply=100))
    assert wait.limit(1030, progress=1, whole=False) == 60
    wait.note_read(1085)
    assert wait.limit(1085, progress=2, whole=False) == 15
    assert "http://host had not ended its reply after 100 s" in str(wait.over())
    assert "(reply_timeout)" in str(wait.over())
    assert wait.limit(1200, progress=3, whole=False) == 0


def test_end_of_a_whole_reply_is_read_after_the_timeout() -> None:
    wait = waiting(replace(PATIENCE, reply=100))
    assert wait.limit(1101, progress=1, whole=True) == 2


def test_data_after_the_finish_reason_has_a_single_short_timeout() -> None:
    wait = waiting()
    assert wait.limit(1010, progress=3, whole=True) == 2
    wait.note_read(1011)
    assert wait.limit(1011, progress=3, whole=True) == 1
    wait.note_read(1011.5)
    assert wait.limit(1011.5, progress=4, whole=True) == 0.5
    assert wait.limit(1020, progress=4, whole=True) == 0


def test_slow_reader_takes_no_time_from_the_server() -> None:
    wait = waiting()
    wait.limit(1000, progress=0, whole=False)
    wait.note_read(1010)
    assert wait.limit(5000, progress=1, whole=False) == 60
    wait.note_read(5010)
    assert wait.limit(6000, progress=2, whole=True) == 2
    wait.note_read(6001)
    assert wait.limit(7000, progress=3, whole=True) == 1


def test_timeout_names_the_option_and_may_be_retried() -> None:
    wait = waiting()
    assert wait.over().cause is Cause.TIMEOUT
    assert "http://host did not begin to answer within 300 s" in str(wait.over())
    assert "(first_byte_timeout)" in str(wait.over())
    wait.limit(1000, progress=1, whole=False)
    assert "(idle_timeout)" in str(wait.over())


@pytest.mark.parametrize("name", ["connect", "first_byte", "idle", "reply", "after"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_zero_timeout_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(ConfigError, match=f"the {name} timeout is"):
        replace(PATIENCE, **{name: seconds})
