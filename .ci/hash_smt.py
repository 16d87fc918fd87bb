"""Writes the hashes of the formulas that the solvers prove: `diagrams/smt.sha256`.

    python .ci/hash_smt.py [--check]

A change of the chart shows in review as changed hashes, without 10,000 lines of formulas. The lines are those of
`sha256sum` over the files of `turnwright verify --smt-export`. With `--check` it exits with 1 and names the formulas
that differ.
"""

import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

from turnwright_proof.smt.obligations import GROUPS
from turnwright_proof.smt.smt import to_smt

HASHES: Final = Path(__file__).parent.parent / "diagrams" / "smt.sha256"
_GROUPS: Final = {f"{group.name}.smt2": group for group in GROUPS}


def hash_lines() -> list[str]:
    """Return a line for each formula, sorted by its name."""
    return [f"{sha256(to_smt(group).encode()).hexdigest()}  {name}" for name, group in sorted(_GROUPS.items())]


def changed_formulas(committed: str) -> list[str]:
    """Return the names of formulas whose lines differ from those of a committed file, also added and removed ones."""
    differing = set(hash_lines()) ^ set(committed.splitlines())
    return sorted({line.rpartition(" ")[2] for line in differing})


def main() -> None:
    """Write the file, or check it."""
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    if not sys.argv[1:]:
        HASHES.write_text("".join(f"{line}\n" for line in hash_lines()), encoding="utf-8")
    elif changed := changed_formulas(HASHES.read_text(encoding="utf-8") if HASHES.is_file() else ""):
        raise SystemExit(f"diagrams/smt.sha256 is stale ({', '.join(changed)}): make diagrams")


if __name__ == "__main__":
    main()
