"""A translator that writes a letter, paragraph by paragraph."""

from typing import Final

import anyio

from turnwright import Agent, ToolContext, tool

#: The call and the text of each paragraph.
LETTER: Final[list[tuple[str, str]]] = []


def reset() -> None:
    """Start with an empty letter."""
    LETTER.clear()


@tool
async def translate_paragraph(ctx: ToolContext, text: str) -> str:
    """Translate the next paragraph of the letter, and append it."""
    await anyio.sleep(0.001 * len(text))
    LETTER.append((ctx.idempotency_key, text.upper()))
    return "translated"


DESK = Agent(name="Translator", instructions="Translate letters.", tools=("translate_paragraph",))


def invariant_paragraphs_keep_their_order() -> None:
    """The paragraphs of a turn are in the order of their calls."""
    turns = {call.partition(":")[0] for call, _ in LETTER}
    for turn in turns:
        calls = [call for call, _ in LETTER if call.startswith(turn)]
        assert calls == sorted(calls), f"the paragraphs are in the order {calls}"
