"""Counts what must not creep up, and fails where a count exceeds its limit in `bench/guard.toml`.

    python -m bench.guard [--json] [--profile]

Counts, not seconds, so that it says the same on a busy machine; of the cost of long results, which is in few counts, it
takes ratios. A step is one of the yardstick's: a text and two calls.

- Function calls per step, builtins included, as cProfile counts them: a turn of 50 steps less one of 10, by 40. Also
  with every event of the turn read (`stream`), and with a model that leaves the time limit to the engine. And those of
  the last 50 of 200 steps over those of the first 50, for nothing may cost more because the turn is long.
- CPU seconds of a step in memory over those of the bare loop's, whose two results have 15 bytes, 4 KiB or 48 KiB each,
  and of the last over the first: the least of several turns, in a process of their own, for the bare loop copies 48 KiB
  at less than half the cost where what ran before has let the heap grow. And the function calls that such results add
  to a step.
- Function calls of a call under ten rules, of which none and two name its tool: its judgment, its start and its result.
  And the CPU seconds of one that two name over those of a step with SQLite, in one process.
- Function calls of turn 100 of a session over those of turn 10.
- Bytes per step in all tables of the SQLite store, and commits a step, over the first 50 steps. Commits a step of an
  agent with repeatable steps too.
- Commits of a step with 2, 9 and 32 calls, and of one with two calls that a hook, an approval check and the limits of a
  tool decide about without waiting.
- Round trips a step with PostgreSQL, where a server can be started, over the same steps.
- The spread of the facts' bytes over steps 1 to 119: the largest step's less the smallest's. A run of digits counts as
  one byte wherever it stands, and so does a number, and a hash by its length; so what is left is flat to the byte, or
  something that is written grows with the turn. (120 steps, because at 160 of 200 a notice is written, once.)
- Function calls a fact of the same turn in a replay, which checks that each fact follows.
- Memory a turn in flight, as tracemalloc has it, with 200 turns of 10 steps held in their sixth.
- Modules that `import turnwright` loads, `from turnwright import Agent, Engine, tool`, and the program for `--version`,
  `--help` and `run --help`.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import multiprocessing
import pstats
import re
import subprocess
import sys
import time
import tomllib
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.bare import Bare
from bench.measure import max_calls_per_step
from bench.turnwright_turns import (
    AGENT,
    Fake,
    Turnwright,
    TurnwrightPostgres,
    TurnwrightRepeatable,
    TurnwrightSqlite,
    TurnwrightStreamed,
)
from bench.yardstick import PROMPT, Gate, Script, Subject, look, padded, run
from pydantic import JsonValue
from tests.servers.postgres_server import PostgresServer

from turnwright import CallView, Engine, before_tool, tool
from turnwright.model.protocol import SILENCE_TIMEOUT
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.rules import History, Rule
from turnwright.store import Claim, InboxItem, MemoryStore, Status
from turnwright.tools import Rate, Tool, ToolContext
from turnwright_states.facts import Fact, StepStarted
from turnwright_states.replay import replay

LIMITS: Final = Path(__file__).parent / "guard.toml"
LONG: Final = 200
EDGE: Final = 50
FLAT: Final = 120
HELD: Final = 200
HELD_STEPS: Final = 10
#: The calls under rules that are counted at once.
RULED: Final = 2_000
#: The KiB of each of the two results of a step.
RESULTS_KIB: Final = (0, 4, 48)
NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
COUNTED: Final = "print(len(sys.modules) - before)"
PROGRAM: Final = "from turnwright.cli import main; sys.argv[1:] = '{}'.split(); main()"
#: What a process may begin with: in words, and as code.
STARTS: Final = {
    "import": ("`import turnwright`", "import turnwright"),
    "engine": ("`from turnwright import Agent, Engine, tool`", "from turnwright import Agent, Engine, tool"),
    "version": ("`turnwright --version`", PROGRAM.format("--version")),
    "help": ("`turnwright --help`", PROGRAM.format("--help")),
    "run-help": ("`turnwright run --help`", PROGRAM.format("run --help")),
}
WHAT_TO_DO: Final = (
    "`python -m bench.guard --profile` shows the functions that are called most. Take out what is not needed; where it"
    " is, raise the limit in bench/guard.toml, and write there what it buys."
)


@dataclass(frozen=True, slots=True)
class Figure:
    """Something counted: the key of its limit, what it is in words, and the count."""

    key: str
    label: str
    count: float


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a figure, and its reason."""

    most: float
    reason: str


