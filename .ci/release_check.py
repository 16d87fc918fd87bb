"""Check a release before publication: it builds, it can be installed, and the installed package works.

    python .ci/release_check.py [--tag v1.2.3] [--constraints FILE] [--keep FOLDER]

Builds the source distribution, and the wheel from it; reads their metadata; installs each of them, with what it needs,
into a fresh environment; and runs there what a newcomer would: the import, the version, the demonstration, a turn.
Exit code 0 when all of that holds; else 1, with what does not. `--tag` is what the release is to be called; `--keep`
puts the two files into a folder. With `--constraints` the fresh environments get exactly the packages of this file
(`release_constraints.py`), and their hashes are checked; without it they get the newest versions, as a user does.
Needs the network, or a cache of what is installed.
"""

import argparse
import email
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from email.message import Message
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
#: What a source distribution needs to be built, beside the code.
SHIPPED: Final = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "diagrams/turn.md")
#: The packages beside the engine, those that others need first.
PACKAGES: Final = tuple(
    ROOT / "packages" / name for name in ("proof", "audit", "inspector", "guards", "protocols", "testing")
)
#: A command of each package that adds commands.
COMMANDS: Final = (["verify", "--no-walk"], ["demo", "audit"], ["serve", "--help"], ["fuzz", "--help"])
FIELDS: Final = ("Name", "Version", "Summary", "License-Expression", "Requires-Python", "Description-Content-Type")

IMPORTS: Final = """
import importlib.resources, sys
import turnwright_states
wrong = sorted(m for m in sys.modules if m.partition(".")[0] in {"turnwright", "httpx", "asyncio", "ssl", "subprocess"})
assert not wrong, f"the machine alone loads {wrong}"
import turnwright
for package in (turnwright, turnwright_states):
    assert importlib.resources.files(package).joinpath("py.typed").is_file(), f"{package.__name__} has no py.typed"
    missing = [name for name in package.__all__ if not hasattr(package, name)]
    assert not missing, f"{package.__name__} lacks {missing}"
assert "site-packages" in turnwright.__file__, f"this is not what was installed: {turnwright.__file__}"
"""
TURN: Final = """
import asyncio
from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for

@tool
async def look(place: str) -> str:
    return f"nothing {place}"

async def main():
    model = ScriptedModel(asks_for(("look", {"place": "here"})), "Nothing.")
    async with Engine(model=model, tools=[look], store="sqlite:///turns.db") as engine:
        turn = await engine.run(Agent(name="A", steps=5), "Look")
        assert (turn.outcome, turn.reason, turn.steps, turn.text) == ("finished", "answered", 2, "Nothing."), turn
    async with Engine(model=model, store="sqlite:///turns.db") as engine:
        assert (await engine.get(turn.id)).text == "Nothing."

asyncio.run(main())
"""


class UnfitError(Exception):
    """The release may not go out."""


