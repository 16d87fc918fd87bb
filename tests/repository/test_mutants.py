"""The list of mutants that no test can kill names code that exists."""

import inspect
import tomllib
from pathlib import Path
from pkgutil import resolve_name

LISTED = Path(__file__).parents[2] / ".ci" / "mutants.toml"


def test_each_listed_mutant_names_an_existing_line() -> None:
    """An entry for a function that was moved, or for a line that was changed, excuses nothing."""
    stale = []
    for entry in tomllib.loads(LISTED.read_text(encoding="utf-8"))["survivor"]:
        function, removed = entry["function"], entry["removed"]
        try:
            lines = inspect.getsource(resolve_name(function))
        except (AttributeError, ModuleNotFoundError):
            stale.append(f"{function} does not exist")
        else:
            if " ".join(removed.split()) not in " ".join(lines.split()):
                stale.append(f"{function} has no line {removed!r}")
    assert not stale


def test_each_listed_module_and_test_file_exists() -> None:
    root = LISTED.parents[1]
    modules = tomllib.loads(LISTED.read_text(encoding="utf-8"))["module"]
    missing = [path for module in modules for path in (module["file"], *module["tests"]) if not (root / path).exists()]
    assert not missing
