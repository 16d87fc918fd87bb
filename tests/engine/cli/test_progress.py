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


def test_before_anything_is_through_there_is_a_guess() -> None:
    assert str(Estimate(6_000, 2, Clock())) == "  0 %, about 30 s left"


def test_what_is_through_takes_the_place_of_the_guess() -> None:
    clock = Clock()
    estimate = Estimate(1_000_000, 4, clock)
    clock.now += 100
    estimate.done = 500_000
    assert str(estimate) == " 50 %, about 2 min left"


def test_what_takes_longer_than_was_guessed_has_more_left() -> None:
    clock = Clock()
    estimate = Estimate(6_000, 2, clock)
    clock.now += 60
    assert str(estimate) == "  0 %, about 12 min left"


def test_verify_shows_a_share_and_a_remaining_time_before_any_walk_is_through(cli: "Cli") -> None:
    with Tty(("verify", "--bound", "4"), cli.folder, cli.env) as terminal:
        terminal.until("  0 %, about ")
        terminal.until(" left")
        terminal.types("\x03")
        assert terminal.done() == 130
    assert "Traceback" not in terminal.shown


@pytest.mark.slow
def test_nothing_is_drawn_where_no_terminal_is(cli: "Cli") -> None:
    done = cli.run("verify", "--can-reach", "cap_hit/budget", "--json")
    assert done.code == 0
    assert done.err == ""
    assert done.events[0]["reached"]
