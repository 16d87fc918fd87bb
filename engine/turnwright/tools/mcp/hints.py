"""A server's hints about its tools, and the approvals that follow from them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwright.tools.tool import Approval

from .config import Approve

if TYPE_CHECKING:
    from mcp_types import Tool as Listed


@dataclass(frozen=True, slots=True)
class McpHints:
    """A server's hints about one of its tools, with the protocol's defaults for missing hints.

    A server may send wrong hints.
    """

    server: str
    tool: str
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @classmethod
    def of(cls, server: str, listed: "Listed") -> "McpHints":
        """Return the hints of a tool in the server's list."""
        annotations = listed.annotations
        if annotations is None:
            return cls(server, listed.name)
        return cls(
            server,
            listed.name,
            read_only=annotations.read_only_hint is True,
            destructive=annotations.destructive_hint is not False,
            idempotent=annotations.idempotent_hint is True,
            open_world=annotations.open_world_hint is not False,
        )


#: The policy for approvals: a name, or a function that returns the `needs_approval` of a tool.
Policy = Approve | Callable[[McpHints], Approval]


def approval_for(hints: McpHints, policy: Policy) -> Approval:
    """Return the `needs_approval` of a tool.

    With `annotated`, a call needs approval unless the server says that the tool only reads, or that it is neither
    destructive nor open-world. With `always`, each call needs approval; with `never`, none.
    """
    if callable(policy):
        return policy(hints)
    if policy == "annotated":
        return not hints.read_only and (hints.destructive or hints.open_world)
    return policy == "always"
