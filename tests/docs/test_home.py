"""Check docs/index.md against the README: one pitch, and the same commands."""

from .repository_pages import DOCS, ROOT, blocks

PAGE = (DOCS / "index.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_pitch_and_commands_equal_the_readme() -> None:
    assert PAGE.splitlines()[2] == README.splitlines()[2]
    (commands,) = (block.text for block in blocks(PAGE) if block.language == "console")
    assert commands in README
