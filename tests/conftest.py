"""Shared by all tests: what is slow, the event loop, the profiles of Hypothesis, and the count of rows taken.

`make test` leaves out the tests marked `slow`; `make test-all` runs all tests, and each worker begins with its share of
the slow ones. A test is slow if

- it takes more than a quarter of a second on an idle machine, or more than a second with its variants, or
- it needs a browser, Temporal, a model server or npm, or stops or kills a PostgreSQL server, or
- it is about the command at a terminal, beside other processes, or under signals, or
- it is a campaign, a sweep or a walk, or it reads or runs the documentation.

Whole folders and modules are in `SLOW`; in any other module the test itself has `@pytest.mark.slow`.
"""

import gc
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.servers.postgres_server import PostgresServer

from turnwright_testing.clock import SkippingLoop

pytest_plugins = ["turnwright_testing.plugin", "tests.engine.cli.fixtures"]

TESTS: Final = Path(__file__).parent
#: Folders and modules of slow tests. `make test` does not import them.
SLOW: Final = frozenset(
    TESTS / path
    for path in (
        "bench/test_collect.py",
        "bench/test_measure.py",
        "docs",
        "engine/_base/test_lazy_imports.py",
        "engine/cli/test_abort.py",
        "engine/cli/test_annotate.py",
        "engine/cli/test_answer.py",
        "engine/cli/test_answers.py",
        "engine/cli/test_approvals.py",
        "engine/cli/test_bad_endpoints.py",
        "engine/cli/test_chat.py",
        "engine/cli/test_chat_code.py",
        "engine/cli/test_continue.py",
        "engine/cli/test_demo.py",
        "engine/cli/test_exit_codes.py",
        "engine/cli/test_following.py",
        "engine/cli/test_fork.py",
        "engine/cli/test_hooks.py",
        "engine/cli/test_log_format.py",
        "engine/cli/test_mcp.py",
        "engine/cli/test_models.py",
        "engine/cli/test_packages.py",
        "engine/cli/test_progress.py",
        "engine/cli/test_prompts.py",
        "engine/cli/test_python_agents.py",
        "engine/cli/test_refused.py",
        "engine/cli/test_replay.py",
        "engine/cli/test_resume.py",
        "engine/cli/test_rooms.py",
        "engine/cli/test_runtimes.py",
        "engine/cli/test_screen.py",
        "engine/cli/test_sessions.py",
        "engine/cli/test_settle.py",
        "engine/cli/test_show.py",
        "engine/cli/test_standard_agents_file.py",
        "engine/cli/test_steer.py",
        "engine/cli/test_sub_agents.py",
        "engine/cli/test_telemetry.py",
        "engine/cli/test_terminal.py",
        "engine/cli/test_terminate.py",
        "engine/cli/test_turns.py",
        "engine/cli/test_upkeep.py",
        "engine/cli/test_worker.py",
        "engine/cli/test_worker_temporal.py",
        "engine/journal/test_answers_race.py",
        "engine/journal/test_damaged.py",
        "engine/journal/test_fence.py",
        "engine/journal/test_session_histories.py",
        "engine/model/local",
        "engine/model/openai_chat/test_llama_cpp.py",
        "engine/runtime/temporal",
        "engine/runtime/test_postgres_queue.py",
        "engine/store/postgres/test_store.py",
        "engine/test_exports.py",
        "engine/tools/mcp/test_conformance.py",
        "engine/tools/mcp/test_oauth.py",
        "engine/tools/mcp/test_page.py",
        "engine/tools/mcp/test_real_servers.py",
        "faults",
        "guards/test_pydantic_ai.py",
        "inspector/browser",
        "inspector/cli/test_serve.py",
        "inspector/pages/test_actions.py",
        "inspector/pages/test_live.py",
        "inspector/test_escaping.py",
        "inspector/test_forged.py",
        "inspector/test_secrets.py",
        "servers/test_postgres_server.py",
        "servers/test_temporal_server.py",
        "testing/cli/test_fuzz.py",
        "testing/test_conformance_pages.py",
        "testing/test_fuzz.py",
        "testing/test_fuzzing_pages.py",
        "testing/test_model_suite.py",
    )
)
NOT_SLOW: Final = "not slow"

# Hypothesis takes the time of a busy machine for a slow strategy.
BUSY = [HealthCheck.too_slow]
settings.register_profile("dev", max_examples=5, deadline=None, suppress_health_check=BUSY)
# Half of Hypothesis's default, since it draws others in each run; `deep` has many more.
settings.register_profile(
    "all", max_examples=50, deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=BUSY
)
#: For CI on a slow machine.
settings.register_profile("half", settings.get_profile("all"), max_examples=25)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=[*BUSY, HealthCheck.data_too_large]
)
#: The first example that fails kills a mutant. Shrinking that example would only take time.
settings.register_profile(
    "mutants",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=BUSY,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
#: The same for a planted fault. A property that is to catch it gets more examples.
settings.register_profile("planted", settings.get_profile("mutants"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# A shell may ignore SIGINT in what it runs in the background, and the programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Know the settings of pytest-timeout where it is not installed: tests then run without a timeout."""
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "seconds until a test fails; needs pytest-timeout")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what `-m "not slow"` would deselect."""
    if config.getoption("markexpr") == NOT_SLOW and collection_path in SLOW:
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and let it skip afterwards what was collected: 16,000 items."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave out the keywords, two thirds of a report that a worker sends: `-k` and `-m` read those of the test."""
    report = yield
    report.keywords = {}
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Use two workers more than there are cores for all tests: the slow ones wait for servers and processes."""
    return None if config.getoption("markexpr") == NOT_SLOW else (os.cpu_count() or 1) + 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `SLOW`, and run slow tests first: the last ones of a run are then short, on every worker."""
    if missing := [str(path) for path in SLOW if not path.exists()]:
        raise pytest.UsageError(f"tests/conftest.py: SLOW has paths that do not exist: {', '.join(missing)}")
    for item in items:
        if is_slow(item.path):
            item.add_marker("slow")
    items[:] = dealt(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@cache
def is_slow(path: Path) -> bool:
    """Whether all tests of this module are slow."""
    return path in SLOW or not SLOW.isdisjoint(path.parents)


def dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in an order of which each worker gets an equal part that begins with slow tests.

    `--dist worksteal` cuts the list into one part per worker. Who has finished takes tests from the end of another
    part. The slow tests of a module stay together, because they share a server.
    """
    marked = [(item, item.get_closest_marker("slow") is not None) for item in items]
    slow = [item for item, is_marked in marked if is_marked]
    quick = iter([item for item, is_marked in marked if not is_marked])
    modules = [list(tests) for _, tests in groupby(slow, key=attrgetter("path"))]
    order: list[pytest.Item] = []
    for worker in range(workers):
        order += chain.from_iterable(modules[worker::workers])
        order += islice(quick, max(0, len(items) * (worker + 1) // workers - len(order)))
    return [*order, *quick]


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, object]]:
    """Tests marked `anyio` run on asyncio, and those marked `no_waiting` on a loop where a timer is due at once.

    Where a module is marked, its tests with threads, sockets or processes are marked `no_waiting(False)`.
    An engine in a test of `no_waiting` that has a deadline needs `clock=anyio.current_time` too: the loop's time.
    """
    mark = request.node.get_closest_marker("no_waiting")
    return "asyncio" if mark is None or mark.args == (False,) else ("asyncio", {"loop_factory": SkippingLoop})


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a worker. No test stops it."""
    reason = PostgresServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with PostgresServer(fsync=False) as server:
        yield server
