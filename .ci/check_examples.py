"""Checks the types of all Python examples in the Markdown files, as a reader's own checker would.

Each block becomes a file, at the lines that it has in its page, and one strict run of mypy and one of pyright check all
of them. A block that is a file (`title="app.py"`) keeps its name, so that later blocks can import it. A block that is a
piece of a program has a comment above it that declares what the rest of the program would: `<!-- given: x: int -->`.
A block that is `<!-- part of FILE -->` is left out, because `make check` checks that file.
"""

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "examples"
sys.path.insert(0, str(ROOT / "tests" / "docs"))

from repository_pages import PAGES, Block, blocks, name_of  # noqa: E402 (after the path is set)


def examples() -> Iterator[tuple[Path, Block, str]]:
    """Every Python block with its page, and the name of the file for it: the last one of a title has the title."""
    for page in PAGES:
        python_blocks = [block for block in blocks(page.read_text(encoding="utf-8")) if block.language == "python"]
        python_blocks = [
            block for block in python_blocks if not any(comment.startswith("part of ") for comment in block.comments)
        ]
        last = {block.title: block for block in python_blocks}
        for number, block in enumerate(python_blocks):
            plain = re.sub(r"\W", "_", f"{page.relative_to(ROOT).with_suffix('')}_{number}")
            yield page, block, block.title if block.title and last[block.title] is block else f"{plain}.py"


def as_module(block: Block) -> str:
    """The block as a module in which each line has the number that it has in the page."""
    given_lines = [comment.removeprefix("given: ") for comment in block.comments if comment.startswith("given: ")]
    text, head = block.text, "; ".join(given_lines)
    try:
        compile(text, "example", "exec")
    except SyntaxError:  # it awaits, as a part of a coroutine
        text, inner = textwrap.indent(text, "    "), "async def main() -> None:"
        return f"{head}\n".rjust(block.line - 2 + len(head), "\n") + f"{inner}\n{text}"
    return f"{head}\n".rjust(block.line - 1 + len(head), "\n") + text


def main() -> int:
    """Return 0 when both checkers accept every example."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    pages: dict[str, str] = {}
    for page, block, name in examples():
        if name in pages:
            sys.exit(f"{name_of(page)} and {pages[name]} both have a file {name}: rename one of them")
        (FOLDER / name).write_text(as_module(block), encoding="utf-8")
        pages[name] = name_of(page)
    config = FOLDER / "pyrightconfig.json"
    # mypy reports missing packages, except for the frameworks that only environments of their own have.
    settings = {
        "reportMissingImports": False,
        "venvPath": "../..",
        "venv": ".venv",
        "extraPaths": ["../../examples/from_a_loop"],
    }
    config.write_text(json.dumps(settings))
    checkers = [
        [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), *pages],
        [sys.executable, "-m", "pyright", "--project", str(config)],
    ]
    failed = False
    for command in checkers:
        ran = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)  # noqa: S603 (our own)
        failed |= ran.returncode != 0
        output = re.sub(
            r"(?:\S*/)?(\w+\.py)(?=:\d+)", lambda match: pages.get(match[1], match[1]), ran.stdout + ran.stderr
        )
        sys.stdout.write(output)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
