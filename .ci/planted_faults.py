"""Plant faults in a copy of the engine, one at a time, and check that a property notices each of them.

    python .ci/planted_faults.py [WORD ...]     (the faults whose names contain a word; all without any)

`.ci/planted_faults.toml` lists the faults: a file, a text in it and its replacement, and the properties that must
fail. The named properties are run without a fault first, and must pass. A fault is caught if each of its properties
fails, and survives if one of them passes. A run that breaks off for another reason, such as a module that cannot be
imported, is inconclusive. A property that hangs fails by the time-out of a test. Exit code 0 when all faults are
caught, else 1.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal, NamedTuple

ROOT: Final = Path(__file__).parents[1]
LISTED: Final = Path(__file__).with_suffix(".toml")
PLACE: Final = ROOT / "build" / "planted"
#: What a run of the tests needs.
COPIED: Final = ("engine", "states", "packages", "tests", "pyproject.toml")
#: Seconds of one test, and of a whole run, which the tests' own time-out should never let happen.
TEST_SECONDS: Final = 300
RUN_SECONDS: Final = 1800

Verdict = Literal["caught", "survived", "inconclusive"]


class ListError(Exception):
    """The list has a fault that cannot be planted."""


class Fault(NamedTuple):
    """A fault: its name, the kind that it belongs to, its place, and the ids of the tests that must fail."""

    name: str
    kind: str
    file: str
    text: str
    instead: str
    caught_by: tuple[str, ...]

    def planted(self, root: Path = ROOT) -> str:
        """Return the source with the fault. Raises `ListError` if its text is not found exactly once."""
        source = (root / self.file).read_text(encoding="utf-8")
        count = source.count(self.text)
        if count != 1 or self.text == self.instead:
            why = f"its text is found {count} times, not once" if count != 1 else "its text and `instead` are the same"
            raise ListError(f"{LISTED.name}: {self.name!r}, {self.file}: {why}: copy it from the file again")
        return source.replace(self.text, self.instead)


class Run(NamedTuple):
    """A run of tests: the ids of those that failed, how many passed, and the first error that pytest shows."""

    code: int
    failed: frozenset[str]
    error: str
    seconds: float


def main(words: list[str]) -> int:
    """Run the properties with and without the faults, and report."""
    faults = [fault for fault in listed() if not words or any(word in fault.name for word in words)]
    if not faults:
        sys.exit(f"no fault's name contains {' or '.join(words)}")
    shutil.rmtree(PLACE, ignore_errors=True)
    sound = run(PLACE / "sound", {test for fault in faults for test in fault.caught_by})
    if sound.code:
        sys.exit(f"without a fault the properties do not pass: {sound.error or f'exit code {sound.code}'}")
    print(f"without a fault all properties pass ({sound.seconds:.0f} s)")
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(processors()) as pool:
        for fault, (verdict, detail) in zip(faults, pool.map(judge, faults), strict=True):
            verdicts.append(verdict)
            print(f"{verdict:12} {fault.kind}: {fault.name} {detail}", flush=True)
    print(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("caught", "survived", "inconclusive")))
    return 0 if set(verdicts) == {"caught"} else 1


def listed() -> list[Fault]:
    """Return the faults of the list."""
    entries = tomllib.loads(LISTED.read_text(encoding="utf-8"))["fault"]
    return [Fault(**{**entry, "caught_by": tuple(entry["caught_by"])}) for entry in entries]


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def judge(fault: Fault, place: Path = PLACE) -> tuple[Verdict, str]:
    """Plant a fault in a copy in `place`, and run its properties. Returns the verdict and what is to say about it."""
    tried = run(place / re.sub(r"\W+", "_", fault.name), fault.caught_by, fault)
    passed_tests = sorted(set(fault.caught_by) - tried.failed)
    if tried.code not in (0, 1) or "hypothesis.errors.FailedHealthCheck" in tried.error:
        return "inconclusive", f"\n    {tried.error or f'exit code {tried.code}'}"
    if passed_tests:
        return "survived", f"\n    passed: {', '.join(passed_tests)}"
    return "caught", f"({tried.seconds:.0f} s)\n    {tried.error}"


def run(place: Path, tests: Collection[str], fault: Fault | None = None) -> Run:
    """Run tests in a copy at `place`, with a fault if one is given. The copy is removed afterwards."""
    lay_out(place, fault)
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"]
    paths = os.pathsep.join(map(str, (place / "engine", place / "states", *(place / "packages").iterdir())))
    environment = os.environ | {"PYTHONPATH": paths, "HYPOTHESIS_PROFILE": "planted"}
    try:
        done = subprocess.run(  # noqa: S603 (our own arguments)
            [*command, *sorted(tests)],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Run(-1, frozenset(), f"it did not end within {RUN_SECONDS} s", RUN_SECONDS)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Run(done.returncode, failed(done.stdout.splitlines()), error(done.stdout), time.monotonic() - start)


def lay_out(place: Path, fault: Fault | None) -> None:
    """Copy the code and its tests. Files keep their times, so that their bytecode is valid in the copy too."""
    place.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, place / name)
    if fault is not None:
        (place / fault.file).write_text(fault.planted(), encoding="utf-8")


def failed(lines: Iterable[str]) -> frozenset[str]:
    """Return the ids of the tests that failed, without parameters. A test whose fixture broke is none of them."""
    matches = (re.match(r"FAILED (\S+?)(\[| |$)", line) for line in lines)
    return frozenset(match[1] for match in matches if match is not None)


def error(output: str) -> str:
    """Return the first error that pytest shows, on one line; of a test that hung, that it did."""
    if "from pytest-timeout" in output:
        return f"a test did not end within {TEST_SECONDS} s"
    match = re.search(r"^E +(?!\+|\|)(.+(?:\nE .+)?)|^FAILED .+", output, re.MULTILINE)
    if match and match[1] is None:
        return match[0]
    return " ".join(match[1].replace("\nE ", " ").split())[:200] if match else ""


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ListError as unplantable:
        sys.exit(str(unplantable))
