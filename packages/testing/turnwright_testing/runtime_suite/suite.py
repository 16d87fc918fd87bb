"""The whole suite."""

import pytest

from .deaths import DeathFacts
from .deploys import DeployFacts
from .driving import DrivingFacts
from .outages import OutageFacts
from .people import PeopleFacts
from .sweeps import SweepFacts


@pytest.mark.anyio
class RuntimeSuite(DrivingFacts, DeathFacts, PeopleFacts, SweepFacts, OutageFacts, DeployFacts):
    """Subclass it, and define a fixture `bench` that gives a `RuntimeBench`."""
