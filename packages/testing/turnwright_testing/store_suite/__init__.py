"""The contract of every store, as pytest tests.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        async def bench(self) -> AsyncIterator[Bench]:
            ...

The tests are marked `anyio` and run on its pytest plugin. Source: docs/rules.md#leases, and `turnwright.store.Store`.
"""

from .bench import Bench, Written
from .suite import StoreSuite

__all__ = ["Bench", "StoreSuite", "Written"]
