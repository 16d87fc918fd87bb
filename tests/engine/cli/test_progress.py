"""The progress of `verify`: a share and a remaining time, from the start."""

from typing import TYPE_CHECKING

import pytest

from turnwright_proof.cli.verify import Estimate

from .tty import Tty

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_begins_with_a_guess() -> None:
    assert str(Estimate(6_000, 2, Clock())) == "  0 %, about 30 s left"


def test_measured_progress_replaces_the_guess() -> None:
    clock = Clock()
    estimate = Estimate(1_000_000, 4, clock)
    clock.now += 100
    estimate.done = 500_000
    assert str(estimate) == " 50 %, about 2 min left"


def test_remaining_time_grows_if_the_guess_was_too_short() -> None:
    clock = Clock()
    estimate = Estimate(6_000, 2, clock)
    clock.now += 60
    assert str(estimate) == "  0 %, about 12 min left"


def test_verify_shows_progress_before_the_first_finished_walk(cli: "Cli") -> None:
    with Tty(cli, ("verify", "--bound", "4")) as terminal:
        terminal.until("  0 %, about ")
        terminal.until(" left")
        terminal.types("\x03")
        assert terminal.done() == 130
    assert "Traceback" not in terminal.shown


@pytest.mark.slow
def test_progress_is_not_drawn_without_a_terminal(cli: "Cli") -> None:
    done = cli.run("verify", "--bound", "0", "--can-reach", "deadline", "--with", "seconds=9", "--json")
    assert done.code == 0
    assert done.err == ""
    assert done.events[0]["reached"]
