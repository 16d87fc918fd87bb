"""Every figure of the README and the pages equals the value in the file that it was taken from.

A sentence with figures is written here a second time, with the values in place of the figures. After a new measurement
the failing tests name the sentences that are no longer true. The tests of the programs that write tables into pages
compare those tables with their files (`docs/evidence.md`).
"""

import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from bench.report import details as results_details
from bench.report import page as results_page
from bench.results import read
from bench.scale.model import Work, actions, store_cost

from turnwright import Limits
from turnwright.runtime import Temporal
from turnwright_proof.verify import BOUND, lint
from turnwright_states import ToolCallLimits
from turnwright_states.chart import ROWS

from .repository_pages import ROOT

_TENS: Final = ("ten", "eleven", "twelve", "thirteen", "fourteen")
WORDS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", *_TENS)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def json_of(name: str) -> Any:  # noqa: ANN401 (what a file holds)
    return json.loads(text_of(name))


def about(value: float, digits: int = 2) -> str:
    """The number with so many digits that say something: 498,565 is 500,000."""
    return f"{float(f'{value:.{digits - 1}e}'):,.0f}"


PROOF: Final = json_of("docs/proof.json")
KILLS: Final = sum(store["kills"] for store in json_of("docs/reliability.json")["stores"].values())
WORKER_MIB: Final = json_of("docs/scale.json")["phases"]["killed"]["worker_mib"]
TEMPORAL: Final = {name: parameter.default for name, parameter in inspect.signature(Temporal).parameters.items()}
PATIENCE, HEARTBEAT, SWEEP = (TEMPORAL[name] for name in ("patience", "heartbeat", "sweep"))
LIMITS: Final = Limits()


def throughput(words: str) -> str:
    """Steps a CPU second with 10,000 turns in flight, of those with 100: out of figures taken by hand."""
    match = re.search(rf"([\d,]+), [\d,]+ and ([\d,]+)\s+{words}", text_of("bench/tried.md"))
    assert match is not None, words
    few, many = (int(figure.replace(",", "")) for figure in match.groups())
    return f"{many / few:.1f}"


def of_bare(subject: str) -> str:
    """CPU of a step over the bare loop's, in turns of 50 steps."""
    value = next(row for row in json_of("bench/results.json")["subjects"] if row["name"] == subject)["steps"]["50"][
        "ratio"
    ]
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def steps_with_results(subject: str) -> dict[str, dict[str, float]]:
    """CPU of a step by the KiB of each of its two results: of the process, and of the server that it stores in."""
    subjects = json_of("bench/results.json")["subjects"]
    return next(measured["results"] for measured in subjects if measured["name"] == subject)


def stored_steps(subject: str) -> str:
    """Steps a CPU second with results of 15 bytes, the server's CPU included."""
    step = steps_with_results(subject)["0"]
    return f"{1000 / (step['cpu_ms'] + step['server_ms']):.0f}"


def cost_of_long_results(subject: str) -> str:
    steps = steps_with_results(subject)
    return f"{steps['48']['cpu_ms'] / steps['0']['cpu_ms']:.1f}"


def says(sentence: str, *values: object) -> str:
    """The sentence with the values, one after the other, where it has `{}`."""
    return sentence.format(*values)


#: The turn of docs/scale.md, and the seconds that it takes.
EXAMPLE: Final = store_cost(steps=4, calls=2)
EXAMPLE_SECONDS: Final = Work(steps=4, model=3.0, tools=1.0).thinking


def rates(amount: float) -> list[float]:
    """The amount per second at 100, 10,000 and 1,000,000 turns per hour."""
    return [amount * turns / 3_600 for turns in (100, 10_000, 1_000_000)]


