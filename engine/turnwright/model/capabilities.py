"""What a model and its server take: the differences between providers that decide whether a request is valid."""

from dataclasses import dataclass
from typing import Literal

from turnwright.errors import ConfigError

#: The names under which chat completions servers take what an assistant's message was thought to.
ReasoningField = Literal["reasoning_content", "reasoning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What may be sent to a model. The defaults are what OpenAI's own API takes, but for `reasoning_details`.

    A model says so in an attribute `capabilities`; one without it has the defaults. `model.fit` makes a request that
    they allow; `model.known_servers` knows those of public servers.
    """

    #: `tool_choice: none` is understood. Where it is not, tools are left out of a call that may not use them, or stay
    #: callable where they cannot be left out: what is called all the same is refused (DESIGN 4.7).
    supports_tool_choice_none: bool = True
    #: A conversation that holds calls is refused unless the tools are defined.
    needs_tools_if_history_has_tools: bool = False
    #: After the instructions, user and assistant must take turns; results of tools count as neither, and the
    #: assistant speaks after them.
    strict_alternation: bool = False
    #: The last message may be the assistant's, which the model then goes on with.
    allows_prefill: bool = False
    #: One reply may ask for several calls. Where it may not, a conversation that holds such a reply is told as one
    #: call after the other.
    parallel_tool_calls: bool = True
    #: The field of an assistant's message in which the server wants the reasoning back that it sent. None: nowhere,
    #: and OpenAI and others answer 400 to a field that they do not know.
    reasoning_field: ReasoningField | None = None
    #: An assistant's message without that field is refused, so that one without reasoning has an empty one.
    reasoning_required: bool = False
    #: What a reply held as `reasoning_details` is taken back. Whoever sends them wants them, and knows the field; of
    #: those who never do, some answer 400 to it, where a conversation was begun at another server of the same model.
    reasoning_details: bool = True


def checked_capabilities(capabilities: Capabilities) -> Capabilities:
    """The capabilities, if they are some. Raises `ConfigError`: a mapping would only fail in the middle of a turn."""
    if not isinstance(capabilities, Capabilities):
        raise ConfigError(f"capabilities are Capabilities(strict_alternation=True, ...), and not {capabilities!r}")
    return capabilities
