"""Markdown on a terminal. Loaded with the first answer that needs it: rich's Markdown takes 0.1 s to import."""

from typing import Final

from markdown_it import MarkdownIt
from rich.markdown import Markdown

from turnwright.privacy.invisible import escape_invisible

#: Rules that would drop a part of the text: a picture's address, a definition of a link, an HTML entity.
_LOSSY: Final = ("image", "reference", "entity")


class RenderedMarkdown(Markdown):
    """A model's text as Markdown.

    Nothing of the text is lost: HTML stays text, an address is printed behind its link, and a line break stays one.
    Links are not terminal hyperlinks, because those hide where they lead.
    """

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).disable(_LOSSY).enable(["strikethrough", "table"])
        self.parsed = parser.parse(escape_invisible(text))
        for block in self.parsed:
            for token in block.children or ():
                if token.type == "softbreak":
                    token.type = "hardbreak"
