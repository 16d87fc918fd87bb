"""A forked program is what `python` with the same arguments would be."""

import signal
import subprocess
from pathlib import Path

import pytest
from tests.servers.forked_python import Python

ENDING = "import atexit, sys; atexit.register(print, 'left'); print('begun', flush=True); sys.stdin.read()"

NAMED = "import sys; from pathlib import Path; print(sys.argv[1:], Path(__file__).name, __name__)"

pytestmark = pytest.mark.slow


@pytest.fixture(params=["forked", "new"])
def either(request: pytest.FixtureRequest, python: Python) -> Python:
    return python if request.param == "forked" else Python(None)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-c", "import sys; print(sys.argv, sys.path[0], __name__)", "a"], (0, "['-c', 'a']  __main__\n", "")),
        (["named.py", "a"], (0, "['a'] named.py __main__\n", "")),
        (["-m", "named", "a"], (0, "['a'] named.py __main__\n", "")),
        (["-c", "raise SystemExit('no')"], (1, "", "no\n")),
        (["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"], (-15, "", "")),
        (["-W", "error", "-c", "import warnings; warnings.warn('old')"], (1, "", "UserWarning: old\n")),
    ],
)
def test_program_ends_as_in_a_new_interpreter(
    either: Python, tmp_path: Path, words: list[str], expected: tuple[int, str, str]
) -> None:
    (tmp_path / "named.py").write_text(NAMED)
    ran = either.run(*words, folder=tmp_path)
    last_line = "".join(ran.stderr.splitlines(keepends=True)[-1:])
    assert (ran.returncode, ran.stdout, last_line) == expected


def test_killed_client_kills_the_program(either: Python) -> None:
    """As it would be killed in the place of the client: nothing is done at its exit."""
    command = [*either.command, "-c", ENDING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "begun\n"
        client.send_signal(signal.SIGKILL)
        assert client.stdout.read() == ""
