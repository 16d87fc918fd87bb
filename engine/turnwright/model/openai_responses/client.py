"""Models that speak OpenAI's Responses API over HTTP: OpenAI, Azure, and compatible servers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import ClassVar, Final, Unpack

from pydantic import JsonValue
from typing_extensions import override

from turnwright.model.capabilities import Capabilities
from turnwright.model.http.client import HttpModel, HttpOptions
from turnwright.model.http.timeouts import silence
from turnwright.model.openai_chat.client import OPENAI_API

from .request import ResponsesEncoder
from .stream import ResponsesStream

RESPONSES_API: Final = replace(OPENAI_API, path="/responses")

#: Models of OpenAI without reasoning, for which the API rejects the request for encrypted reasoning.
_WITHOUT_REASONING: Final = ("*gpt-3.5*", "*gpt-4*", "*chatgpt-4*", "*gpt-5-chat*")


class OpenAIResponses(HttpModel):
    """A model of a server that speaks the Responses API. One call is one attempt (docs/rules.md#retries).

    `model` is the model's id, as the provider knows it. `base_url` is the address before `/responses`, by default
    `OPENAI_BASE_URL` or OpenAI's own; `api_key` is by default `OPENAI_API_KEY`, and only OpenAI's own address requires
    one. Both variables are read here, not at the first call.

    The server stores nothing: each request has the whole conversation, and encrypted reasoning goes back with the items
    that it belongs to. `reasoning` is the API's own object, such as `{"effort": "low", "summary": "auto"}`.
    `hosted_tools` are tools that the provider runs, in the API's own JSON, such as `{"type": "web_search"}`. Their
    items are in `reasoning_details` of the reply (docs/rules.md#hosted-tools). `send_item_ids=False` sends kept items
    without their ids, for gateways that look ids up and answer "item not found".

    Times are in seconds: `connect_timeout` to connect, `first_byte_timeout` from the request to the first part of
    the reply, `idle_timeout` without any byte inside it, `reply_timeout` for all of it. Parts of a reply are text,
    reasoning, calls, items of hosted tools and usage. Other bytes reset `idle_timeout`, but the next part must arrive
    within `first_byte_timeout` of the one before. A model may reason in silence in the middle of a reply, so
    `idle_timeout` is long. A response of more than 256 MB or a million chunks is an error.

    `headers` and `extra_body` are sent with every request; a None in `extra_body` removes a default field (`include`,
    for servers that reject it). `tool_choice_first` replaces `auto` in the first call of a turn. `transport` replaces
    the network.

    `capabilities` are those of the model and its server: by default the known ones, else those of OpenAI's API.
    Requests are fitted to them. With `reasoning_details=False` no encrypted reasoning is requested or sent.

    The first call makes an HTTP client, which is used until `aclose` or the end of `async with`. Each event loop has
    its own client, so a model may be used in several loops.

    Raises `ConfigError` for an unusable address, key, header or option, for OpenAI's own address without a key, and for
    a hosted tool whose calls the provider does not answer.
    """

    provider_name: ClassVar[str] = "openai"
    api = RESPONSES_API
    decoder = ResponsesStream

    def __init__(
        self,
        model: str,
        *,
        reasoning: Mapping[str, JsonValue] | None = None,
        hosted_tools: Sequence[Mapping[str, JsonValue]] = (),
        send_item_ids: bool = True,
        **options: Unpack[HttpOptions],
    ) -> None:
        options.setdefault("idle_timeout", 300.0)
        super().__init__(model, **options)
        #: The tools that the provider runs.
        self.hosted_tools = tuple(hosted_tools)
        self._encoder = ResponsesEncoder(
            model,
            reasoning=reasoning,
            hosted_tools=hosted_tools,
            send_item_ids=send_item_ids,
            **self._encoder_options,
        )

    @override
    def _find_capabilities(self, host: str) -> Capabilities:
        reasons = not any(fnmatchcase(self.name.lower(), pattern) for pattern in _WITHOUT_REASONING)
        defaults = super()._find_capabilities(host)
        return replace(defaults, reasoning_details=reasons, thinking="effort" if reasons else None)


def open_model(model: str, *, base_url: str | None = None, timeout: float | None = None) -> OpenAIResponses:
    """See `Provider.opener`."""
    return OpenAIResponses(model, base_url=base_url, **silence(timeout))
