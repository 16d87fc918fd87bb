"""The contract of every runtime, as pytest tests, with workers in processes of their own.

    class TestMyRuntime(RuntimeSuite):
        @pytest.fixture
        def bench(self, tmp_path: Path) -> RuntimeBench:
            ...

The tests are marked `anyio` and run on its pytest plugin. Source: docs/rules.md#drivers, `turnwright.runtime.Runtime`.
"""

import pytest

from .bench import RuntimeBench
from .deaths import DeathFacts
from .deploys import DeployFacts
from .driving import DrivingFacts
from .outages import OutageFacts
from .people import PeopleFacts
from .sweeps import SweepFacts

__all__ = ["RuntimeBench", "RuntimeSuite"]


@pytest.mark.anyio
class RuntimeSuite(DrivingFacts, DeathFacts, PeopleFacts, SweepFacts, OutageFacts, DeployFacts):
    """Subclass it, and define a fixture `bench` that gives a `RuntimeBench`."""
