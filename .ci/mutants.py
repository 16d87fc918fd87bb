"""Mutation testing: change one thing at a time, and check that a test fails.

    python .ci/mutants.py [NAME ...]       (mutants of the machine, as in 'turnwright_states.doom*'; all without any)
    python .ci/mutants.py FILE [NAME ...]  (mutants of a module that is listed, as engine/turnwright/tools/batch.py)

mutmut does the work, on a copy under build/mutants in the layout that it needs. Its survivors are compared with
`.ci/mutants.toml`, which says why each of them is equivalent to the original. Exit code 0 when both agree, 1 when a
survivor is not listed, or when a listed mutant no longer survives.

mutmut switches a mutant on after the import, too late for what the import itself calls. So each survivor of the machine
is tested once more in a process of its own, with the mutant on from the start. The process is a fork that has imported
the tests' dependencies, but nothing of ours.

A whole run of the machine takes about half an hour on two cores. A module of the engine takes a few minutes to an hour,
with the tests that `mutants.toml` selects for it; there a mutant that hangs is dead only if a test fails by its
time-out. A second run continues where the first one stopped, and tests anew what changed since, and what lived without
being listed.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[1]
BUILD: Final = ROOT / "build" / "mutants"
LISTED: Final = Path(__file__).with_suffix(".toml")

PACKAGES: Final = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
#: What checks the machine is not mutated with it, for its tests plant faults of their own; and those tests, which walk
#: for seconds, are not run against every mutant. Nor is the test of imports, which sees mutmut's own.
TESTS: Final = (
    "tests/states",
    "tests/audit/test_traces.py",
    *(
        f"--ignore=tests/states/test_{name}.py"
        for name in (
            "conformance",
            "invariants",
            "purity",
        )
    ),
)
_LINES: Final = "\n".join(f"    {argument}" for argument in TESTS)
CONFIGURATION: Final = f"""\
[mutmut]
source_paths=
    src/
