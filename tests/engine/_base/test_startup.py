"""Ctrl-C at the very beginning: from the package's first module on it ends the command line without a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnwright._base import startup

#: Presses Ctrl-C as soon as a module is looked for that was not loaded when the package's first module began.
PRESSES = """
import sys, _signal

class Pressed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if "turnwright._base.startup" in sys.modules:
            print("pressed before", name, flush=True)
            sys.meta_path.remove(Pressed)
            _signal.raise_signal(_signal.SIGINT)

sys.meta_path.insert(0, Pressed)
"""
SCRIPT = "from turnwright.cli import main\n\nmain()\n"


@pytest.mark.parametrize("how", ["-m turnwright", "turnwright", "turnwright.exe"])
def test_ctrl_c_during_early_imports_ends_without_a_traceback(tmp_path: Path, how: str) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(PRESSES)
    if how.startswith("-m"):
        command = how.split()
    else:
        command = [str(tmp_path / how)]
        Path(command[0]).write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": str(hooks)}
    done = subprocess.run(
        [sys.executable, *command, "--version"], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stderr) == (startup.INTERRUPTED, "")
    assert done.stdout.startswith("pressed before ")


def test_embedding_program_keeps_the_ctrl_c_handler() -> None:
    code = "import signal, turnwright; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_startup_module_loads_only_preloaded_modules() -> None:
    code = (
        "import sys\n"
        f"text, before = open({startup.__file__!r}, encoding='utf-8').read(), set(sys.modules)\n"
        "exec(text, {'__package__': 'turnwright'})\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
