"""The planted faults can be planted, and only a test that fails catches one."""

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "planted_faults.py"
#: Tests that are properties, though Hypothesis does not run them: their seeds are many schedules.
SEEDED = ("tests/testing/test_simulation.py", "tests/testing/test_linearizability.py")
QUICK = "tests/states/test_doom.py::test_cycle_is_detected_at_the_last_round_and_not_before"


class Listed(Protocol):
    """A fault of the list."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def caught_by(self) -> Sequence[str]: ...
    def planted(self, root: Path = ROOT) -> str: ...


class Script(Protocol):
    """The names of the script that the tests use."""

    ListError: type[Exception]
    Fault: Callable[..., Listed]

    def listed(self) -> list[Listed]: ...

    def judge(self, fault: Listed, place: Path) -> tuple[str, str]: ...


@pytest.fixture(scope="module")
def script() -> Script:
    spec = importlib.util.spec_from_file_location("planted_faults", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Script", module)


def test_each_fault_can_be_planted(script: Script) -> None:
    """Its text is found exactly once, and the source with the fault is Python. A changed line needs a new entry."""
    faults = script.listed()
    for fault in faults:
        compile(fault.planted(), fault.file, "exec")
    assert len({fault.name for fault in faults}) == len(faults)
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert f"| the engine and the machine | {len(faults)}, from" in page


def test_each_fault_is_caught_by_existing_properties(script: Script) -> None:
    """An example does not count: it shows one turn, and a property every turn that it can think of."""
    for fault in script.listed():
        assert fault.caught_by
        for test in fault.caught_by:
            module, _, name = test.partition("::")
            source = (ROOT / module).read_text(encoding="utf-8")
            assert re.search(rf"^((async )?def {name}\(|{name} = )", source, re.MULTILINE), test
            assert module in SEEDED or "from hypothesis import" in source, test


@pytest.mark.parametrize(
    ("text", "why"), [("def ", "found [0-9]+ times"), ("no such text", "found 0 times"), ("LONGEST", "the same")]
)
def test_fault_without_exactly_one_match_is_an_error(script: Script, text: str, why: str) -> None:
    file = "states/turnwright_states/doom.py"
    text = text if text != "LONGEST" else "LONGEST_PERIOD: Final = 4"
    with pytest.raises(script.ListError, match=why):
        script.Fault("One", "doom loop", file, text, text, (QUICK,)).planted()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instead", "verdict"),
    [("LONGEST_PERIOD = 4", "survived"), ("LONGEST_PERIOD: Final = 0", "caught"), ("import nothing", "inconclusive")],
)
def test_fault_is_caught_only_if_a_test_fails(script: Script, tmp_path: Path, instead: str, verdict: str) -> None:
    """A change without an effect survives, and a module that cannot be imported proves nothing."""
    fault = script.Fault(
        "One", "doom loop", "states/turnwright_states/doom.py", "LONGEST_PERIOD: Final = 4", instead, (QUICK,)
    )
    assert script.judge(fault, tmp_path)[0] == verdict
