"""A small campaign of kills, as `make faults` runs a large one."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.campaigns.faults.plan import FEATURES, TOOLS, KillAfter, KillIn, Plan
from tests.campaigns.faults.report import FaultReport, put_into
from tests.campaigns.faults.trial import made_turn
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel
from turnwright_testing.faults import KillAt

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
PAGE = "before\n<!-- campaign -->\nold\n<!-- /campaign -->\nafter\n"


def faults(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.campaigns.faults", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=ROOT)


def test_small_campaign_on_sqlite_has_no_fault(tmp_path: Path) -> None:
    """And the report and the page are written."""
    report, page = tmp_path / "report.json", tmp_path / "page.md"
    page.write_text(PAGE)
    ran = faults("--sqlite", "16", "--postgres", "0", "--seed", "11", "--json", report, "--page", page)
    assert (ran.returncode, ran.stderr) == (0, "")
    parsed_report = FaultReport.from_json(report.read_text())
    assert (parsed_report.faults, parsed_report.seed, list(parsed_report.stores)) == (0, 11, ["sqlite"])
    assert parsed_report.stores["sqlite"].turns == 16
    assert parsed_report.stores["sqlite"].recoveries >= 10
    assert ran.stdout == parsed_report.tables() + "\n"
    assert page.read_text() == put_into(PAGE, parsed_report)
    assert parsed_report.tables() in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")


def test_small_campaign_on_postgres_has_no_fault(tmp_path: Path) -> None:
    reason = PostgresServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    report = tmp_path / "report.json"
    ran = faults("--sqlite", "0", "--postgres", "8", "--seed", "11", "--json", report)
    assert ran.returncode == 0, ran.stderr
    parsed_report = FaultReport.from_json(report.read_text())
    assert (parsed_report.faults, list(parsed_report.stores)) == (0, ["postgres"])
    assert parsed_report.stores["postgres"].recoveries >= 4


def test_single_trial_is_shown_with_plan_witness_and_journal() -> None:
    ran = faults("--seed", "11", "--trial", "3")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Plan(seed=11, number=3, ")
    assert " claimed " in ran.stdout
    assert "   1  turn_started    {" in ran.stdout


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="must have <!-- campaign --> and <!-- /campaign --> once"):
        put_into("a page", FaultReport(version="1", seed=1, stores={}))


def test_trial_number_determines_the_trial() -> None:
    assert Plan.of(1, 2) == Plan.of(1, 2)
    assert len({repr(Plan.of(1, number)) for number in range(100)} | {repr(Plan.of(2, 2))}) == 101


def test_trials_cover_many_kinds() -> None:
    """Every way to die, every tool, each of the limits, and every feature of an agent."""
    plans = [Plan.of(1, number) for number in range(300)]
    kills = [kill for plan in plans for kill in plan.kills]
    assert {kill.what for kill in kills if isinstance(kill, KillAt)} == {"create", "claim", "append", "release", "post"}
    assert {kill.after for kill in kills if isinstance(kill, KillAt)} == {True, False}
    assert {kill.call for kill in kills if isinstance(kill, KillIn)} == {"tool", "model"}
    assert {kill.is_driving for kill in kills if isinstance(kill, KillAfter)} == {True, False}
    assert {name for plan in plans for step in plan.steps for name, _ in step} == TOOLS.keys()
    assert {word.kind for plan in plans for word in plan.words} == {"abort", "steer", "settle"}
    assert {len(plan.steps) for plan in plans} == {2, 3, 4, 5, 6}
    assert min(len(plan.kills) for plan in plans) == 1
    assert {feature for plan in plans for feature in plan.features} == set(FEATURES)
    assert sum(bool(plan.features) for plan in plans) > 100
    assert {bool(plan.trips) for plan in plans} == {False, True}


@pytest.mark.anyio
async def test_turn_with_a_killed_creator_is_found_in_the_store(tmp_path: Path) -> None:
    """Else the next process would begin a second turn, and the audit would take the two for one."""
    address = f"sqlite:///{tmp_path}/turns.db"
    assert await made_turn(address) == ""
    async with Engine(model=ScriptedModel(), store=address) as engine:
        turn = await engine.submit(Agent(name="Tester"), "hi")
    assert await made_turn(address) == turn