def limits(path: Path = LIMITS) -> dict[str, Limit]:
    """The limits by their keys."""
    table = tomllib.loads(path.read_text())
    return {key: Limit(float(entry["most"]), str(entry["reason"])) for key, entry in table.items()}


def judge(figures: Sequence[Figure], allowed: dict[str, Limit]) -> list[str]:
    """Return the problems: figures above their limits, and figures without limits or the reverse."""
    keys = {figure.key for figure in figures} | ({"trips-postgres"} if PostgresServer.reason_missing() else set())
    wrong = [f"bench/guard.toml has a limit for {key}, which is not counted" for key in allowed if key not in keys]
    for figure in figures:
        limit = allowed.get(figure.key)
        if limit is None:
            wrong.append(f"{figure.label}: no limit; write [{figure.key}] into bench/guard.toml")
        elif figure.count > limit.most:
            over = figure.count - limit.most
            share = f" ({over / limit.most:.0%} of it)" if limit.most else ""
            wrong.append(
                f"{figure.label}: {figure.count:,.6g}, above the limit of {limit.most:,.6g} by {over:,.6g}{share}\n"
                f"  [{figure.key}] is there because {limit.reason}"
            )
    return wrong


def figures() -> list[Figure]:
    """Count everything."""
    counted: list[Figure] = []
    subjects: tuple[tuple[str, str, Turnwright], ...] = (
        ("memory", "in memory", Turnwright()),
        ("sqlite", "with SQLite", TurnwrightSqlite()),
    )
    for key, where, subject in subjects:
        counted.append(Figure(f"calls-{key}", f"function calls per step, {where}", max_calls_per_step(subject)))
        label = f"growth of the function calls per step, {where}"
        counted.append(Figure(f"calls-growth-{key}", label, growth(subject)))
    streamed = max_calls_per_step(TurnwrightStreamed())
    counted.append(Figure("calls-stream-memory", "function calls per step, with its events read", streamed))
    counted.append(Figure("calls-silence", "function calls per step, with a limit of silence", silence_calls()))
    counted.extend(figures_of_results())
    counted.extend(figures_of_rules())
    lite = TurnwrightSqlite()
    for key, where, subject in subjects:
        first, last = asyncio.run(calls_in_a_session(subject, 10, 100))
        counted.append(Figure(f"session-growth-{key}", f"turn 100 of a session over turn 10, {where}", last / first))
        subject.session = None
    counted.append(Figure("bytes-sqlite", "bytes stored a step, with SQLite", asyncio.run(grown(lite, lite.stored))))
    counted.append(Figure("commits-sqlite", "commits a step, with SQLite", asyncio.run(grown(lite, lite.appends))))
    once = TurnwrightRepeatable()
    label = "commits a step, with SQLite and repeatable steps"
    counted.append(Figure("commits-repeatable", label, asyncio.run(grown(once, once.appends))))
    counted.extend(
        Figure(f"commits-{calls}", f"commits of a step with {calls} calls", asyncio.run(commits(calls)))
        for calls in (2, 9, 32)
    )
    checked = tool(needs_approval=lambda place: place < 0, rate=Rate(100, 60), concurrency=20)(look)
    label = "commits of a step with a hook, an approval check and limits"
    counted.append(Figure("commits-checked", label, asyncio.run(commits(2, checked, [allow]))))
    if PostgresServer.reason_missing() is None:
        there = TurnwrightPostgres(proxied=True)
        trips = asyncio.run(grown(there, there.trips))
        counted.append(Figure("trips-postgres", "round trips a step, with PostgreSQL", trips))
    facts = asyncio.run(kept_facts())
    sizes = step_sizes(facts)
    counted.append(Figure("bytes-spread", "spread of the facts' bytes over the steps", max(sizes) - min(sizes)))
    counted.append(Figure("calls-replay", "function calls a fact of a replay", replay_calls(facts)))
    counted.append(Figure("kib-in-flight", "KiB for a turn in flight, in memory", asyncio.run(held(Turnwright()))))
    counted.extend(
        Figure(f"modules-{key}", f"modules that {label} loads", loaded_by(code))
        for key, (label, code) in STARTS.items()
    )
    return counted


