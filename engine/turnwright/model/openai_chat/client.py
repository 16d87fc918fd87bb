"""Models that speak OpenAI's chat completions over HTTP: OpenAI, llama.cpp, vLLM, Ollama and many others."""

from typing import ClassVar, Final, Unpack

from turnwright.model.http.client import HttpModel, HttpOptions
from turnwright.model.http.endpoint import Api
from turnwright.model.http.timeouts import silence

from .request import MaxTokensField, OpenAIEncoder
from .stream import ChatStream

OPENAI_API: Final = Api(
    address="https://api.openai.com/v1",
    host="api.openai.com",
    path="/chat/completions",
    address_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
)


# Azure OpenAI, also in the clouds of governments and China. GPT-5 and the o-series refuse `max_tokens` there too.
_AZURE_HOSTS: Final = (".openai.azure.com", ".openai.azure.us", ".openai.azure.cn")


class OpenAIChat(HttpModel):
    """A model of a server that speaks chat completions. One call is one attempt (docs/rules.md#retries).

    `model` is the model's id, as the provider knows it. `base_url` is the address before `/chat/completions`, by
    default `OPENAI_BASE_URL` or OpenAI's own; `api_key` is by default `OPENAI_API_KEY`, and only OpenAI's own address
    requires one. Both variables are read here, not at the first call.

    Times are in seconds: `connect_timeout` to connect, `first_byte_timeout` from the request to the first part of
    the reply, `idle_timeout` without any byte inside it, `reply_timeout` for all of it. Parts of a reply are text,
    reasoning, calls and usage. Other bytes (comments, pings, a role, an empty text) reset `idle_timeout`, but the next
    part must arrive within `first_byte_timeout` of the one before. A complete reply may be followed by other bytes for
    two seconds. A response of more than 256 MB or a million chunks is an error.

    `headers` and `extra_body` are sent with every request; a None in `extra_body` removes a default field
    (`stream_options`, for servers that reject it). `tool_choice_first` replaces `auto` in the first call of a turn.
    `max_tokens_field` is by default the one that the server accepts: if it refuses the first, the other one is tried
    once in the same attempt, and used from then on. `transport` replaces the network.

    `capabilities` are those of the model and its server: by default the known ones, else those of OpenAI's API.
    Requests are fitted to them.

    The first call makes an HTTP client, which is used until `aclose` or the end of `async with`. Each event loop has
    its own client, so a model may be used in several loops.

    Raises `ConfigError` for an unusable address, key, header or option, and for OpenAI's own address without a key.
    """

    provider_name: ClassVar[str] = "openai"
    api = OPENAI_API
    decoder = ChatStream

    def __init__(
        self, model: str, *, max_tokens_field: MaxTokensField | None = None, **options: Unpack[HttpOptions]
    ) -> None:
        super().__init__(model, **options)
        has_new_name = self._endpoint.own or self._endpoint.url.host.endswith(_AZURE_HOSTS)
        self._encoder = OpenAIEncoder(
            model,
            max_tokens_field=max_tokens_field or ("max_completion_tokens" if has_new_name else "max_tokens"),
            may_rename=max_tokens_field is None,
            **self._encoder_options,
        )


def open_model(model: str, *, base_url: str | None = None, timeout: float | None = None) -> OpenAIChat:
    """See `Provider.opener`."""
    return OpenAIChat(model, base_url=base_url, **silence(timeout))
