"""The reference simulator is a second program: nothing that it uses decides anything for it."""

import ast
import sys
from pathlib import Path

import pytest
from tests.oracle import reference, turn_script

from turnwright_states import Cause, Limits, ToolCallLimits

#: The types that it may import: values without behavior.
DATA = {"CallStatus", "Cause", "EndReason", "Finish", "Limits", "Outcome", "ToolCallLimits"}
#: What these types compute, which it computes itself.
COMPUTED = {
    name
    for kind in (Limits, ToolCallLimits, Cause)
    for name, value in vars(kind).items()
    if not name.startswith("_") and name != "reason" and (isinstance(value, property | classmethod) or callable(value))
}
#: The modules of the simulator, which may import each other.
SIMULATOR = (reference, turn_script)
MODULES = [Path(str(module.__file__)) for module in SIMULATOR]
OWN = tuple(f"{module.__name__}:" for module in SIMULATOR)


def imported(source: str) -> set[str]:
    """Return what a module imports beside the standard library: `package.name`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{'.' * node.level}{node.module or ''}:{name.name}" for name in node.names}
    return {name for name in names if name.split(":")[0].split(".")[0] not in sys.stdlib_module_names}


def computed(source: str) -> set[str]:
    """Return the attributes that a module reads of other objects and that are computed by the engine's types."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    } & COMPUTED


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_reference_imports_only_data_types(path: Path) -> None:
    names = imported(path.read_text(encoding="utf-8"))
    assert {name for name in names if not name.startswith(OWN)} <= {f"turnwright_states:{name}" for name in DATA}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_reference_uses_no_engine_function(path: Path) -> None:
    assert computed(path.read_text(encoding="utf-8")) == set()


def test_check_finds_forbidden_names() -> None:
    """`allowance` and `MAX_STEPS` are what hid the mutants of the limits."""
    assert {"allowance", "cap", "call_limit", "model_calls", "may_pass"} <= COMPUTED
    assert computed("self.allowance = limits.allowance") == {"allowance"}
    assert imported("from turnwright_states.limits import MAX_STEPS") == {"turnwright_states.limits:MAX_STEPS"}
    assert imported("from ..agents import bounds\nimport turnwright.runtime.engine, math") == {
        "..agents:bounds",
        "turnwright.runtime.engine",
    }
