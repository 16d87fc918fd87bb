"""Every target of the Makefile works after `git clone` alone: it installs what its programs import."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MAKEFILE: Final = (ROOT / "Makefile").read_text().replace("\\\n", " ")
PACKAGES: Final = re.search(r"^PACKAGES := (.*)$", MAKEFILE, re.MULTILINE)[1]  # type: ignore[index]
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: The distributions of programs in `$(BIN)` that are not modules of ours.
PROGRAMS: Final = {"coverage": "coverage", "lint-imports": "import-linter", "mkdocs": "mkdocs", "mypy": "mypy"} | {
    name: name for name in ("pyright", "ruff")
}
#: Runs a module or a file as if only some distributions were installed, up to its `if __name__ == "__main__"`.
IMPORT: Final = """
import runpy, sys
from importlib import import_module
from importlib.util import find_spec
missing, what = set(sys.argv[1].split()), sys.argv[2]
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"the target does not install {name}", name=name)
sys.meta_path.insert(0, Missing())
sys.path.insert(0, "")
if what.endswith(".py"):
    sys.path.insert(0, what.rpartition("/")[0])
    runpy.run_path(what, run_name="imported")
else:
    module = import_module(what)
    if hasattr(module, "__path__") and find_spec(what + ".__main__"):
        runpy.run_module(what + ".__main__", run_name="imported")
"""


class Target:
    """A target with its prerequisites and its recipe."""

    def __init__(self, line: str, recipe: str) -> None:
        before, _, _ = line.partition("##")
        self.needs = re.findall(r"\$\(VENV\)/\.([\w-]+)", before.partition(":")[2])
        self.has_python = bool(self.needs) or "$(BIN)/python" in before
        self.recipe = recipe

    @property
    def own(self) -> list[str]:
        """The commands that run in `.venv`, not in an environment that the recipe makes."""
        return [line for line in self.recipe.splitlines() if "$(BIN)/" in line or "$(PYTEST)" in line]


def rules() -> Iterator[tuple[str, Target]]:
    lines = MAKEFILE.splitlines()
    for number, line in enumerate(lines):
        rule = re.match(r"([\w.$()/-]+): ", f"{line} ")
        if rule and ":=" not in line:
            end = number + 1
            while end < len(lines) and lines[end].startswith("\t"):
                end += 1
            yield rule[1], Target(line, "\n".join(lines[number + 1 : end]))


RULES: Final = dict(rules())
TARGETS: Final = {name: target for name, target in RULES.items() if re.fullmatch(r"[a-z-]+", name)}


def projects(stamp: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The folders and extras that a stamp such as `$(VENV)/.test` installs, with those of the stamps that it needs."""
    rule = RULES[f"$(VENV)/.{stamp}"]
    for needed in rule.needs:
        if needed != stamp:
            yield from projects(needed)
    recipe = rule.recipe.replace("$(PACKAGES)", PACKAGES)
    for folder, chosen in re.findall(r"--editable '?([\w./-]+?)(?:\[([\w,-]+)\])?'?(?=\s|$)", recipe):
        yield folder, tuple(filter(None, chosen.split(",")))


def requirements(folder: str, extras: Iterable[str]) -> list[str]:
    """The requirements of a project of the checkout, with these extras."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    optional = project.get("optional-dependencies", {})
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


@cache
def closure(requirement: str) -> frozenset[str]:
    """The names of a requirement's distribution and of all that it needs, without markers of other extras."""
    name = normal(NAME.match(requirement)[0])  # type: ignore[index]
    extras = set(re.findall(r"[\w-]+", re.match(r"[^\[;]*(?:\[([^\]]*)\])?", requirement)[1] or ""))  # type: ignore[index]
    if name == "turnwright":
        lines = requirements(".", extras)
    elif name.startswith("turnwright-"):
        lines = requirements(f"packages/{name.removeprefix('turnwright-')}", extras)
    else:
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            lines = []
    names = {name}
    for line in lines:
        extra = re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", line)
        if extra is None or extra[1] in extras:
            names |= closure(line.partition(";")[0].strip())
    return frozenset(names)


@cache
def owners() -> dict[str, list[str]]:
    """The distributions that each installed module is of."""
    return {top: [*map(normal, names)] for top, names in metadata.packages_distributions().items()}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(target: Target) -> set[str]:
    """The distributions that a target installs into `.venv`."""
    lines = ["pip"]
    for need in target.needs:
        for folder, chosen in projects(need):
            name = "turnwright" if folder == "." else f"turnwright-{Path(folder).name}"
            lines.append(f"{name}[{','.join(chosen)}]")
    return set().union(*map(closure, lines))


def programs(target: Target) -> Iterator[str]:
    """The modules and files that a recipe runs in `.venv`, and the names of other programs."""
    for line in target.own:
        if "$(PYTEST)" in line:
            yield "pytest"
        yield from re.findall(r"\$\(BIN\)/python -m ([\w.]+)", line)
        yield from re.findall(r"\$\(BIN\)/python (\.ci/[\w/]+\.py)", line)
        for program in re.findall(r"\$\(BIN\)/([\w-]+)", line):
            if program != "python":
                yield "turnwright.cli" if program == "turnwright" else program


#: One target for each program and what must be installed for it.
RUNS: Final = {
    (tuple(target.needs), program): (name, program) for name, target in TARGETS.items() for program in programs(target)
}


def test_every_target_running_python_creates_the_environment() -> None:
    assert len(TARGETS) > 30
    assert [name for name, target in TARGETS.items() if target.own and not target.has_python] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "program"), sorted(RUNS.values()))
def test_target_installs_the_imports_of_the_program(name: str, program: str) -> None:
    """The program is imported where nothing else can be."""
    there = installed(TARGETS[name])
    if program == "pytest":
        assert {"pytest", "pytest-timeout", "hypothesis"} <= there
    elif program in PROGRAMS:
        assert normal(PROGRAMS[program]) in there
    else:
        missing = {top for top, names in owners().items() if not there.intersection(names)}
        command = [sys.executable, "-c", IMPORT, " ".join(sorted(missing)), program]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        absent = re.search(r"No module named '(\w+)", done.stderr)
        if absent:
            pytest.skip(f"{absent[1]}, which the target installs, is not installed here")
        assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_pytest_program_imports_modules_beside_the_tests() -> None:
    """`pytest` does not add the current folder to the path, as `python -m pytest` does."""
    pytest_program = Path(sys.executable).with_name("pytest")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    command = [str(pytest_program), "--collect-only", "-q", "-p", "no:cacheprovider", "tests/bench", "tests/repository"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-2000:]
