"""Run `turnwright fuzz` on each agent of tests/seeded with a deliberate bug, and on its mended twin.

    python .ci/seeded_bugs.py [NAME ...]     (those agents; all without any, and then docs/seeded-bugs.md is written)

Exit code 0 if nine of ten bugs are found within 60 seconds each, in whose first line is the tool or the hook, and
no mended agent fails.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
SEEDED: Final = ROOT / "tests" / "seeded"
PAGE: Final = ROOT / "docs" / "seeded-bugs.md"
#: The seed, the seconds of a run, and the share of bugs that must be found.
SEED: Final = 1
SECONDS: Final = 60
SHARE: Final = 0.9
HEAD: Final = """\
# Seeded bugs

`make seeded` runs `turnwright fuzz --agents FILE:DESK` with its defaults on {total} agents, each with one deliberate
bug of a kind that users report, and on the same agents without the bug. The agents are in
[tests/seeded](../tests/seeded/README.md). Each run has one core and {seconds} seconds.

**{found} of {total} bugs are found. {green} of {total} mended agents are green.** Seconds include the start of Python.

| Agent | Kind | Found: seconds, examples | First line of the report | Mended: seconds, examples |
| --- | --- | --- | --- | --- |
"""


class Run(NamedTuple):
    """One run of the command: its exit code, its seconds, its examples, and the first line of its report."""

    code: int
    seconds: float
    examples: int
    line: str


def fuzz(name: str, twin: str) -> Run:
    """Run the command on a twin of an agent, on one core."""
    file = f"tests/seeded/{name}/{twin}.py:DESK"
    program = Path(sys.executable).with_name("turnwright")
    start = time.monotonic()
    try:
        ran = subprocess.run(  # noqa: S603 (our own command)
            [program, "fuzz", "--agents", file, "--seed", str(SEED)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            preexec_fn=use_one_core,
        )
    except subprocess.TimeoutExpired:
        return Run(-1, SECONDS, 0, "it took too long")
    lines = [line for line in ran.stderr.splitlines() if line.startswith("violated: ")]
    match = re.search(r"found in example (\d+)|played (\d+) examples", ran.stderr + ran.stdout)
    examples = int(match[1] or match[2]) if match else 0
    line = lines[0].removeprefix("violated: ") if lines else ran.stderr.strip().rpartition("\n")[2]
    return Run(ran.returncode, time.monotonic() - start, examples, line)


def use_one_core() -> None:
    """Keep this process on one core."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def is_found(name: str, run: Run) -> bool:
    """Whether the bug is found, and the first line begins with a tool or another function of the agent."""
    source = (SEEDED / name / "buggy.py").read_text(encoding="utf-8")
    functions = re.findall(r"def (\w+)", source)
    subject = run.line.partition(": ")[0]
    return run.code == 1 and any(part.removeprefix("hook ") in functions for part in subject.split(", "))


def kinds() -> Mapping[str, str]:
    """Return the kind of each agent's bug, from the table of the README."""
    table = (SEEDED / "README.md").read_text(encoding="utf-8").partition("| Agent |")[2]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE))


def rows(runs: Sequence[tuple[str, Run, Run]]) -> Iterator[str]:
    """Return the rows of the page's table."""
    kind_of = kinds()
    for name, buggy, mended in runs:
        effort = f"{buggy.seconds:.1f}, {buggy.examples}" if is_found(name, buggy) else "**no**"
        line = re.sub(r"[|`]", " ", buggy.line)[:70]
        green = f"{mended.seconds:.0f}, {mended.examples}" if mended.code == 0 else "**failed**"
        cells = [f"`{name}`", kind_of[name], effort, f"`{line}`", green]
        yield f"| {' | '.join(cells)} |"


def main(names: Sequence[str]) -> int:
    """Run the command on the agents of these names, or on all."""
    chosen = names or sorted(kinds())
    runs: list[tuple[str, Run, Run]] = []
    for name in chosen:
        runs.append((name, fuzz(name, "buggy"), fuzz(name, "mended")))
        print(*rows(runs[-1:]), flush=True)
    found_count = sum(is_found(name, buggy) for name, buggy, _ in runs)
    green_count = sum(mended.code == 0 for _, _, mended in runs)
    print(f"{found_count} of {len(runs)} found, {green_count} mended agents are green")
    if not names:
        head = HEAD.format(total=len(runs), found=found_count, green=green_count, seconds=SECONDS)
        PAGE.write_text(head + "\n".join(rows(runs)) + "\n", encoding="utf-8")
    return 0 if found_count >= SHARE * len(runs) and green_count == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
