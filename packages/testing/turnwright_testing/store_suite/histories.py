"""The contract of a store for calls at once: each history of them has an order that the contract allows."""

from typing import Final

from turnwright_testing.linearizability import explain_history, record_history

from .bench import Bench, StoreFacts

#: Histories that are recorded. What goes wrong between calls need not do so at the first time.
_HISTORIES: Final = 12


class HistoryFacts(StoreFacts):
    async def test_calls_at_once_have_an_order(self, bench: Bench) -> None:
        """Clients create, claim, append, post, release, delete and read; some turns are taken from living owners."""
        stores = [await bench.open() for _ in range(3)]
        for seed in range(_HISTORIES):
            explanation = explain_history((await record_history(stores, seed)).operations)
            assert not explanation.stuck, str(explanation)

    async def test_calls_at_once_have_an_order_when_processes_die(self, bench: Bench) -> None:
        """Processes look dead in the middle of their calls, and go on, as after a stall."""
        for seed in range(100, 100 + _HISTORIES // 2):
            stores = [await bench.open() for _ in range(3)]
            explanation = explain_history((await record_history(stores, seed, bury=bench.bury)).operations)
            assert not explanation.stuck, str(explanation)
