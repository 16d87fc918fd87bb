"""SPIN as a program: a Promela model becomes a verifier (`pan`), which searches, reports and replays.

Nothing here depends on the content of a model. SPIN's output is read strictly: a search is complete only when every
known line of its report says so. Any other output is a `NoAnswerError`, which is never a pass.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_MODEL: Final = "turn.pml"
#: Compilers by names under which SPIN can also call them as its preprocessor.
_COMPILERS: Final = ("cc", "gcc", "clang")
_INSTALL: Final = "install it (`apt-get install {deb}`, `brew install {brew}`)"
#: Megabytes: the search must fail before the machine has no memory left.
_MEMORY: Final = 4096
#: Steps of the deepest path: SPIN's default of 10,000 may be too few for a faulty chart, and is not cheaper.
_DEPTH: Final = 100_000
#: The signs of an incomplete search, each with its meaning.
_CUT_SHORT: Final = (
    ("max search depth too small", "a path is longer than the search may go"),
    ("reached -DMEMLIM bound", f"the states need more than {_MEMORY:,} MB"),
    ("out of memory", "the machine has no memory left"),
    ("hash-compact", "the states were not stored in full"),
    ("bit statespace", "the states were not stored in full"),
)

_FAULT: Final = re.compile(r"^pan:\d+: (.+?)(?:  .*| \(.*)?$", re.MULTILINE)
_DEPTH_ERRORS: Final = re.compile(r"^State-vector \d+ byte, depth reached (\d+), errors: (\d+)$", re.MULTILINE)
_STATES: Final = re.compile(r"^ *(\d+) states, stored", re.MULTILINE)
_TRANSITIONS: Final = re.compile(r"^ *(\d+) transitions", re.MULTILINE)
_MEMORY_USED: Final = re.compile(r"^ *([\d.]+)\ttotal actual memory usage", re.MULTILINE)
_SECTION: Final = re.compile(r"^unreached in (?:proctype|init|claim) (\w+)\n((?:\t.*\n)*)", re.MULTILINE)
_LINE: Final = re.compile(rf"^\t{re.escape(_MODEL)}:(\d+), state", re.MULTILINE)
_CYCLE: Final = "<<<<<START OF CYCLE>>>>>"

#: A function that finds a program by its name, as `shutil.which` does.
Which = Callable[[str], str | None]


class NoAnswerError(Exception):
    """SPIN could not run, or did not finish. The message gives the reason and, if there is one, the remedy."""


class Tools(NamedTuple):
    """The paths of the programs, and the compiler's name, which SPIN calls."""

    spin: str
    compiler: str
    compiler_name: str


class SpinSearch(NamedTuple):
    """The result of one search. `fault` is SPIN's word for the fault; empty when the complete search found none."""

    fault: str
    states: int
    transitions: int
    depth: int
    megabytes: float
    #: The lines of the model that no path reached, by process.
    unreached: dict[str, frozenset[int]]


class Trail(NamedTuple):
    """The lines that a model printed on the path to a fault, and the values of its variables there.

    `cycle` is the line where a repetition starts, if there is one.
    """

    lines: tuple[str, ...]
    cycle: int | None

    def name_of(self, value: str) -> str:
        """Return the model's name for a value of an `mtype`, because SPIN's verifier prints only numbers."""
        found = re.search(rf"^\tmtype  (\w+):\t{re.escape(value)}$", "\n".join(self.lines), re.MULTILINE)
        return found[1] if found else value


def find(which: Which) -> Tools:
    """Return the programs that a search needs. Raises `NoAnswerError` with the command that installs a missing one."""
    spin = which("spin")
    if spin is None:
        raise NoAnswerError(f"`spin` is not on PATH: {_INSTALL.format(deb='spin', brew='spin')}")
    for name in _COMPILERS:
        if compiler := which(name):
            return Tools(spin, compiler, name)
    raise NoAnswerError(f"no C compiler ({', '.join(_COMPILERS)}) is on PATH: {_INSTALL.format(deb='gcc', brew='gcc')}")


