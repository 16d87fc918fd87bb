"""The contract of every runtime, as pytest tests, with workers in processes of their own.

    class TestMyRuntime(RuntimeSuite):
        @pytest.fixture
        def bench(self, tmp_path: Path) -> RuntimeBench:
            ...

The tests are marked `anyio` and run on its pytest plugin. Source: docs/rules.md#drivers, `turnwright.runtime.Runtime`.
"""

from .bench import RuntimeBench
from .suite import RuntimeSuite

__all__ = ["RuntimeBench", "RuntimeSuite"]
