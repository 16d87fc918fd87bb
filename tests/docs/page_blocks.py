"""The code blocks of a page, in order, and how what they show is run."""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers.forked_python import Python

DOCS: Final = Path(__file__).parents[2] / "docs"
_BLOCK: Final = re.compile(r"^(?:<!-- (.+?) -->\n)?```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block: the comment above it, its language, the name of the file that it is, and its text."""

    comment: str
    language: str
    title: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """The blocks of the page of this name, in order."""
    return [Block(*(group or "" for group in match.groups())) for match in _BLOCK.finditer(text_of(page))]


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def commands_of(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it prints."""
    return [(match[1], match[2]) for match in re.finditer(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)]


class Terminal:
    """Runs commands in a folder. Its `python` is this Python, in forked processes."""

    def __init__(self, folder: Path, python: Python, **environment: str) -> None:
        self.folder = folder
        programs = folder.parent / f"{folder.name}-bin"
        programs.mkdir()
        # Wrappers, not links: a virtual environment is found by where its Python stands.
        for name, options in {"python": "", "turnwright": "-m turnwright"}.items():
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(python.command)} -W error {options} "$@"\n')
            program.chmod(0o755)
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("OPENAI_", "PYTEST_", "TURNWRIGHT_"))
        }
        path = f"{programs}{os.pathsep}{variables.get('PATH', os.defpath)}"
        self._environment = {**variables, "PATH": path, **environment}

    def run(self, command: str) -> str:
        """Run a command and return its standard output."""
        ran = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in ran.stderr, ran.stderr
        return ran.stdout


def missing_links(page: str) -> list[str]:
    """The links of a page that lead to no file."""
    prose = _BLOCK.sub("", text_of(page))
    links: list[str] = re.findall(r"\]\((?!http)([^)#]+)", prose)
    assert links
    return [link for link in links if not ((DOCS / page).parent / link).exists()]
