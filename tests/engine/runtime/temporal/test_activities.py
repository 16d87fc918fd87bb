"""The heartbeats of an attempt carry the name and the claims under which it may own the turn, and no more."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from turnwright.errors import CannotRunError, LeaseLostError, StoreError, TurnBusyError
from turnwright.runtime import Job, TurnStatus
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, DueTurn
from turnwright_states import EndReason, State

pytest.importorskip("temporalio")

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from turnwright.runtime.temporal.activities import Activities

pytestmark = pytest.mark.anyio

DONE = TurnStatus(State.FINISHED, EndReason.ANSWERED)


class Played:
    """A worker whose drives have given results: an error to raise, or an epoch to claim.

    A drive without an error waits until `may` is set.
    """

    owner = "me"

    def __init__(self, *outcomes: Exception | int) -> None:
        self._outcomes = list(outcomes)
        self.may = anyio.Event()
        self.abandoned: list[AbandonedDrivers] = []

    async def drive(
        self,
        turn_id: str,
        segment: int,
        *,
        abandoned_drivers: AbandonedDrivers = NONE_ABANDONED,
        on_claim: Callable[[int], None] | None = None,
    ) -> TurnStatus:
        assert (turn_id, segment) == ("t1", 3)
        self.abandoned.append(abandoned_drivers)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        await self.may.wait()
        assert on_claim is not None
        on_claim(outcome)
        return DONE

    async def status(self, turn_id: str) -> TurnStatus:
        raise AssertionError(turn_id)

    async def abort(self, turn_id: str, *, abandoned_drivers: AbandonedDrivers = NONE_ABANDONED) -> None:
        raise AssertionError(turn_id, abandoned_drivers)

    async def job(self, turn_id: str) -> Job:
        raise AssertionError(turn_id)

    async def pending(self, *, idle: float = 0.0, most: int | None = None) -> Sequence[Job]:
        raise AssertionError(idle, most)

    async def claim_due(self, limit: int, skipped: Collection[str] = ()) -> Sequence[DueTurn]:
        raise AssertionError(limit, skipped)

    async def drive_claimed(self, claim: Claim) -> TurnStatus:
        raise AssertionError(claim)


class Attempt:
    """One attempt at the third segment of a turn, after one whose last heartbeat said `before`.

    It drives the turn once a heartbeat says `awaits`, or at the first one.
    """

    def __init__(
        self, *outcomes: Exception | int, before: Sequence[Sequence[str | int]] = (), awaits: object = None
    ) -> None:
        self.work = Played(*outcomes)
        self.beats: list[tuple[list[str], list[int]]] = []
        self._awaits = awaits
        self._env = ActivityEnvironment()
        self._env.info = replace(self._env.info, workflow_id="turn:t1:3", heartbeat_details=before)
        self._env.on_heartbeat = self._hear

    def _hear(self, *details: Any) -> None:  # noqa: ANN401 (Temporal's)
        self.beats.append(details)
        if self._awaits in (None, details):
            self.work.may.set()

    async def run(self) -> dict[str, str]:
        activities = Activities(self.work, _never, beat=0.03, idle=1)
        done: dict[str, str] = await self._env.run(activities.drive, "t1")
        return done


async def _never(job: Job) -> bool:
    raise AssertionError(job)


async def test_first_heartbeat_names_the_owner_before_the_claim() -> None:
    attempt = Attempt(7)
    assert await attempt.run() == {"state": "FINISHED", "outcome": "finished", "reason": "answered"}
    assert attempt.beats[0] == (["me"], [])
    assert attempt.work.abandoned == [NONE_ABANDONED]


async def test_turn_is_taken_only_from_earlier_attempts() -> None:
    attempt = Attempt(7, before=(["dead"], [5]))
    await attempt.run()
    assert attempt.work.abandoned == [AbandonedDrivers(frozenset({"dead"}), frozenset({5}))]
    assert attempt.beats[0] == (["dead", "me"], [5])


async def test_attempt_finding_another_driver_no_longer_claims_ownership() -> None:
    """The driver may be this very process, for another job: the next attempt must not take the turn from it."""
    attempt = Attempt(
        TurnBusyError("t1", "me"), TurnBusyError("t1", "me"), TurnBusyError("t1", "me"), 9, awaits=([], [])
    )
    await attempt.run()
    assert attempt.beats[0] == (["me"], [])


async def test_permanent_error_is_not_retried() -> None:
    with pytest.raises(ApplicationError, match="claimed by another driver") as raised:
        await Attempt(LeaseLostError("t1", 4)).run()
    assert (raised.value.type, raised.value.non_retryable) == ("LeaseLostError", True)


async def test_unreachable_store_is_retried() -> None:
    with pytest.raises(ApplicationError, match="the disk is gone") as raised:
        await Attempt(StoreError("the disk is gone")).run()
    assert (raised.value.type, raised.value.non_retryable) == ("StoreError", False)


async def test_failed_dependencies_are_retried_and_missing_are_not() -> None:
    for error in (CannotRunError("no factory"), CannotRunError("the database is gone", may_pass=True)):
        with pytest.raises(ApplicationError, match=str(error)) as raised:
            await Attempt(error).run()
        assert (raised.value.type, raised.value.non_retryable) == ("CannotRunError", not error.may_pass)


async def test_bug_is_not_retried_and_the_message_is_hidden(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ApplicationError, match="ValueError: see the log of the worker") as raised:
        await Attempt(ValueError("the key is sk-123")).run()
    assert raised.value.non_retryable
    assert raised.value.__cause__ is None
    assert "sk-123" in caplog.text


async def test_unknown_heartbeat_abandons_no_driver() -> None:
    attempt = Attempt(7, before=(["dead"],))  # a heartbeat of another release
    await attempt.run()
    assert attempt.work.abandoned == [NONE_ABANDONED]
