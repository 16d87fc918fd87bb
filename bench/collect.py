"""Measures part by part, each in a process of its own, subjects in their environments, and keeps each result at once.

A part is a file of subjects, `streams`, `bodies`, `guard`, `reads`, or a part of `bench.program`. What failed is
reported, and left out. A run that was interrupted is resumed: what it has measured is not measured again.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from bench.measure import LONGEST_S
from bench.program import MEASURED
from bench.results import FOLDER, Known, Measured, Results, Taken, machine, now

ROOT: Final = FOLDER.parent
ENVIRONMENTS: Final = ROOT / ".venv-peers"
REQUIREMENTS: Final = FOLDER / "peers" / "requirements"
#: The measurements of peers that the page of results needs.
COMPARED: Final = frozenset({"steps", "results", "queue"})
#: Our own subjects, by the name of their file, and the module that measures them.
OWN: Final = {"bare": "bench.measure", "turnwright_turns": "bench.turnwright_turns"}


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
    peers: list[Peer] = []
    for environment in sorted(path.stem for path in REQUIREMENTS.glob("*.txt")):
        begins = environment.replace("-", "_")
        files = sorted((FOLDER / "peers").glob(f"{begins}*.py"))
        stems = [path.stem for path in files if path.stem == begins or path.stem.startswith(f"{begins}_")]
        peers.extend(Peer(stem, environment) for stem in stems)
    return peers


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the results that it adds to, and what is asked of it.

    `only` are the parts, and `measures` the measurements of subjects: all of them where none is named, but of peers
    `COMPARED` alone, unless the run is `full`. `resume` continues with the last run. `keep` is called after each
    measurement.
    """

    results: Results
    keep: Callable[[Results], None]
    only: frozenset[str] = frozenset()
    measures: frozenset[str] = frozenset()
    quick: bool = False
    full: bool = False
    resume: bool = False

    def measure(self) -> None:
        """Measure all that is asked for."""
        if not self.resume:
            self.results["run"] = now()
        self.results["machine"] = machine()
        self.results["missing"] = [peer.module for peer in peers() if not peer.python.exists()]
        for module in filter(self._wanted, OWN):
            self._file(sys.executable, OWN[module])
        for peer in peers():
            if self._wanted(peer.module) and peer.python.exists():
                self._file(str(peer.python), f"bench.peers.{peer.module}")
        results = self.results
        self._part("streams", ["bench.streams", "--json"], lambda text: results.update({"streams": json.loads(text)}))
        self._part("bodies", ["bench.bodies"], lambda text: results.update({"bodies": text}))
        self._part("guard", ["bench.guard", "--json"], lambda text: results.update({"counts": json.loads(text)}))
        self._part("reads", ["bench.reads"], lambda text: results.update({"reads": json.loads(text)}))
        for name in MEASURED:
            self._part(name, ["bench.program", name], lambda text: results["figures"].update(json.loads(text)))

    def _wanted(self, part: str) -> bool:
        return not self.only or part in self.only

    def _part(self, name: str, command: list[str], put: Callable[[str], object]) -> None:
        """Measure a part without subjects."""
        if not self._wanted(name) or self._is_done(self.results["taken"], name):
            return
        start = self._taken()
        printed, _ = _output(sys.executable, *command)
        if printed is not None:
            put(printed)
            self.results["taken"][name] = _ended(start)
            self.keep(self.results)

    def _file(self, python: str, module: str) -> None:
        """Measure the subjects of a file, one after the other."""
        chosen = self.measures or (frozenset[str]() if self.full or module in OWN.values() else COMPARED)
        listed, _ = _output(python, module, "--list", *(["--quick"] if self.quick else []))
        for subject_row, parts in json.loads(listed or "[]"):
            subject = self._subject(subject_row)
            for part in parts:
                is_chosen = not chosen or part.partition(" ")[0] in chosen or part in chosen
                if is_chosen and not self._is_done(subject["taken"], part):
                    self._subject_part(subject, python, module, part)

    def _subject(self, known_subject: Known) -> Measured:
        """The record of a subject. Nothing is kept of another version of its first package."""
        subjects = self.results["subjects"]
        old = next((subject for subject in subjects if subject["name"] == known_subject["name"]), None)
        if old is None or [*old["versions"].items()][:1] != [*known_subject["versions"].items()][:1]:
            subjects[:] = [*(subject for subject in subjects if subject is not old), cast("Measured", known_subject)]
            return subjects[-1]
        updated = cast(
            "Measured", {**known_subject, "flight": old["flight"], "failed": old["failed"], "taken": old["taken"]}
        )
        old.update(updated)
        return old

    def _subject_part(self, subject: Measured, python: str, module: str, part: str) -> None:
        measure, _, turns = part.partition(" ")
        why = _hopeless(subject, int(turns) // 10) if measure == "flight" and not self.quick else None
        start = self._taken()
        printed = None
        if why is None:
            flags = ["--quick"] if self.quick else []
            printed, why = _output(python, module, "--only", subject["name"], "--part", part, *flags, limit=LONGEST_S)
        if printed is None:
            subject["failed"][part] = why or "failed"
        else:
            subject["failed"].pop(part, None)
            _put(subject, json.loads(printed.splitlines()[-1]))
        subject["taken"][part] = _ended(start)
        self.keep(self.results)

    def _is_done(self, taken_parts: dict[str, Taken], name: str) -> bool:
        return self.resume and name in taken_parts and taken_parts[name]["run"] == self.results["run"]

    def _taken(self) -> Taken:
        return {"run": self.results["run"], "seconds": time.perf_counter(), "load": os.getloadavg()[0]}


def _ended(start: Taken) -> Taken:
    return {**start, "seconds": round(time.perf_counter() - start["seconds"], 1)}


def _put(subject: Measured, figures: dict[str, Any]) -> None:
    """Put a measurement beside the others; turns in flight are one of several."""
    subject["flight"].update(figures.pop("flight", {}))
    cast("dict[str, Any]", subject).update(figures)


def _hopeless(subject: Measured, tenth: int) -> str | None:
    """Return why ten times as many turns cannot be tried; None if they can."""
    if f"flight {tenth}" in subject["failed"]:
        return f"not tried, for {tenth:,} failed"
    flight = subject["flight"].get(str(tenth))
    if flight is not None and flight["cpu_s"] * 10 > LONGEST_S / 2:
        return f"not tried, for {tenth:,} took {flight['cpu_s']:,.0f} s of CPU"
    return None


def _output(python: str, *command: str, limit: float | None = None) -> tuple[str | None, str | None]:
    """Return the output of a module, or why there is none."""
    sys.stderr.write(f"$ python -m {' '.join(command)}\n")
    try:
        done = subprocess.run(  # noqa: S603 (our own modules)
            [python, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return None, f"took longer than {limit:,.0f} s"
    if done.returncode:
        sys.stderr.write(done.stderr[-4_000:])
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]
    return done.stdout.rstrip(), None
