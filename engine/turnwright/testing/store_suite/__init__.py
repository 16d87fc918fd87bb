"""What every store must do, as pytest tests that run over any store.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        async def bench(self) -> AsyncIterator[Bench]:
            ...

The tests are marked `anyio` and run on its pytest plugin. Source: DESIGN 5, and `turnwright.store.Store`.
"""

from .bench import Bench, Written
from .suite import StoreSuite

__all__ = ["Bench", "StoreSuite", "Written"]