def silence_calls() -> float:
    """Function calls per step with a model that has no timeouts of its own, so that the engine limits its silence."""

    class Silent(Fake):
        """The fake model of an app."""

        silence_timeout = SILENCE_TIMEOUT

    class Limited(Turnwright):
        """Turnwright in memory, with that model."""

        model = Silent

    return max_calls_per_step(Limited())


def growth(subject: Subject) -> float:
    """Calls of a late step over those of an early one: the least of three turns, for a timer may fall due in any."""
    ends = [asyncio.run(calls_at_the_ends(subject)) for _ in range(3)]
    return min(last / first for first, last, _ in ends)


async def calls_at_the_ends(subject: Subject) -> tuple[float, float, cProfile.Profile]:
    """Function calls per step in the first and in the last 50 of 200 steps, and the profile."""
    profile = cProfile.Profile()
    counts: dict[int, int] = {}

    def note(step: int) -> None:
        if step in {1, EDGE + 1, LONG - EDGE, LONG}:
            profile.disable()
            counts[step] = sum(entry.callcount for entry in profile.getstats())
            profile.enable()

    async with subject.opened():
        await run(subject, Script(HELD_STEPS))
        profile.enable()
        await run(subject, Script(LONG, at_step=note))
        profile.disable()
    return (counts[EDGE + 1] - counts[1]) / EDGE, (counts[LONG] - counts[LONG - EDGE]) / EDGE, profile


async def calls_with_results(subject: Subject) -> dict[int, float]:
    """Function calls per step with results of each size in KiB: those of a turn of 50 steps, by 50."""
    calls: dict[int, float] = {}
    async with subject.opened():
        for kib in RESULTS_KIB:
            with padded(kib):
                await run(subject, Script(HELD_STEPS))
                with cProfile.Profile() as profile:
                    await run(subject, Script(EDGE))
            calls[kib] = sum(entry.callcount for entry in profile.getstats()) / EDGE
    return calls


async def cpu_with_results(subject: Subject, turns: int = 12) -> dict[int, tuple[float, float]]:
    """CPU seconds of a turn of 50 steps of the subject and of the bare loop, by the KiB of each result.

    The least of so many turns, which alternate between the two and among the sizes.
    """
    bare = Bare()
    durations: dict[int, tuple[list[float], list[float]]] = {kib: ([], []) for kib in RESULTS_KIB}
    async with subject.opened():
        for _ in range(turns):
            for kib, (own_durations, bare_durations) in durations.items():
                with padded(kib):
                    own_durations.append(await _cpu_seconds(subject))
                    bare_durations.append(min([await _cpu_seconds(bare) for _ in range(3)]))
    return {
        kib: (min(own_durations), min(bare_durations)) for kib, (own_durations, bare_durations) in durations.items()
    }


def least_cpu_with_results() -> dict[int, tuple[float, float]]:
    """CPU seconds of a turn in memory and of the bare loop, as `cpu_with_results` takes them."""
    return asyncio.run(cpu_with_results(Turnwright()))


async def _cpu_seconds(subject: Subject) -> float:
    start = time.process_time()
    await run(subject, Script(EDGE))
    return time.process_time() - start


def figures_of_results() -> Iterator[Figure]:
    """Calls and CPU of a step in memory whose two results have 0, 4 and 48 KiB."""
    calls = asyncio.run(calls_with_results(Turnwright()))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh_process:
        cpu = fresh_process.submit(least_cpu_with_results).result()
    short, *sizes = RESULTS_KIB
    for kib in RESULTS_KIB:
        own_seconds, bare_seconds = cpu[kib]
        yield Figure(
            f"cpu-{kib}-kib", f"CPU of a step over the bare loop's, results of {kib} KiB", own_seconds / bare_seconds
        )
    for kib in sizes:
        label = f"function calls that results of {kib} KiB add to a step"
        yield Figure(f"calls-{kib}-kib", label, calls[kib] - calls[short])
    label = f"CPU of a step with results of {sizes[-1]} KiB, over short ones"
    yield Figure("cost-long-results", label, cpu[sizes[-1]][0] / cpu[short][0])


