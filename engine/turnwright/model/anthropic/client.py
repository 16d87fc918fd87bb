"""Models that speak Anthropic's Messages API over HTTP: Claude, and compatible servers."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Unpack

from pydantic import JsonValue
from typing_extensions import override

from turnwright.model.capabilities import Capabilities
from turnwright.model.http.client import HttpModel, HttpOptions
from turnwright.model.http.endpoint import Api
from turnwright.model.http.timeouts import silence

from .request import AnthropicEncoder
from .settings import with_claude
from .stream import MessagesStream

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
    """A model of a server that speaks the Messages API. One call is one attempt (docs/rules.md#retries).

    `model` is the model's id, as the provider knows it. `base_url` is the address before `/v1/messages`, by default
    `ANTHROPIC_BASE_URL` or Anthropic's own. `api_key`, sent as `x-api-key`, is by default `ANTHROPIC_API_KEY`;
    `ANTHROPIC_AUTH_TOKEN`, sent as a bearer token, takes precedence. Only Anthropic's own address requires one. The
    variables are read here, not at the first call.

    `max_tokens` limits every reply, in tokens: by default 8,192 plus the budget for thinking; a smaller limit of the
    request takes precedence. `thinking` is the API's own object, such as `{"type": "adaptive"}` or
    `{"type": "enabled", "budget_tokens": 4096}`. Its budget is lowered to leave 1,024 tokens for the answer; a call
    without room for both is made without thinking. A thinking model is not forced to use a tool. `cache` lets the
    provider cache the part that the next step sends again, which makes long turns cheaper.

    Times are in seconds: `connect_timeout` to connect, `first_byte_timeout` from the request to the first part of
    the reply, `idle_timeout` without any byte inside it, `reply_timeout` for all of it. Parts of a reply are text,
    reasoning, calls and usage. Other bytes (comments, pings, a role, an empty text) reset `idle_timeout`, but the next
    part must arrive within `first_byte_timeout` of the one before. A complete reply may be followed by other bytes for
    two seconds. A response of more than 256 MB or a million chunks is an error.

    `hosted_tools` are tools that the provider runs, in the API's own JSON, such as `{"type": "web_search_20250305",
    "name": "web_search"}`. Their calls and results are kept with the reasoning, and sent back.

    `headers` (such as `anthropic-beta`) and `extra_body` are sent with every request; a None in `extra_body` removes a
    default field. `tool_choice_first` replaces `auto` in the first call of a turn. `transport` replaces the network.
    `capabilities` are those of the model and its server, by default the known ones; requests are fitted to them.

    The first call makes an HTTP client, which is used until `aclose` or the end of `async with`. Each event loop has
    its own client, so a model may be used in several loops.

    Raises `ConfigError` for an unusable address, key, header or option, and for Anthropic's own address without a key.
    """

    provider_name: ClassVar[str] = "anthropic"
    api = ANTHROPIC_API
    decoder = MessagesStream

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        thinking: Mapping[str, JsonValue] | None = None,
        cache: bool = True,
        hosted_tools: Sequence[Mapping[str, JsonValue]] = (),
        **options: Unpack[HttpOptions],
    ) -> None:
        super().__init__(model, **options)
        self._encoder = AnthropicEncoder(
            model,
            max_tokens=max_tokens,
            thinking=thinking,
            cache=cache,
            hosted_tools=hosted_tools,
            **self._encoder_options,
        )

    @override
    def _find_capabilities(self, host: str) -> Capabilities:
        return with_claude(super()._find_capabilities(host), self.name)


def open_model(model: str, *, base_url: str | None = None, timeout: float | None = None) -> AnthropicMessages:
    """See `Provider.opener`."""
    return AnthropicMessages(model, base_url=base_url, **silence(timeout))
