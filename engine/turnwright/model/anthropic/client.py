"""Models that speak Anthropic's Messages API over HTTP: Claude, and the servers of others that speak it too."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import JsonValue

from turnwright.model.capabilities import Capabilities, checked_capabilities
from turnwright.model.http.client import HttpModel
from turnwright.model.http.endpoint import Api, Endpoint
from turnwright.model.http.known_servers import known_capabilities
from turnwright.model.http.timeouts import REPLY_TIMEOUT, Timeouts, silence
from turnwright.model.protocol import ToolChoice

from .request import AnthropicEncoder
from .stream import MessagesStream

if TYPE_CHECKING:
    import httpx


ANTHROPIC_API: Final = Api(
    address="https://api.anthropic.com",
    host="api.anthropic.com",
    version="/v1",
    path="/messages",
    address_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
    token_variable="ANTHROPIC_AUTH_TOKEN",  # noqa: S106 (the name of a variable)
    key_header="x-api-key",
    headers={"anthropic-version": "2023-06-01"},
)


class AnthropicMessages(HttpModel):
    """A model behind an address that speaks the Messages API. It makes one attempt a call (DESIGN 4.10).

    `model` is the model's id, as the provider knows it. `base_url` is the address before `/v1/messages`, by default
    `ANTHROPIC_BASE_URL` or Anthropic's own. `api_key`, sent as `x-api-key`, is by default `ANTHROPIC_API_KEY`;
    `ANTHROPIC_AUTH_TOKEN`, sent as a bearer token, goes before that. Only Anthropic's own address requires one. The
    variables are read here, not at the first call.

    `max_tokens` bounds every reply, in tokens: by default 8,192, and the budget for thinking on top; a request's own
    bound counts if it is smaller. `thinking` is the API's own object, such as `{"type": "adaptive"}` or
    `{"type": "enabled", "budget_tokens": 4096}`. The budget is lowered where it would leave fewer than 1,024 tokens
    to the answer, and a call for which that leaves none is made without thinking; while a model thinks, it is not made
    to use a tool. `cache` lets the provider keep what the next step sends again, which makes long turns cheaper.

    Times are in seconds: `connect_timeout` to connect, `first_byte_timeout` from the request to the first part of
    the reply, `idle_timeout` of silence inside it, `reply_timeout` for all of it. Parts of a reply are text, reasoning,
    calls and usage. Other bytes (comments, pings, a role, an empty text) end a silence, but the next part must come
    within `first_byte_timeout` of the one before. What follows a reply that is complete gets two seconds in all. A
    response that passes 256 MB or a million chunks is refused.

    `headers` (such as `anthropic-beta`) and `extra_body` go with every request; a None in `extra_body` removes a field
    that is sent by default. `tool_choice_first` takes the place of `auto` in the first call of a turn. `transport`
    replaces the network. `capabilities` says what the model and its server take: by default what is known of them, and
    that the API wants tools defined where a conversation holds calls. Requests are made to fit it.

    One HTTP client is made at the first call and used until `aclose`, or the end of `async with`. Each event loop gets
    one of its own, so a model may outlive the loop that it was first used in.

    Raises `ConfigError` for an address, a key, a header or an option that cannot be used, and for Anthropic's own
    address without a key.
    """

    provider_name: ClassVar[str] = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_tokens: int | None = None,
        thinking: Mapping[str, JsonValue] | None = None,
        cache: bool = True,
        connect_timeout: float = 10.0,
        first_byte_timeout: float = 300.0,
        idle_timeout: float = 60.0,
        reply_timeout: float = REPLY_TIMEOUT,
        transport: "httpx.AsyncBaseTransport | None" = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, JsonValue] | None = None,
        tool_choice_first: ToolChoice | None = None,
        capabilities: Capabilities | None = None,
    ) -> None:
        endpoint = Endpoint.of(ANTHROPIC_API, base_url=base_url, api_key=api_key, headers=headers)
        if capabilities is None:
            known = known_capabilities(endpoint.url.netloc.decode("ascii"), model)
            capabilities = replace(known, needs_tools_if_history_has_tools=True)
        encoder = AnthropicEncoder(
            model,
            max_tokens=max_tokens,
            thinking=thinking,
            cache=cache,
            extra_body=extra_body,
            tool_choice_first=tool_choice_first,
            capabilities=checked_capabilities(capabilities),
        )
        super().__init__(
            model,
            endpoint,
            encode=encoder.encode,
            decoder=MessagesStream,
            capabilities=capabilities,
            patience=Timeouts(
                connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout, reply=reply_timeout
            ),
            transport=transport,
        )


def open_model(model: str, *, base_url: str | None = None, timeout: float | None = None) -> AnthropicMessages:
    """See `Provider.opener`."""
    return AnthropicMessages(model, base_url=base_url, **silence(timeout))
