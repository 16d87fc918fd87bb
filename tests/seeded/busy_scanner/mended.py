"""A scanner that serves one person at a time, by a flag that is kept by hand."""

from typing import Annotated, Final

import anyio
from pydantic import Field

from turnwright import Agent, ToolError, tool

DOCUMENTS: Final = {"d1": "a contract", "d2": "an invoice"}
SCANNER: Final = {"busy": False}


def reset() -> None:
    """Start with an idle scanner."""
    SCANNER["busy"] = False


@tool
async def scan(document: Annotated[str, Field(examples=[*DOCUMENTS])]) -> str:
    """Scan a document."""
    if SCANNER["busy"]:
        raise ToolError("the scanner is busy")
    SCANNER["busy"] = True
    try:
        if document not in DOCUMENTS:
            raise ToolError(f"there is no document {document}")
        await anyio.sleep(1)
    finally:
        SCANNER["busy"] = False
    return f"scanned {DOCUMENTS[document]}"


DESK = Agent(name="Copy shop", instructions="Scan documents.", tools=("scan",))