class RuledCalls:
    """Calls under ten rules: those of `other` are named by none, and those of `search` by two."""

    def __init__(self) -> None:
        of_search = (
            Rule("few", at_most=10**9, of="search"),
            Rule("first", before="search", need="@user if 'go' in words(text)"),
        )
        more_rules = [Rule(f"rule-{number}", after=f"a{number}", never=f"b{number}", same=["k"]) for number in range(8)]
        self._history = History([*of_search, *more_rules])
        self._history.message("go")
        self._calls = 0

    def run(self, tool_name: str, count: int) -> None:
        """Judge, start and settle so many calls."""
        for _ in range(count):
            self._calls += 1
            name, arguments = f"call{self._calls}", {"k": 1}
            self._history.verdicts(tool_name, arguments, name)
            self._history.started(name, tool_name, arguments)
            self._history.settle(name, "ok", "nothing", "nothing")

    def count_calls(self, tool_name: str) -> float:
        """Return the function calls of one call."""
        with cProfile.Profile() as profile:
            self.run(tool_name, RULED)
        return sum(entry.callcount for entry in profile.getstats()) / RULED

    def seconds(self, tool_name: str) -> float:
        """Return the CPU seconds of one call, the least of several."""
        durations: list[float] = []
        for _ in range(10):
            start = time.process_time()
            self.run(tool_name, RULED)
            durations.append(time.process_time() - start)
        return min(durations) / RULED


def figures_of_rules() -> Iterator[Figure]:
    """Function calls and CPU of calls under ten rules."""
    ruled = RuledCalls()
    for tool_name, key, naming in (("other", "unnamed", "no rule names"), ("search", "named", "two rules name")):
        label = f"function calls of a call that {naming}, under ten rules"
        yield Figure(f"calls-rules-{key}", label, ruled.count_calls(tool_name))
    step_seconds = asyncio.run(_least_cpu_seconds(TurnwrightSqlite())) / EDGE
    label = "CPU of a call that two rules name, over that of a durable step"
    yield Figure("cpu-rules-named", label, ruled.seconds("search") / step_seconds)


async def _least_cpu_seconds(subject: Subject, turns: int = 4) -> float:
    async with subject.opened():
        return min([await _cpu_seconds(subject) for _ in range(turns)])


async def calls_in_a_session(subject: Subject, *places: int) -> list[int]:
    """Return the function calls of the turns at these places of one session."""
    subject.session = "s"
    counts: dict[int, int] = {}
    async with subject.opened():
        for number in range(1, max(places) + 1):
            with cProfile.Profile() as profile:
                await run(subject, Script(1))
            counts[number] = sum(entry.callcount for entry in profile.getstats())
    return [counts[place] for place in places]


async def grown(subject: Subject, look_up: Callable[[], int | None]) -> float:
    """Return by how much the result of `look_up` grows a step, in the first 50 steps."""
    sizes_by_step: dict[int, int] = {}

    def note(step: int) -> None:
        if step in {1, EDGE + 1}:
            sizes_by_step[step] = look_up() or 0

    async with subject.opened():
        await run(subject, Script(EDGE + 2, at_step=note))
    return (sizes_by_step[EDGE + 1] - sizes_by_step[1]) / EDGE


@before_tool
async def allow(_: ToolContext, call: CallView) -> None:
    """Decide nothing."""
    del call