def main() -> int:
    """Check everything. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", help="what the release is to be called, such as v1.2.3")
    parser.add_argument("--constraints", type=Path, metavar="FILE", help="install these versions and hashes only")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="put the two files here")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            sdist, wheel = build(ROOT, Path(folder, "dist"))
            wheel_metadata = metadata(wheel)
            check_metadata(wheel_metadata, tag=options.tag)
            check_sdist(sdist)
            beside = [build(path, Path(folder, "dist", path.name)) for path in PACKAGES]
            for _, package in beside:
                check_metadata(metadata(package), tag=options.tag)
            print(f"built {sdist.name} and {wheel.name}")
            for file in (wheel, sdist):
                try_out(file, str(wheel_metadata["Version"]), Path(folder, file.suffix.strip(".")), options.constraints)
                print(f"{file.name}: installs into a fresh environment, and works there")
            if not options.constraints:
                try_packages(wheel, [package for _, package in beside], Path(folder, "packages"))
                print("the packages install beside the engine, and their commands work")
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                for file in (sdist, wheel, *(file for files in beside for file in files)):
                    shutil.copy(file, options.keep)
    except UnfitError as error:
        sys.stderr.write(f"not fit to be released: {error}\n")
        return 1
    return 0


def build(project: Path, folder: Path) -> tuple[Path, Path]:
    """The source distribution of a project, and the wheel that was built from it."""
    # Isolated builds are tried where the source distribution is installed.
    run("the build", [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(project)], project)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    kinds = [file.name.rpartition(".")[2] for file in files]
    if sorted(kinds) != ["gz", "whl"]:
        raise UnfitError(f"the build made {[file.name for file in files]}, not a source distribution and a wheel")
    return files[kinds.index("gz")], files[kinds.index("whl")]


def metadata(wheel: Path) -> Message:
    """Return the metadata of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def check_metadata(headers: Message, *, tag: str | None) -> None:
    """Raise `UnfitError` for metadata that an index refuses or shows badly, and for a tag of another version."""
    missing = [field for field in FIELDS if not headers[field]]
    if missing:
        raise UnfitError(f"the metadata lack {', '.join(missing)}: see [project] in pyproject.toml")
    if (
        headers["Description-Content-Type"] != "text/markdown"
        or f"# {headers['Name']}" not in str(headers.get_payload()).lower()
    ):
        raise UnfitError("the README is not the description of the package")
    direct = [requirement for requirement in headers.get_all("Requires-Dist", []) if "@" in requirement]
    if direct:
        raise UnfitError(f"requirements by address are refused by indexes: {direct}")
    if tag is None:
        return
    if tag != f"v{headers['Version']}":
        raise UnfitError(f"the tag is {tag}, and the version of the package is {headers['Version']}")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(str(headers['Version']))}\b", changelog, flags=re.MULTILINE):
        raise UnfitError(f"CHANGELOG.md has no heading for {headers['Version']}")


def check_sdist(sdist: Path) -> None:
    """Raise `UnfitError` if a build from source lacks a file."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = [name for name in SHIPPED if name not in names]
    if missing:
        raise UnfitError(f"{sdist.name} lacks {', '.join(missing)}")


def try_out(file: Path, version: str, folder: Path, constraints: Path | None) -> None:
    """Install `file` into a fresh environment, and run a newcomer's commands there. Raises `UnfitError`."""
    venv.create(folder, with_pip=True)
    # Somewhere else than in the checkout, whose packages would be found first.
    work = folder / "work"
    work.mkdir()
    python, turnwright = str(folder / "bin" / "python"), str(folder / "bin" / "turnwright")
    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    alone: list[str] = []
    if constraints:
        hashed = ["--require-hashes", "--only-binary", ":all:", "--requirement", str(constraints.resolve())]
        run(f"the installation of {constraints.name}", install + hashed, work)
        # pip can check no hash of a local file, and an isolated build would fetch its tools without one.
        alone = ["--no-deps", "--no-build-isolation"]
    run(f"the installation of {file.name}", [*install, *alone, f"{file}[cli]"], work)
    run(f"{file.name}: pip check", [python, "-m", "pip", "check"], work)
    run(f"{file.name}: the import", [python, "-I", "-W", "error", "-c", IMPORTS], work)
    printed = run(f"{file.name}: turnwright --version", [turnwright, "--version"], work).strip()
    if printed != f"turnwright {version}":
        raise UnfitError(f"{file.name}: `turnwright --version` says {printed!r}, and the metadata {version!r}")
    run(f"{file.name}: turnwright demo", [turnwright, "demo"], work)
    run(f"{file.name}: a turn", [python, "-I", "-W", "error", "-c", TURN], work)


def try_packages(engine: Path, packages: Sequence[Path], folder: Path) -> None:
    """Install the engine and the packages into a fresh environment, and run their commands. Raises `UnfitError`."""
    venv.create(folder, with_pip=True)
    python, turnwright = str(folder / "bin" / "python"), str(folder / "bin" / "turnwright")
    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run("the installation of the packages", [*install, f"{engine}[cli]", *map(str, packages)], folder)
    run("the packages: pip check", [python, "-m", "pip", "check"], folder)
    for command in COMMANDS:
        run(f"the packages: turnwright {' '.join(command)}", [turnwright, *command], folder)


def run(subject: str, command: list[str], folder: Path) -> str:
    """Return the output of a command. Raises `UnfitError` with the output if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)  # noqa: S603 (our own)
    except subprocess.TimeoutExpired as error:
        raise UnfitError(f"{subject}: no end after {error.timeout:g} s") from None
    if done.returncode:
        raise UnfitError(f"{subject}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