do_not_mutate=
    src/turnwright/*
    src/turnwright_audit/*
    src/turnwright_guards/*
    src/turnwright_inspector/*
    src/turnwright_proof/*
    src/turnwright_protocols/*
    src/turnwright_testing/*
also_copy=
    pytest.ini
pytest_add_cli_args_test_selection=
{_LINES}
pytest_add_cli_args=
    -x
    -m
    not slow
"""
#: The same for a module of the engine. It is driven by event loops, which hang where a mutant lets nothing go on.
OF_ENGINE: Final = """\
[mutmut]
source_paths=
    src/
only_mutate=
    src/{module}
also_copy=
    pytest.ini
pytest_add_cli_args_test_selection=
    {tests}
pytest_add_cli_args=
    -x{selection}
"""
NOT_SLOW: Final = "\n    -m\n    not slow"
PYTEST: Final = "[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\nmarkers =\n    slow\n"
#: Seconds after which a test of the engine fails.
HANGS: Final = 30
#: The survivors that a process of their own has killed so far.
CAUGHT: Final = BUILD / "caught-afresh.json"
#: What mutmut says of a mutant that no test kills. One that used up its processor time may only be slow.
LIVES: Final = ("survived", "no tests")
LIVES_IN_ENGINE: Final = (*LIVES, "timeout", "suspicious")
#: A found example need not be made small here: the first one settles it.
ENVIRONMENT: Final = os.environ | {"HYPOTHESIS_PROFILE": "mutants"}
#: What the tests of the machine import, apart from ours.
IMPORTED: Final = ("hypothesis.strategies", "msgspec", "pydantic", "transitions", "trio")


class Plan(NamedTuple):
    """The place of the copy, its configurations, the mutated package, and the states of mutants that live."""

    place: Path
    mutmut: str
    pytest: str
    package: str
    lives: tuple[str, ...]


MACHINE: Final = Plan(BUILD, CONFIGURATION, PYTEST, "turnwright_states", LIVES)


class Survivor(NamedTuple):
    """A mutant that lives: where it is, and the lines that differ, without their indentation."""

    function: str
    removed_lines: str
    added_lines: str

    @property
    def shown(self) -> str:
        """The mutant as a reader of a report sees it."""
        return f"{self.function}\n    - {self.removed_lines}\n    + {self.added_lines}"


def main(arguments: list[str]) -> int:
    """Mutate the machine, or the module that is named first."""
    if arguments and arguments[0].endswith(".py"):
        return check(plan_of(arguments[0]), arguments[1:])
    return check(MACHINE, arguments)


def plan_of(file: str) -> Plan:
    """Return the plan for a module of the engine or of a package. Exits if the list selects no tests for it."""
    modules = {entry["file"]: entry for entry in entries("module")}
    if file not in modules:
        sys.exit(f"{LISTED.name} selects no tests for {file}, only for: {', '.join(modules)}")
    chosen = modules[file]
    tests, selection = "\n    ".join(chosen["tests"]), "" if chosen.get("slow") else NOT_SLOW
    module = re.sub(r"^(engine|packages/[a-z]+)/", "", file)
    package = module.removesuffix(".py").replace("/", ".")
    configuration = OF_ENGINE.format(module=module, tests=tests, selection=selection)
    return Plan(BUILD / package, configuration, f"{PYTEST}timeout = {HANGS}\n", package, LIVES_IN_ENGINE)


def check(plan: Plan, names: list[str]) -> int:
    """Run mutmut, compare, report."""
    lay_out(plan)
    lived = {name for name, state in results(plan) if state in plan.lives} if (plan.place / "mutants").exists() else ()
    run(plan, *names)
    reasons = {
        Survivor(entry["function"], entry["removed"], entry["added"]): entry["why"]
        for entry in entries("survivor")
        if entry["function"].startswith(f"{plan.package}.")
    }
    lives = survivors(plan)
    dead = (
        caught_afresh({name: survivor for name, survivor in lives.items() if survivor not in reasons})
        if plan is MACHINE
        else set()
    )
    # What lived is settled for mutmut, but a test that is new may kill it.
    again = [name for name, survivor in lives.items() if name in lived and name not in dead and survivor not in reasons]
    if again and not names:
        run(plan, *again)
        lives = survivors(plan)
    alive = {survivor for name, survivor in lives.items() if name not in dead}
    report(plan, dead, alive & set(reasons))
    unknown = alive - set(reasons)
    gone = set() if names else set(reasons) - alive
    for survivor in sorted(unknown):
        print(f"survives, and is not listed: {survivor.shown}")
    for survivor in sorted(gone):
        print(f"is listed, and does not survive: {survivor.shown}")
    return 1 if unknown or gone else 0


def run(plan: Plan, *names: str) -> None:
    """Test the mutants of these names, or all that are new or changed."""
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processors()), *names]
    code = subprocess.run(command, cwd=plan.place, env=ENVIRONMENT, check=False).returncode  # noqa: S603 (our own arguments)
    if code:
        sys.exit(f"mutmut stopped with exit code {code}")


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def lay_out(plan: Plan) -> None:
    """Copy the code and its tests; unchanged files keep their times, so that mutmut keeps their results.

    The engine too, whose testing kit some tests use: no edit of the work tree is to disturb a run.
    """
    copies = {
        "states/turnwright_states": "src/turnwright_states",
        "engine/turnwright": "src/turnwright",
        **{f"packages/{path.name}/turnwright_{path.name}": f"src/turnwright_{path.name}" for path in PACKAGES},
        "tests": "tests",
    }
    for source, dest in copies.items():
        shutil.rmtree(plan.place / dest, ignore_errors=True)
        shutil.copytree(ROOT / source, plan.place / dest, ignore=shutil.ignore_patterns("__pycache__"))
    # Which tests reach which function; mutmut would not ask again for a function that is new.
    (plan.place / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    (plan.place / "setup.cfg").write_text(plan.mutmut, encoding="utf-8")
    (plan.place / "pytest.ini").write_text(plan.pytest, encoding="utf-8")


def results(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield each mutant that was tested, with its state: `killed`, `survived`, `timeout`, ..."""
    for line in mutmut(plan, "results", "--all", "true").splitlines():
        name, _, state = line.strip().rpartition(": ")
        if name and state != "not checked":
            yield name, state


def survivors(plan: Plan) -> dict[str, Survivor]:
    """Return each mutant that lives, by its name."""
    return {name: survivor(plan, name) for name, state in results(plan) if state in plan.lives}


def survivor(plan: Plan, name: str) -> Survivor:
    """Return the change of a mutant."""
    diff = mutmut(plan, "show", name).splitlines()
    removed = [line[1:].strip() for line in diff if line.startswith("-") and not line.startswith("---")]
    added_lines = [line[1:].strip() for line in diff if line.startswith("+") and not line.startswith("+++")]
    function = re.sub(r"\.x_|\.xǁ", ".", name.partition("__mutmut_")[0]).replace("ǁ", ".")
    return Survivor(function, " ".join(removed), " ".join(added_lines))


def mutmut(plan: Plan, *arguments: str) -> str:
    """Return the output of a command of mutmut, which runs in this process: a new one for each would take a second."""
    with chdir(plan.place), redirect_stdout(io.StringIO()) as output:
        # Importing it reads the configuration that lies there.
        import_module("mutmut.__main__").cli.main(arguments, standalone_mode=False)
    return output.getvalue()


def entries(kind: str) -> list[dict[str, Any]]:
    """Return the entries of the list: `module` or `survivor`."""
    listed: list[dict[str, Any]] = tomllib.loads(LISTED.read_text(encoding="utf-8")).get(kind, [])
    return listed


def caught_afresh(lives: dict[str, Survivor]) -> set[str]:
    """Return those of the machine's mutants that a test kills when they are on while the modules are imported.

    As mutmut does, it keeps the names of killed ones for the next run, until their module changes.
    """
    known_marks: dict[str, str] = json.loads(CAUGHT.read_text(encoding="utf-8")) if CAUGHT.exists() else {}
    marks = {name: fingerprint(name, survivor) for name, survivor in lives.items()}
    dead = {name for name, mark in marks.items() if known_marks.get(name) == mark}
    names = [name for name in lives if name not in dead]
    for module in IMPORTED:
        import_module(module)
    if names and dict(exit_codes([""]))[""]:
        sys.exit("the tests fail without any mutant, in a process of their own")
    for name, code in exit_codes(names):
        if code:
            dead.add(name)
            CAUGHT.write_text(json.dumps({dead_name: marks[dead_name] for dead_name in sorted(dead)}), encoding="utf-8")
    return dead


def fingerprint(name: str, survivor: Survivor) -> str:
    """Return a text that changes with the mutant, or with its module."""
    module = Path(*re.split(r"\.x_|\.xǁ", name)[0].split(".")).with_suffix(".py")
    return sha256(f"{survivor}".encode() + (MACHINE.place / "src" / module).read_bytes()).hexdigest()


def exit_codes(names: list[str]) -> Iterator[tuple[str, int]]:
    """Test each mutant in a fork of this process. Yields its name with the exit code; 0 if no test fails."""
    waiting, running = names[::-1], dict[int, str]()
    while waiting or running:
        if waiting and len(running) < processors():
            name = waiting.pop()
            running[fork(name)] = name
        else:
            process, code = os.wait()
            yield running.pop(process), code


def fork(name: str) -> int:
    """Test a mutant in a fork of this process, with the mutant on from the start. Returns the id of the fork.

    The tests of the mutant's module come first: most mutants fail there.
    """
    process = os.fork()
    if process:
        return process
    place = MACHINE.place / "mutants"
    code = 1
    try:
        os.chdir(place)
        for output in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        os.environ |= ENVIRONMENT | {"MUTANT_UNDER_TEST": name, "PYTHONPATH": str(place / "src")}
        sys.path.insert(0, os.environ["PYTHONPATH"])
        own = [f"tests/states/test_{part}.py" for part in name.split(".")[1:2]]
        every = [[test for test in own if Path(test).exists()], list(TESTS)]
        code = int(any(pytest.main(["-x", "-q", "-m", "not slow", *tests]) for tests in every if tests))
    finally:
        os._exit(code)


def report(plan: Plan, afresh: set[str], equivalent: set[Survivor]) -> None:
    """Print the score: the killed part of the mutants that are not equivalent."""
    states = dict(results(plan))
    counts = {state: list(states.values()).count(state) for state in sorted(set(states.values()))}
    print(f"{len(states)} mutants: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    if plan is MACHINE:
        print(f"{len(afresh)} of the survivors are killed when they are on while the modules are imported")
    dead = len(states) - sum(counts.get(state, 0) for state in plan.lives) + len(afresh)
    could = len(states) - len(equivalent)
    print(f"score: {dead} of {could} that differ from the original ({100 * dead / max(could, 1):.1f} %)")
    print(f"{len(equivalent)} survivors are equivalent, each for the reason in {LISTED.name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