class CountingStore(MemoryStore):
    """Counts the appends of facts."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        self.appends += bool(facts)
        return await super().append(claim, facts, status, consumed)


async def commits(calls: int, called_tool: Tool[Any] | None = None, hooks: Sequence[Any] = ()) -> int:
    """Return the appends of a step with so many calls at once: those of a turn, less that of the answer."""
    store = CountingStore()
    model = ScriptedModel(asks_for(*[("look", {"place": place}) for place in range(calls)]), "Done.")
    async with Engine(model=model, tools=[called_tool or tool(look)], hooks=hooks, store=store) as engine:
        await engine.run(AGENT, PROMPT)
    return store.appends - 1


async def kept_facts() -> list[Fact]:
    """The facts of one turn."""
    facts: list[Fact] = []

    class Kept(Turnwright):
        """Keeps the facts of its turn."""

        async def turn(self, script: Script) -> str:
            """One turn, in an engine of its own."""
            del script
            async with Engine(model=Fake(), tools=[tool(look)]) as engine:
                ended = await engine.run(AGENT, PROMPT)
                facts.extend(fact for _, fact in await engine.store.facts(ended.id))
            return ended.text

    await run(Kept(), Script(FLAT))
    return facts


def replay_calls(facts: Sequence[Fact]) -> float:
    """Function calls a fact, while a replay checks that each follows. Raises `ValueError` if one does not."""
    journal = list(enumerate(facts, start=1))
    profile = cProfile.Profile()
    replay(journal)  # the first one compiles the chart's guards
    profile.enable()
    replayed = replay(journal)
    profile.disable()
    if replayed.fault is not None:
        raise ValueError(replayed.check.detail)
    return sum(entry.callcount for entry in profile.getstats()) / len(journal)


def step_sizes(facts: Sequence[Fact]) -> list[int]:
    """The bytes of the facts of each step but the last: see `levelled`."""
    sizes: list[int] = []
    for fact in facts:
        if isinstance(fact, StepStarted):
            sizes.append(0)
        if sizes:
            sizes[-1] += len(json.dumps(levelled(json.loads(fact.payload())), separators=(",", ":")))
    return sizes[:-1]


def levelled(value: JsonValue, key: str = "") -> JsonValue:
    """A payload in which numbers, runs of digits in texts, and hashes do not differ in length."""
    if isinstance(value, dict):
        return {name: levelled(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [levelled(inner) for inner in value]
    if isinstance(value, str):
        return "#" * len(value) if key in {"hash", "key"} else NUMBER.sub("0", value)
    return 0 if isinstance(value, (int, float)) and not isinstance(value, bool) else value


async def held(subject: Subject) -> float:
    """KiB of memory a turn, with so many held in their sixth step."""
    async with subject.opened():
        await run(subject, Script(HELD_STEPS))
        at_gate: list[int] = []
        gate = Gate(HELD, lambda: at_gate.append((gc.collect(), tracemalloc.get_traced_memory()[0])[1]))
        scripts = [Script(HELD_STEPS, gate) for _ in range(HELD)]
        tracemalloc.start()
        await asyncio.gather(*(run(subject, script) for script in scripts))
        tracemalloc.stop()
    return at_gate[0] / HELD / 1024


def loaded_by(code: str) -> int:
    """Return the number of modules that this code loads into a new process."""
    counting = f"import atexit, sys; before = len(sys.modules)\natexit.register(lambda: {COUNTED})\n{code}"
    done = subprocess.run([sys.executable, "-c", counting], check=True, capture_output=True, text=True)  # noqa: S603
    return int(done.stdout.splitlines()[-1])


def table(counted: Sequence[Figure], allowed: dict[str, Limit]) -> str:
    """The figures beside their limits, a line each."""
    width = max(len(figure.label) for figure in counted)
    most = {key: f"{limit.most:,.6g}" for key, limit in allowed.items()}
    return "\n".join(
        f"{figure.label:{width}}  {figure.count:8,.6g}, at most {most.get(figure.key, '?')}" for figure in counted
    )


def verdict(counted: Sequence[Figure], allowed: dict[str, Limit]) -> tuple[str, int]:
    """Return the output, and the exit code: 1 for any problem."""
    wrong = judge(counted, allowed)
    return "\n\n".join([table(counted, allowed), *([*wrong, WHAT_TO_DO] if wrong else [])]), 1 if wrong else 0


def main() -> int:
    """Count, print, and return 1 where a limit is exceeded."""
    parser = argparse.ArgumentParser(description="Counts what must not creep up.")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, and judge nothing")
    parser.add_argument("--profile", action="store_true", help="print the functions that a step calls most")
    options = parser.parse_args()
    if options.profile:
        _, _, profile = asyncio.run(calls_at_the_ends(Turnwright()))
        pstats.Stats(profile).sort_stats("ncalls").print_stats(40)
        return 0
    counted = figures()
    if options.json:
        print(json.dumps({figure.key: figure.count for figure in counted}))
        return 0
    text, code = verdict(counted, limits())
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
