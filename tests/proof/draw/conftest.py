"""The picture that all tests of the room look at."""

import pytest

from turnwright_proof.draw import Picture, extract


@pytest.fixture(scope="session")
def picture() -> Picture:
    return extract()
