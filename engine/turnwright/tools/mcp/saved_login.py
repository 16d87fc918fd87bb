"""Logins at MCP servers, each in a file that only its owner can read. A journal has none of them."""

import logging
import os
import re
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turnwright._base.regular_files import read_regular

from .config import McpServer

_LOG: Final = logging.getLogger(__name__)
_MAX_BYTES: Final = 1024 * 1024
_DIGITS: Final = 16


class SavedLogin(BaseModel):
    """The tokens of a login, and all that their refresh needs in another process."""

    model_config = ConfigDict(hide_input_in_errors=True)

    server: str = ""
    client: OAuthClientInformationFull | None = Field(default=None, repr=False)
    tokens: OAuthToken | None = Field(default=None, repr=False)
    #: The time at which the access token expires, in seconds since 1970. None if unknown.
    expires_at: float | None = None
    resource: ProtectedResourceMetadata | None = None
    authorization_server: OAuthMetadata | None = None
    #: Scopes that a call has lacked. The next login asks for them too.
    lacking: str = ""

    @property
    def secrets(self) -> list[str]:
        """The values that no message may show."""
        values = (
            self.tokens and self.tokens.access_token,
            self.tokens and self.tokens.refresh_token,
            self.client and self.client.client_secret,
        )
        return [value for value in values if value]


class LoginFile:
    """The file of a server's login. Servers with one address and one client share it, whatever their names are.

    `folder` is by default `turnwright/mcp` in `$XDG_STATE_HOME`, or else in `~/.local/state`.
    """

    def __init__(self, server: McpServer, folder: Path | None = None) -> None:
        client = server.oauth.client_id if server.oauth is not None else ""
        host = re.sub(r"[^a-z0-9.-]", "_", (urlsplit(server.url).hostname or "").lower())
        mark = sha256(f"{server.url}\0{client}".encode()).hexdigest()[:_DIGITS]
        self._server = server.url
        self.path = (folder or _default_folder()).expanduser() / f"{host[:100]}-{mark}.json"

    def read(self) -> SavedLogin:
        """Return the saved login. It is empty if there is none, and, with a warning, if the file cannot be read."""
        try:
            return SavedLogin.model_validate_json(read_regular(self.path, _MAX_BYTES))
        except FileNotFoundError:
            pass
        except ValidationError:
            _LOG.warning("the saved login in %s is damaged: log in again", self.path)
        except OSError as error:
            _LOG.warning("the saved login in %s cannot be read: %s", self.path, error.strerror)
        return SavedLogin()

    def write(self, login: SavedLogin) -> None:
        """Replace the file in one step. Its mode is 0600, and that of a new folder 0700. Raises `OSError`."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = login.model_copy(update={"server": self._server}).model_dump_json(exclude_none=True).encode()
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f"{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise

    def remove(self) -> bool:
        """Delete the file. Return whether there was one. Raises `OSError`."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True


def _default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "turnwright" / "mcp"
