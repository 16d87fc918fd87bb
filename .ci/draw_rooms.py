"""Draws the rooms of the house from the import contract: `diagrams/rooms.svg`.

    python .ci/draw_rooms.py [--check]

Each line of the contract in `pyproject.toml` is a floor, and a room may import from the floors below it. What a room is
for is the first sentence of its docstring. `--check` writes nothing, and exits with 1 when the picture is stale.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PICTURE: Final = ROOT / "diagrams" / "rooms.svg"

_WIDTH: Final = 900
_FLOOR: Final = 30
_TOP: Final = 44
_BOX: Final = 230
_TEXT: Final = 88

_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #1c2430; }
  .title { font-weight: 600; font-size: 15px; }
  .name { font-family: ui-monospace, monospace; font-weight: 600; }
  .for { fill: #4a5565; }
  .paper { fill: #ffffff; }
  .room { fill: #eef3fa; stroke: #9db4d0; }
  .arrow { stroke: #9db4d0; fill: none; }
"""


def floors() -> list[list[str]]:
    """The rooms of each floor, as the contract has them, the top floor first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    packages, rooms = (
        next(
            contract["layers"]
            for contract in contracts
            if contract["type"] == "layers" and contract.get("containers", []) == containers
        )
        for containers in ([], ["turnwright"])
    )
    above = packages[: packages.index("turnwright")]
    return [*([room.strip() for room in floor.split("|")] for floor in [*above, *rooms]), ["turnwright_states"]]


def folder_of(room: str) -> Path:
    """The folder of a room of the engine, or of a package."""
    if room == "turnwright_states":
        return ROOT / "states"
    if room.startswith("turnwright_"):
        return ROOT / "packages" / room.removeprefix("turnwright_")
    return ROOT / "engine" / "turnwright"


def purpose(room: str) -> str:
    """The first sentence of a room's docstring."""
    base = folder_of(room) / room
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    sentence = " ".join(docstring.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _TEXT else f"{sentence[: _TEXT - 3].rsplit(' ', 1)[0]} ..."


def drawing() -> str:
    """The picture."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    house = floors()
    height = _TOP + sum(_FLOOR * len(floor) + 10 for floor in house) + 6
    label = "The rooms of Turnwright, floor above floor: each may import from the floors below it"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">'
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="paper" width="{_WIDTH}" height="{height}"/>'
    yield f'<text class="title" x="14" y="26">{label}</text>'
    y = _TOP
    for floor in house:
        for room in floor:
            yield f'<rect class="room" x="14" y="{y}" width="{_BOX}" height="{_FLOOR - 4}" rx="4"/>'
            yield f'<text class="name" x="24" y="{y + 18}">{escape(room)}</text>'
            yield f'<text class="for" x="{_BOX + 26}" y="{y + 18}">{escape(purpose(room))}</text>'
            y += _FLOOR
        y += 10
        if floor is not house[-1]:
            yield f'<path class="arrow" d="M{14 + _BOX // 2} {y - 14}v10m-4 -4l4 4l4 -4"/>'
    yield "</svg>"


def main() -> None:
    """Write, or check."""
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    if not sys.argv[1:]:
        PICTURE.write_text(drawing(), encoding="utf-8")
    elif not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != drawing():
        raise SystemExit("diagrams/rooms.svg is stale: make diagrams")


if __name__ == "__main__":
    main()
