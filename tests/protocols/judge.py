"""Run a judge: a third party's client against a server of ours, with a line for each capability."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.servers.forked_python import Program, Python

HERE: Final = Path(__file__).parent
NODE: Final = shutil.which("node") or ""
NODE_MODULES: Final = (
    Path(os.environ.get("TURNWRIGHT_PROTOCOL_CLIENTS", Path(sys.prefix) / "protocol-clients")) / "node_modules"
)
#: A folder for the verdicts of each judge that runs, for the page about them.
RECORDS: Final = "TURNWRIGHT_JUDGES"
#: Flags of scripts that choose another judge: they are part of its name.
VARIANTS: Final = ("--rest", "--ai-7")
_LINE: Final = re.compile(r"(PASS|FAIL|SKIP) (\w+)(?:: (.*))?")


@contextmanager
def serving(python: Python, door: str, store: Path) -> Iterator[tuple[str, Program]]:
    """Serve the subject in a process of its own during the block. Yields its address and the program."""
    words = ("-m", "tests.protocols.subject_server", door, f"sqlite:///{store}/turns.db")
    with python.start(*words, folder=HERE.parents[1]) as server:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}", server


def run_judge(script: str, *arguments: str, folder: Path, seconds: float = 240) -> dict[str, tuple[str, str]]:
    """Run a judge in `folder`, and return its verdicts with their reasons, by capability."""
    command = [sys.executable, str(HERE / "judges" / script)]
    if script.endswith(".mjs"):  # modules are found beside the script
        shutil.copy(HERE / "judges" / script, folder / script)
        (folder / "node_modules").symlink_to(NODE_MODULES)
        command = [NODE, str(folder / script)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=seconds, check=False, cwd=folder
    )
    lines = [match for line in done.stdout.splitlines() if (match := _LINE.fullmatch(line))]
    assert lines, done.stdout + done.stderr
    verdicts = {match[2]: (match[1], match[3] or "") for match in lines}
    if records := os.environ.get(RECORDS):
        name = " ".join([script, *(word for word in arguments if word in VARIANTS)])
        (Path(records) / f"{name}.json").write_text(json.dumps(verdicts), encoding="utf-8")
    return verdicts
