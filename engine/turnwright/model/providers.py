"""The registry of providers: find the provider in a model's full name, and open its models.

A built-in provider is a line of `PROVIDERS`. Another package adds one by an entry point in the group
`turnwright.providers`, whose name is the provider's and whose object is a `Provider`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from turnwright._base.entry_points import added_names, find_added
from turnwright.errors import ConfigError

from .local.weights import LOCAL_MODEL

if TYPE_CHECKING:
    from .http.reply_stream import ReplyStream
    from .protocol import Model

GROUP: Final = "turnwright.providers"
#: The address of the provider that a model without a prefix is asked at. Other clients read it too.
BASE_URL_VARIABLE: Final = "OPENAI_BASE_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One API to reach models by: `--model NAME:MODEL` asks it.

    `opener` names a function as `module:function`, which is imported when the first model is made:
    `function(model, **options)` returns a `Model`. Of the flags `--base-url` and `--timeout` and the settings of these
    names it gets those that `options` lists and somebody set; `timeout` is how many seconds the endpoint may be silent.
    `decoder` names what makes an object that decodes one recorded stream for `turnwright decode`, like `opener` does.
    `help` shows how `--model` names its models.

    A model's class says what telemetry calls the provider: `provider_name`, and `always_streams` if each request asks
    for a stream.
    """

    name: str
    opener: str
    help: str
    options: frozenset[Literal["base_url", "timeout"]] = frozenset()
    decoder: str = ""
    #: Of a built-in provider: the name that `decode --api` takes. Others are found by `name`.
    api: str = ""
    #: Of a built-in provider: patterns of ids that mean it without a prefix, unless an endpoint is set that it takes.
    ids: tuple[str, ...] = ()
    #: Of a built-in provider: it has several models, so that its name alone is none.
    takes_model: bool = True

    def open(self, model: str, options: Mapping[str, object]) -> "Model":
        """Make the model of this id. Raises `ConfigError`, also where its client cannot be imported."""
        set_options = {name: options[name] for name in self.options if options.get(name) is not None}
        from .http.endpoint import opened_by_name  # noqa: PLC0415 (only for a model that is opened)

        with opened_by_name():
            opened_model: Model = self._load(self.opener)(model, **set_options)
        return opened_model

    def new_decoder(self) -> "ReplyStream":
        """Make a decoder of one stream. Raises `ConfigError` where it cannot be imported."""
        decoder: ReplyStream = self._load(self.decoder)()
        return decoder

    def _load(self, reference: str) -> Callable[..., Any]:
        module, _, name = reference.partition(":")
        try:
            function: Callable[..., Any] = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"provider {self.name}: {reference} cannot be used ({error}): install what its package needs, or"
                " another version of the package"
            ) from error
        return function


OPENAI_CHAT: Final = Provider(
    name="openai-chat",
    opener="turnwright.model.openai_chat.client:open_model",
    help="an id",
    options=frozenset({"base_url", "timeout"}),
    decoder="turnwright.model.openai_chat.stream:ChatStream",
)
LOCAL: Final = Provider(
    name="local",
    opener="turnwright.model.local.model:open_model",
    help="local (the embedded one)",
    ids=(LOCAL_MODEL,),
    takes_model=False,
)
PROVIDERS: Final = (
    OPENAI_CHAT,
    Provider(
        name="openai-responses",
        opener="turnwright.model.openai_responses.client:open_model",
        help="openai-responses:ID",
        options=frozenset({"base_url", "timeout"}),
        decoder="turnwright.model.openai_responses.stream:ResponsesStream",
    ),
    Provider(
        name="anthropic",
        opener="turnwright.model.anthropic.client:open_model",
        help="anthropic:ID",
        options=frozenset({"base_url", "timeout"}),
        decoder="turnwright.model.anthropic.stream:MessagesStream",
        api="anthropic-messages",
        ids=("claude-*",),
    ),
    Provider(
        name="pydantic-ai",
        opener="turnwright.model.pydantic_ai:open_model",
        help="pydantic-ai:PROVIDER:ID",
        options=frozenset({"timeout"}),
    ),
    LOCAL,
)
#: Ids of OpenAI have no other colon than that of a fine-tuned model, or of the provider itself.
_OWN_PREFIXES: Final = ("ft", OPENAI_CHAT.name)
_BUILT_IN: Final = {provider.name: provider for provider in PROVIDERS}
#: By the name of the API, the built-in providers whose recorded streams can be decoded.
DECODED: Final = {provider.api or provider.name: provider for provider in PROVIDERS if provider.decoder}


def openai_base_url() -> str:
    """Return the address in `OPENAI_BASE_URL`, empty where there is none."""
    return os.environ.get(BASE_URL_VARIABLE, "").strip()


def find_provider(name: str) -> Provider | None:
    """Return the provider of this name, or None.

    Raises `ConfigError` for one whose entry point is broken, or that two packages add.
    """
    return _BUILT_IN.get(name) or find_added(GROUP, name, Provider, ConfigError)


def split_name(whole: str) -> tuple[Provider, str]:
    """Split the full name of a model into its provider and its id. An id may contain colons (`qwen3:8b`).

    Raises the errors of `find_provider`.
    """
    name, colon, model = whole.partition(":")
    provider = find_provider(name) if colon else _BUILT_IN.get(name)
    if provider is None or provider.takes_model is not bool(colon):
        return OPENAI_CHAT, whole
    return provider, model


def whole_name(model: str, endpoint: str | None) -> str:
    """Return the full name of a model that may lack its provider. `endpoint` is the configured address, if any."""
    for provider in PROVIDERS:
        if any(fnmatchcase(model, pattern) for pattern in provider.ids) and not (
            endpoint and "base_url" in provider.options
        ):
            return f"{provider.name}:{model}" if provider.takes_model else provider.name
    return model


def open_model(whole: str, *, base_url: str | None = None, timeout: float | None = None) -> "Model":
    """Open the model of a full name. `timeout` is how many seconds an endpoint may be silent, above 0.

    Raises `ConfigError` where the model or its client is not available, or OpenAI cannot have its id, and the errors of
    `find_provider`.
    """
    provider, model = split_name(whole)
    name, colon, _ = whole.partition(":")
    if provider is OPENAI_CHAT and colon and name not in _OWN_PREFIXES and not (base_url or openai_base_url()):
        names = ", ".join(known_provider.name for known_provider in PROVIDERS if known_provider.takes_model)
        raise ConfigError(
            f"model {whole!r}: there is no provider {name!r} ({names}): write an id of OpenAI alone,"
            f" pydantic-ai:{whole}, or the address of a server with --base-url"
        )
    if provider is not OPENAI_CHAT and base_url == openai_base_url():
        base_url = None  # the configuration reads that variable, and the address in it is not this provider's
    return provider.open(model, {"base_url": base_url, "timeout": timeout})


def find_decoder(api: str) -> Provider:
    """Return the provider whose streams `decode --api` reads under this name.

    Raises `ConfigError`, which lists the known names, for an unknown one, and the errors of `find_provider`.
    """
    provider = DECODED.get(api) or find_provider(api)
    if provider is None or not provider.decoder:
        added_providers = [name for name in added_names(GROUP) if name not in _BUILT_IN]
        raise ConfigError(f"--api {api!r} is not known: use {', '.join([*DECODED, *added_providers])}")
    return provider
