"""Write the generated documentation: the API, the reasons, and `llms.txt`.

    python .ci/make_reference.py [--check]

`--check` writes nothing, names what is stale, and exits with 1 if anything is. Nothing depends on the width of a
terminal, on the machine or on the day.
"""

import sys
from pathlib import Path
from typing import Final

import reference_api
import reference_llms
import reference_reasons

DOCS: Final = Path(__file__).parent.parent / "docs"


def pages() -> dict[str, str]:
    """The text of every page that is made, by its path below docs/."""
    return {
        **reference_api.pages(),
        "reasons.md": reference_reasons.page((DOCS / "reasons.md").read_text(encoding="utf-8")),
    }


def is_stale(name: str, text: str) -> bool:
    """Whether a file is missing, or has another content."""
    path = DOCS / name
    return not path.is_file() or path.read_text(encoding="utf-8") != text


def main() -> None:
    """Write, or check."""
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    texts = pages()
    over = sorted(str(path.relative_to(DOCS)) for path in (DOCS / "api").glob("*.md"))
    over = [name for name in over if name not in texts]
    if sys.argv[1:]:
        # What llms.txt quotes of a stale page is another's fault.
        stale = [name for name, text in (texts | {"llms.txt": reference_llms.text()}).items() if is_stale(name, text)]
        print("".join(f"docs/{name} is stale: make reference\n" for name in stale + over), end="")
        raise SystemExit(bool(stale + over))
    for name in over:
        (DOCS / name).unlink()
    for name, text in texts.items():
        (DOCS / name).write_text(text, encoding="utf-8")
    (DOCS / "llms.txt").write_text(reference_llms.text(), encoding="utf-8")


if __name__ == "__main__":
    main()
