"""Build the wheels and check their content: the packages with their data, and nothing else."""

import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent


def projects() -> list[Path]:
    """Return the folders of the distributions, that of the engine first."""
    return [ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))]


def expected(project: Path) -> set[str]:
    """Return every tracked file of a project's packages, as its wheel names it."""
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    packages: list[str] = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files: set[str] = set()
    for package in packages:
        listed = subprocess.run(["git", "ls-files", package], cwd=project, check=True, capture_output=True)  # noqa: S603, S607
        prefix = package.rpartition("/")[0]
        files |= {line.removeprefix(f"{prefix}/") for line in listed.stdout.decode().splitlines()}
    return files


def problems(project: Path) -> Iterator[str]:
    """Build the wheel of a project, and yield what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (our own build)
        (wheel,) = Path(folder).glob("*.whl")
        names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected_files = expected(project)
    yield from (f"not in the wheel: {name}" for name in sorted(expected_files - names))
    yield from (f"in the wheel, and should not be: {name}" for name in sorted(names - expected_files))
    packages = {name.partition("/")[0] for name in names}
    yield from (f"py.typed is missing from {name}" for name in packages if f"{name}/py.typed" not in names)


def main() -> int:
    """Return 0 if each wheel has the right content."""
    wrong = [f"{project.name}: {problem}" for project in projects() for problem in problems(project)]
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