SENTENCES: Final = {
    "docs/comparison.md": [
        says("in memory takes {} times the CPU", of_bare("Turnwright, in memory")),
        says("{} times with SQLite", of_bare("Turnwright, SQLite NORMAL")),
        says("and {} times where it also survives a loss of power", of_bare("Turnwright, SQLite FULL")),
        says(
            "a step of smolagents takes {} times, of langgraph react {},",
            *map(of_bare, ("smolagents", "langgraph react")),
        ),
        says("of pydantic-ai {}, of openai-agents {} ", *map(of_bare, ("pydantic-ai", "openai-agents"))),
        says("of 48 KiB a step takes {} times the CPU", cost_of_long_results("Turnwright, in memory")),
        says(
            "it is {} steps a CPU second: Absurd makes {},",
            *map(stored_steps, ("Turnwright, PostgreSQL", "Absurd, PostgreSQL")),
        ),
        says(
            "langgraph's StateGraph with its saver {}, DBOS {}.",
            *map(stored_steps, ("langgraph StateGraph, AsyncPostgresSaver sync", "DBOS, PostgreSQL")),
        ),
    ],
    "docs/limits.md": [
        says("| tool calls of one step | {}; further calls are refused |", LIMITS.max_calls_per_step),
        says("| seconds of one tool call | {:g} |", LIMITS.tool_timeout),
        says("| pauses | {}; a call that would pause once more is refused |", LIMITS.max_pauses),
        says("| attempts at one model call | {} |", 1 + LIMITS.max_retries),
        says("| seconds of the concluding call | {:g} |", LIMITS.conclude_seconds),
        says("| tokens of the concluding call | {} |", f"{LIMITS.conclude_tokens:,}"),
    ],
    "docs/evidence.md": [
        says("the {} rows alone", len(ROWS)),
        says("under caps 0 to {},", BOUND),
        says("about {} configurations and {} events", about(PROOF["configurations"]), about(PROOF["events"])),
        says("in {} walks", PROOF["walks"]),
        says("two or more for each of the {} claims", WORDS[len(list(lint()))]),
    ],
    "docs/scale.md": [
        says("| rows: the turn, its summary, and its journal | A + 3 | {} |", EXAMPLE.rows),
        says("| transactions that write | A + 2 | {} |", EXAMPLE.commits),
        says("| round trips to PostgreSQL (`engine.run`) | A + 4 | {} |", EXAMPLE.trips),
        says("| writing transactions per second | {:.1f} | {:.0f} | {:,.0f} |", *rates(EXAMPLE.commits)),
        says("| round trips per second | {:.1f} | {:.0f} | {:,.0f} |", *rates(EXAMPLE.trips)),
        says("| turns in flight | {:.0f} | {:.0f} | {:,.0f} |", *rates(EXAMPLE_SECONDS)),
        says(
            "A million turns of 19 seconds need {:,.0f} of its actions", rates(actions(EXAMPLE_SECONDS, HEARTBEAT))[2]
        ),
        says("heartbeat is {:g} seconds, the patience {:g} seconds", HEARTBEAT, PATIENCE),
        says("{:g} to {:g} seconds, or twice as long", PATIENCE - HEARTBEAT, 1.1 * PATIENCE),
        says("- *Memory*: {} MiB a process", about(WORKER_MIB, 1)),
        says("With 10,000 turns in flight that is {} of the throughput of 100", throughput("with")),
        says("for {} with Python's own thresholds", throughput("as Python is")),
        says("with the collector off it is {}", throughput("without the collector")),
    ],
    "docs/how-to/run-workers.md": [
        says("is sent every {:g} seconds", HEARTBEAT),
        says("After {:g} seconds of silence", PATIENCE),
        says("is a Temporal Schedule, every {:g} seconds", SWEEP),
    ],
    "docs/chart.md": [says("costs one of its pauses, of which it has {}.", LIMITS.max_pauses)],
    "docs/reasons.md": [
        says("The turn used its tool calls: {} by default", LIMITS.call_limit),
        says("{} for an agent with a tool declared to write.", ToolCallLimits().writing),
        says("leave `steps` out for {}.", LIMITS.cap),
        says("`max_retries`, {} in each phase", LIMITS.max_retries),
        says("no call and no visible text, {} times.", WORDS[1 + LIMITS.max_retries]),
    ],
}


@pytest.mark.parametrize(
    ("page", "sentence"), [(page, sentence) for page, sentences in SENTENCES.items() for sentence in sentences]
)
def test_sentence_with_figures_equals_the_measurement(page: str, sentence: str) -> None:
    assert " ".join(sentence.split()) in " ".join(text_of(page).split())


def test_about_1000_drivers_were_killed() -> None:
    """The README gives this number in words."""
    assert about(KILLS, 1) == "1,000"


def test_page_of_measurements_equals_the_last_results() -> None:
    results = read()
    assert results is not None
    assert results_page(results) == text_of("bench/RESULTS.md")
    assert results_details(results) == text_of("bench/DETAILS.md")


def test_last_proof_holds() -> None:
    assert {check["verdict"] for check in PROOF["checks"]} == {"holds"}


def test_page_has_the_number_of_planted_faults() -> None:
    """Each by a test of its own, which pytest counts."""
    files = ("tests/proof/verify/test_planted_faults.py", "tests/audit/test_traces.py")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    of = Counter(re.findall(r"::(test_\w+)\[", collected))
    tampered = WORDS[of["test_tampered_trace_is_detected"]]
    page = text_of("docs/evidence.md")
    assert f"| the chart and the machine | {of['test_planted_fault_is_detected']}, from" in page
    hand_made = of["test_fault_is_reported_with_the_line"]
    assert f"| {hand_made} made by hand, and {tampered} kinds of tampering |" in page


#: Pages or sections whose figures were all measured, each with the other digits that it contains.
MEASURED: Final = {
    ("docs/evidence.md", "The walk"): ["caps 0 to 4", "budgets 0 to 5", "batches of 0 to 3", "caps 0 to 2"],
}


@pytest.mark.parametrize(("page", "heading"), MEASURED)
def test_every_figure_of_a_measured_section_is_tested(page: str, heading: str) -> None:
    """A sentence above contains each figure, or the list of other digits does."""
    section = re.split(r"^#{2,4} ", text_of(page).split(f"# {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    text = " ".join(re.sub(r"\]\([^)]*\)", "]", section).split())
    for sentence in sorted([*SENTENCES[page], *MEASURED[page, heading]], key=len, reverse=True):
        text = text.replace(" ".join(sentence.split()), "")
    assert re.findall(r"(?<![\w.])\d[\d.,]*", text) == []


def test_every_listed_page_exists() -> None:
    assert [page for page in SENTENCES if not Path(ROOT, page).is_file()] == []
