"""Run a session in a real terminal, and draw it with rich: docs/assets/session.svg.

    python .ci/record_session.py

Only the time of the run and the ids of its turn differ from one recording to the next.
"""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "docs" / "assets" / "session.svg"
COLUMNS, ROWS = 88, 60
RUN: Final = (
    'turnwright run --agents calculator.md --tools arithmetic.py \\\n    "What is 17 * 23? Use the multiply tool."'
)
SHOW: Final = "turnwright show {turn} --journal"
#: rich's own format loads a font from another server.
FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
#: Every color has a contrast of at least 7 on the background. `GRAY` takes the place of dimmed text, which has less.
GRAY: Final = "\x1b[90m"
THEME: Final = TerminalTheme(
    (22, 27, 34),
    (230, 237, 243),
    [
        (110, 118, 129),
        (255, 123, 114),
        (126, 231, 135),
        (242, 204, 96),
        (121, 192, 255),
        (210, 168, 255),
        (118, 227, 234),
        (230, 237, 243),
    ],
    [(170, 178, 189)] * 8,
)
_CONTROL: Final = re.compile(r"\x1b\[(?:(?P<up>\d*)A|(?P<clear>2K)|\?\d+[hl])|(?P<newline>\n)|(?P<return>\r)")


def printed_on_a_terminal(command: str, folder: Path) -> str:
    """Run a command as a person at a terminal would, and return everything that it writes."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    kept_variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "TURNWRIGHT_"))
    }
    environment = {**kept_variables, "PATH": path, "TERM": "xterm-256color"}
    with subprocess.Popen(  # noqa: S602 (our own command)
        command, shell=True, cwd=folder, env=environment, stdin=follower, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        pieces = []
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            pieces.append(piece)
    os.close(leader)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {command}")
    return b"".join(pieces).decode()


def lines_left(printed: str) -> list[str]:
    """Return the lines that stay on the screen: programs redraw only whole lines."""
    lines, row, begin = [""], 0, 0
    for control in [*_CONTROL.finditer(printed), None]:
        lines[row] += printed[begin : control.start() if control else None]
        if control is None:
            break
        begin = control.end()
        if control["newline"]:
            row += 1
            lines += [""] * (row == len(lines))
        elif control["clear"]:
            lines[row] = ""
        elif control["up"] is not None:
            row -= int(control["up"] or 1)
    return [line.rstrip() for line in lines]


def main() -> None:
    """Record the session and write its drawing."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for example in ("calculator.md", "arithmetic.py"):
            (folder / example).write_text((ROOT / "examples" / example).read_text(encoding="utf-8"), encoding="utf-8")
        turn = ""
        for template in (RUN, SHOW):
            command = template.format(turn=turn)
            lines = lines_left(printed_on_a_terminal(command, folder))
            turn = turn or re.sub(r"\x1b\[[\d;]*m", "", "\n".join(lines)).split("turn ", 1)[1][:16]
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi("\n".join(lines).strip("\n").replace("\x1b[2m", GRAY)))
            console.print()
    TARGET.write_text(
        console.export_svg(title="turnwright", theme=THEME, code_format=FORMAT, unique_id="session"), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
