"""The provider of a model, in the words of the conventions."""

from fnmatch import fnmatchcase
from typing import Final, Protocol, runtime_checkable

from turnwright.model.protocol import Model

#: A provider that the conventions have no name for.
OTHER: Final = "_OTHER"

#: Hosts and their providers.
_HOSTS: Final = (
    ("api.openai.com", "openai"),
    ("*.api.openai.com", "openai"),
    ("*.openai.azure.com", "azure.ai.openai"),
    ("*.services.ai.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"),
    ("bedrock*.amazonaws.com", "aws.bedrock"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("*aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.cohere.com", "cohere"),
    ("api.cohere.ai", "cohere"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("api.mistral.ai", "mistral_ai"),
    ("codestral.mistral.ai", "mistral_ai"),
    ("api.moonshot.ai", "moonshot_ai"),
    ("api.moonshot.cn", "moonshot_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
)


@runtime_checkable
class Served(Protocol):
    """A model that exposes its server."""

    @property
    def server(self) -> object:
        """The host and the port of the server."""
        ...


@runtime_checkable
class NamedByProvider(Protocol):
    """A model whose id at the provider differs from its name."""

    @property
    def model_name(self) -> object:
        """The id that is sent."""
        ...


def requested_from(model: Model) -> str:
    """Return a model's id at its provider."""
    match model.model_name if isinstance(model, NamedByProvider) else None:
        case str() as name if name:
            return name
        case _:
            return model.name


def streams(model: Model) -> bool:
    """Whether a model always requests a stream. Other models are known to stream only after a reply."""
    return getattr(model, "always_streams", False) is True


def provider_of(model: Model) -> str:
    """Return the provider of a model: by its server, else the class's `provider_name`, else `_OTHER`."""
    server = server_of(model)
    if server is not None:
        for pattern, name in _HOSTS:
            if fnmatchcase(server[0].lower(), pattern):
                return name
    provider_name = getattr(model, "provider_name", OTHER)
    return provider_name if isinstance(provider_name, str) and provider_name else OTHER


def server_of(model: Model) -> tuple[str, int] | None:
    """Return the host and port of a model's server, if the model exposes it."""
    match model.server if isinstance(model, Served) else None:
        case (str() as host, int() as port):
            return host, port
        case _:
            return None