class Pan:
    """A verifier, compiled from a model in its own directory.

    `define` is a name for the model's preprocessor. Without `claims`, the verifier searches for deadlocks instead.
    `until` is the monotonic time at which every search stops. Raises `NoAnswerError` when SPIN refuses the model, or
    the compiler refuses SPIN's output.
    """

    def __init__(
        self,
        model: str,
        directory: Path,
        tools: Tools,
        *,
        until: float,
        define: str = "",
        claims: bool = True,
        optimize: bool = True,
    ) -> None:
        self._directory, self._until = directory, until
        directory.mkdir(exist_ok=True)
        (directory / _MODEL).write_text(model, encoding="utf-8")
        defined = [f"-D{define}"] if define else []
        self._made([tools.spin, "-a", f"-P{tools.compiler_name} -E -x c", *defined, _MODEL], "SPIN refused the model")
        flags = [] if claims else ["-DSAFETY", "-DNOCLAIM"]
        # -Og compiles in half the time of -O2, and the search is as fast.
        build = [
            tools.compiler,
            "-Og" if optimize else "-O0",
            "-w",
            f"-DMEMLIM={_MEMORY}",
            *flags,
            "-o",
            "pan",
            "pan.c",
        ]
        self._made(build, "the verifier did not compile")

    def search(self, claim: str = "", *, fair: bool = False, depth: int = _DEPTH) -> SpinSearch:
        """Search every state, up to the first fault. `fair`: a process that can always act does act.

        `depth` is the length in steps of the longest path that is followed. Raises `NoAnswerError` when the search was
        incomplete and found no fault.
        """
        (self._directory / f"{_MODEL}.trail").unlink(missing_ok=True)
        said = self._run(self._pan(claim, f"-m{depth}", "-w20", *(["-f"] if fair else []))).stdout
        return read_report(said, claim)

    def replay(self, claim: str = "") -> Trail:
        """Return the trail of the fault that was found last."""
        # -S: only what the model itself prints.
        before, cycle, after = self._run(self._pan(claim, "-r", "-S")).stdout.partition(_CYCLE)
        lines = tuple(before.splitlines())
        return Trail((*lines, *after.splitlines()), len(lines) if cycle else None)

    def _pan(self, claim: str, *flags: str) -> list[str]:
        return [str(self._directory / "pan"), *(["-a", "-N", claim] if claim else []), *flags]

    def _made(self, command: list[str], otherwise: str) -> None:
        done = self._run(command)
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise NoAnswerError(f"{otherwise}: {' / '.join(said[-3:])}")

    def _run(self, command: list[str]) -> "subprocess.CompletedProcess[str]":
        seconds = max(self._until - time.monotonic(), 0.0)
        try:
            return _finished(command, self._directory, seconds)
        except subprocess.TimeoutExpired:
            raise NoAnswerError(
                "the time ended before SPIN had searched every state: allow more time, or lower the bounds"
            ) from None
        except OSError as error:
            raise NoAnswerError(f"{Path(command[0]).name} could not be run: {error.strerror}") from None


def _finished(command: list[str], directory: Path, seconds: float) -> "subprocess.CompletedProcess[str]":
    """Run a program until it and all its children have ended, because each of them writes into `directory`."""
    with subprocess.Popen(  # noqa: S603 (programs that PATH names and the one just built, no shell)
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        process_group=0,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            # The group, because SPIN and compilers start other programs. Each keeps the pipes open until it ends, so
            # the second `communicate` returns when nothing writes into the directory any more.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def read_report(said: str, claim: str = "") -> SpinSearch:
    """Parse the output of a search. Raises `NoAnswerError` for anything but a report on the claim."""
    counts = [pattern.search(said) for pattern in (_STATES, _TRANSITIONS, _MEMORY_USED)]
    reached = _DEPTH_ERRORS.search(said)
    if reached is None or None in counts or (claim and f"({claim})" not in said):
        raise NoAnswerError(f"SPIN printed no report: {' / '.join(said.split(chr(10))[-3:])!r}")
    states, transitions, megabytes = (float(found[1]) for found in counts if found)
    fault = _FAULT.search(said)
    if int(reached[2]) == 0:
        _need_everything(said)
    elif fault is None:
        raise NoAnswerError("SPIN counts an error without its name")
    return SpinSearch(
        fault=fault[1] if fault and int(reached[2]) else "",
        states=int(states),
        transitions=int(transitions),
        depth=int(reached[1]),
        megabytes=megabytes,
        unreached={name: frozenset(map(int, _LINE.findall(lines))) for name, lines in _SECTION.findall(said)},
    )


def _need_everything(said: str) -> None:
    for sign, why in _CUT_SHORT:
        if sign in said:
            raise NoAnswerError(f"the search was cut short: {why}: lower the bounds")
    if "Full statespace search for:" not in said or "Search not completed" in said:
        raise NoAnswerError("SPIN does not report a complete search")
