"""What a server says of its tools, and what follows from it for approvals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwright.tools.tool import Approval

from .config import Approve

if TYPE_CHECKING:
    from mcp_types import Tool as Listed


@dataclass(frozen=True, slots=True)
class McpHints:
    """What a server says of one of its tools, with the protocol's defaults for what it does not say.

    They are hints: nobody makes a server tell the truth.
    """

    server: str
    tool: str
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @classmethod
    def of(cls, server: str, listed: "Listed") -> "McpHints":
        """The hints of a tool in the server's list."""
        said = listed.annotations
        if said is None:
            return cls(server, listed.name)
        return cls(
            server,
            listed.name,
            read_only=said.read_only_hint is True,
            destructive=said.destructive_hint is not False,
            idempotent=said.idempotent_hint is True,
            open_world=said.open_world_hint is not False,
        )


#: The policy for approvals: one of its names, or a function that says for a tool what `Tool(needs_approval=...)` takes.
Policy = Approve | Callable[[McpHints], Approval]


def approval_for(hints: McpHints, policy: Policy) -> Approval:
    """Say whether a person is asked before calls of a tool.

    `annotated` asks, unless the server says that the tool only reads, or that it neither destroys anything nor reaches
    beyond a closed world. `always` asks, `never` does not.
    """
    if callable(policy):
        return policy(hints)
    if policy == "annotated":
        return not hints.read_only and (hints.destructive or hints.open_world)
    return policy == "always"
