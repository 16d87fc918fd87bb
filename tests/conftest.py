"""Shared by all tests: which event loop, which Hypothesis profile, and who counts the rows that they take."""

import os
import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

from turnwright.testing.clock import SkippingLoop

pytest_plugins = ["turnwright.testing.plugin"]

# Hypothesis takes the time of a busy machine for a slow strategy.
BUSY = [HealthCheck.too_slow]
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=BUSY)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=BUSY)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=[*BUSY, HealthCheck.data_too_large]
)
#: A mutant is settled by the first example that fails; it need not be made small.
settings.register_profile(
    "mutants",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=BUSY,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# A shell may ignore SIGINT in what it runs in the background, and the programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Know the settings of pytest-timeout where it is not installed: tests then run without a timeout."""
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "seconds until a test fails; needs pytest-timeout")


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, object]]:
    """Tests marked `anyio` run on asyncio, and those marked `no_waiting` on a loop where a timer is due at once.

    Where a module is marked, its tests with threads, sockets or processes are marked `no_waiting(False)`.
    An engine in a test of `no_waiting` that has a deadline needs `clock=anyio.current_time` too: the loop's time.
    """
    mark = request.node.get_closest_marker("no_waiting")
    return "asyncio" if mark is None or mark.args == (False,) else ("asyncio", {"loop_factory": SkippingLoop})
