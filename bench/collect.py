"""Runs the files of subjects, each in its environment, and gathers what they print."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.measured import Measured
from bench.results import FOLDER, Results, machine

ROOT: Final = FOLDER.parent
ENVIRONMENTS: Final = ROOT / ".venv-peers"
REQUIREMENTS: Final = FOLDER / "peers" / "requirements"
OWN: Final = ("bare_loop", "turnwright_turns")


@dataclass(frozen=True, slots=True)
class Peer:
    """A file of subjects of other frameworks, and the environment it runs in."""

    module: str
    environment: str

    @property
    def python(self) -> Path:
        """The interpreter of its environment, which may not be there."""
        return ENVIRONMENTS / self.environment / "bin" / "python"


def peers() -> list[Peer]:
    """The files of subjects: one for each environment's name, and any that begin with it and an underscore."""
    found: list[Peer] = []
    for environment in sorted(path.stem for path in REQUIREMENTS.glob("*.txt")):
        begins = environment.replace("-", "_")
        files = sorted((FOLDER / "peers").glob(f"{begins}*.py"))
        stems = [path.stem for path in files if path.stem == begins or path.stem.startswith(f"{begins}_")]
        found.extend(Peer(stem, environment) for stem in stems)
    return found


def subjects(python: str, module: str, *, quick: bool) -> list[Measured]:
    """Measure the subjects of a file, one after the other; a failed one is reported and left out."""
    listed = _output(python, module, "--list")
    names: list[str] = json.loads(listed) if listed is not None else []
    found: list[Measured] = []
    for name in names:
        printed = _output(python, module, "--only", name, *(["--quick"] if quick else []))
        if printed is not None:
            found.extend(json.loads(printed)["subjects"])
    return found


def _output(python: str, module: str, *flags: str) -> str | None:
    """Return the output of a module; empty if it fails, with its message on standard error."""
    command = [python, "-m", module, *flags]
    sys.stderr.write(f"$ python {' '.join(command[1:])}\n")
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.stderr.write(f"{module}: exit code {done.returncode}\n")
        return None
    return done.stdout.rstrip()


def measure(only: frozenset[str], *, quick: bool) -> Results:
    """Measure the parts of these names, or all."""

    def wanted(name: str) -> bool:
        return not only or name in only

    where = machine()
    found: list[Measured] = []
    for module in filter(wanted, OWN):
        found.extend(subjects(sys.executable, f"bench.{module}", quick=quick))
    missing: list[str] = []
    for peer in peers():
        if not peer.python.exists():
            missing.append(peer.module)
        elif wanted(peer.module):
            found.extend(subjects(str(peer.python), f"bench.peers.{peer.module}", quick=quick))
    streams = _output(sys.executable, "bench.streams", "--json") if wanted("streams") else None
    bodies = _output(sys.executable, "bench.bodies") if wanted("bodies") else None
    counted = _output(sys.executable, "bench.guard", "--json") if wanted("guard") else None
    return {
        "machine": where,
        "subjects": found,
        "missing": missing,
        "streams": json.loads(streams) if streams is not None else [],
        "bodies": bodies or "",
        "counts": json.loads(counted) if counted is not None else {},
    }
