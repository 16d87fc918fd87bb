"""Shared by all tests: which event loop, which Hypothesis profile, and who counts the rows that they take."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

pytest_plugins = ["turnwright.testing.plugin"]

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
#: A mutant is settled by the first example that fails; it need not be made small.
settings.register_profile(
    "mutants",
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked `anyio` run on asyncio."""
    return "asyncio"
