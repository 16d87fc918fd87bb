"""Mutation testing of the pure machine: change one thing at a time, and check that a test fails.

    python .ci/mutants.py [NAME ...]     (names of mutants, as in 'turnwright_states.doom*'; all without any)

mutmut does the work, on a copy under build/mutants in the layout that it needs. Its survivors are compared with
`.ci/mutants.toml`, which says why each of them is equivalent to the original. Exit code 0 when both agree, 1 when a
survivor is not listed, or when a listed mutant no longer survives.

mutmut switches a mutant on after the import, too late for what the import itself calls. So each survivor is tested once
more in a process of its own, with the mutant on from the start.

A whole run takes about half an hour on two cores; a second run goes on where the first one stopped, and tests anew what
changed since, and what lived without being listed.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PLACE: Final = ROOT / "build" / "mutants"
LISTED: Final = Path(__file__).with_suffix(".toml")

#: What checks the machine is not mutated with it, for its tests plant faults of their own; and those tests, which walk
#: for seconds, are not run against every mutant. Nor is the test of imports, which sees mutmut's own.
TESTS: Final = (
    "tests/states",
    "tests/testing/test_traces.py",
    *(
        f"--ignore=tests/states/test_{name}.py"
        for name in ("cycles", "lint", "planted_faults", "purity", "reach", "verify")
    ),
)
_LINES: Final = "\n".join(f"    {argument}" for argument in TESTS)
CONFIGURATION: Final = f"""\
[mutmut]
source_paths=
    src/
do_not_mutate=
    src/turnwright/*
    src/turnwright_states/verify/*
also_copy=
    pytest.ini
pytest_add_cli_args_test_selection=
{_LINES}
pytest_add_cli_args=
    -x
"""
PYTEST: Final = "[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n"
#: What mutmut says of a mutant that no test kills.
LIVES: Final = ("survived", "no tests")
#: A found example need not be made small here: the first one settles it.
ENVIRONMENT: Final = os.environ | {"HYPOTHESIS_PROFILE": "mutants"}


class Survivor(NamedTuple):
    """A mutant that lives: where it is, and the lines that differ, without their indentation."""

    function: str
    removed: str
    added: str

    @property
    def shown(self) -> str:
        """The mutant as a reader of a report sees it."""
        return f"{self.function}\n    - {self.removed}\n    + {self.added}"


def main(names: list[str]) -> int:
    """Run mutmut, compare, report."""
    lived = survivors() if (PLACE / "mutants").exists() else {}
    lay_out()
    run(*names)
    reasons = {Survivor(one["function"], one["removed"], one["added"]): one["why"] for one in listed()}
    # What lived is settled for mutmut, but a test that is new may kill it.
    again = [] if names else [name for name, one in survivors().items() if name in lived and one not in reasons]
    if again:
        run(*again)
    lives = survivors()
    dead = caught_afresh([name for name, one in lives.items() if one not in reasons])
    found = {one for name, one in lives.items() if name not in dead}
    report(dict(results()), dead, found & set(reasons))
    unknown = found - set(reasons)
    gone = set() if names else set(reasons) - found
    for one in sorted(unknown):
        print(f"survives, and is not listed: {one.shown}")
    for one in sorted(gone):
        print(f"is listed, and does not survive: {one.shown}")
    return 1 if unknown or gone else 0


def run(*names: str) -> None:
    """Test the mutants of these names, or all that are new or changed."""
    processes = str(os.cpu_count() or 1)
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", processes, *names]
    code = subprocess.run(command, cwd=PLACE, env=ENVIRONMENT, check=False).returncode  # noqa: S603 (our own arguments)
    if code:
        sys.exit(f"mutmut stopped with exit code {code}")


def lay_out() -> None:
    """Copy the code and its tests; unchanged files keep their times, so that mutmut keeps their results.

    The engine too, whose testing kit some tests use: no edit of the work tree is to disturb a run.
    """
    copies = {
        "states/turnwright_states": "src/turnwright_states",
        "engine/turnwright": "src/turnwright",
        "tests": "tests",
    }
    for source, dest in copies.items():
        shutil.rmtree(PLACE / dest, ignore_errors=True)
        shutil.copytree(ROOT / source, PLACE / dest, ignore=shutil.ignore_patterns("__pycache__"))
    # Which tests reach which function; mutmut would not ask again for a function that is new.
    (PLACE / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    (PLACE / "setup.cfg").write_text(CONFIGURATION, encoding="utf-8")
    (PLACE / "pytest.ini").write_text(PYTEST, encoding="utf-8")


def results() -> Iterator[tuple[str, str]]:
    """The state of each mutant that was tested: `killed`, `survived`, `timeout`, ..."""
    for line in mutmut("results", "--all", "true").splitlines():
        name, _, state = line.strip().rpartition(": ")
        if name and state != "not checked":
            yield name, state


def survivors() -> dict[str, Survivor]:
    """Each mutant that lives, by its name."""
    return {name: survivor(name) for name, state in results() if state in LIVES}


def survivor(name: str) -> Survivor:
    """Return the change of a mutant."""
    diff = mutmut("show", name).splitlines()
    removed = [line[1:].strip() for line in diff if line.startswith("-") and not line.startswith("---")]
    added = [line[1:].strip() for line in diff if line.startswith("+") and not line.startswith("+++")]
    function = re.sub(r"\.x_|\.xǁ", ".", name.partition("__mutmut_")[0]).replace("ǁ", ".")
    return Survivor(function, " ".join(removed), " ".join(added))


def mutmut(*arguments: str) -> str:
    """Return the output of a command of mutmut."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=PLACE, env=ENVIRONMENT, capture_output=True, text=True, check=True)  # noqa: S603 (our own arguments)
    return done.stdout


def listed() -> list[dict[str, str]]:
    """The entries of the list."""
    entries: list[dict[str, str]] = tomllib.loads(LISTED.read_text(encoding="utf-8")).get("survivor", [])
    return entries


def caught_afresh(names: list[str]) -> set[str]:
    """Return those of these mutants that a test kills when they are on while the modules are imported."""
    if names and is_caught(""):
        sys.exit("the tests fail without any mutant, in a process of their own")
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        return {name for name, caught in zip(names, threads.map(is_caught, names), strict=True) if caught}


def is_caught(name: str) -> bool:
    """Run the tests in a process of its own, with this mutant on from the start. Return whether they fail."""
    place = PLACE / "mutants"
    environment = ENVIRONMENT | {"MUTANT_UNDER_TEST": name, "PYTHONPATH": str(place / "src")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", *TESTS]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)  # noqa: S603 (our own arguments)
    return done.returncode != 0


def report(states: dict[str, str], afresh: set[str], equivalent: set[Survivor]) -> None:
    """Print the score: the killed part of the mutants that are not equivalent."""
    counts = {state: list(states.values()).count(state) for state in sorted(set(states.values()))}
    print(f"{len(states)} mutants: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    print(f"{len(afresh)} of the survivors are killed when they are on while the modules are imported")
    dead = len(states) - sum(counts.get(state, 0) for state in LIVES) + len(afresh)
    could = len(states) - len(equivalent)
    print(f"score: {dead} of {could} that differ from the original ({100 * dead / max(could, 1):.1f} %)")
    print(f"{len(equivalent)} survivors are equivalent, each for the reason in {LISTED.name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
