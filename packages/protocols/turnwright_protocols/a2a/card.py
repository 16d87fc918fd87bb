"""The agent card, by which clients find an agent and the addresses that it answers at."""

from typing import Final

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, TransportProtocol

from turnwright._base.version import VERSION
from turnwright.agent import Agent

_INPUTS: Final = ("text/plain", "application/json", "image/*", "application/pdf")
_OUTPUTS: Final = ("text/plain",)
_BEARER: Final = "bearer"


def agent_card(agent: Agent, address: str, *, bearer: bool = False) -> AgentCard:
    """Return the card of an agent that JSON-RPC and REST reach at `address`.

    With `bearer`, it says that requests need a bearer token.
    """
    description = agent.description or f"The agent {agent.name}."
    interfaces = (
        (TransportProtocol.JSONRPC, PROTOCOL_VERSION_1_0),
        (TransportProtocol.HTTP_JSON, PROTOCOL_VERSION_1_0),
        (TransportProtocol.JSONRPC, PROTOCOL_VERSION_0_3),
    )
    card = AgentCard(
        name=agent.name,
        description=description,
        version=VERSION,
        supported_interfaces=[
            AgentInterface(url=address, protocol_binding=binding.value, protocol_version=protocol)
            for binding, protocol in interfaces
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
        default_input_modes=_INPUTS,
        default_output_modes=_OUTPUTS,
        skills=[AgentSkill(id=agent.name, name=agent.name, description=description, tags=["agent"])],
    )
    if bearer:
        scheme = HTTPAuthSecurityScheme(scheme="Bearer")
        card.security_schemes[_BEARER].CopyFrom(SecurityScheme(http_auth_security_scheme=scheme))
        card.security_requirements.append(SecurityRequirement(schemes={_BEARER: StringList()}))
    return card
