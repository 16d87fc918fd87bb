"""Serves the subject over ACP on standard input and output, with a store in a folder."""

import sys

import anyio
from tests.protocols.subject import AGENT, make_engine

from turnwright_protocols.acp import serve_acp


async def main(folder: str) -> None:
    """Serve until the client closes the streams."""
    async with make_engine(f"sqlite:///{folder}/turns.db") as engine:
        await serve_acp(engine, [AGENT])


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
