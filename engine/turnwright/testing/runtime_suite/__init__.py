"""What every runtime must do, as pytest tests that run over any runtime: with workers in processes of their own.

    class TestMyRuntime(RuntimeSuite):
        @pytest.fixture
        def bench(self, tmp_path: Path) -> RuntimeBench:
            ...

The tests are marked `anyio` and run on its pytest plugin. Source: DESIGN 6, and `turnwright.runtime.Runtime`.
"""

from .bench import RuntimeBench
from .suite import RuntimeSuite

__all__ = ["RuntimeBench", "RuntimeSuite"]
