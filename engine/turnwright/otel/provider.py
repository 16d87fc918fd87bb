"""Whose model it is, in the words of the conventions."""

from fnmatch import fnmatchcase
from typing import Final, Protocol, runtime_checkable

from turnwright.model.protocol import Model

#: A provider that the conventions have no name for.
OTHER: Final = "_OTHER"

#: Hosts, and whose they are.
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
    """A model that says which server it asks."""

    @property
    def server(self) -> object:
        """The host and the port of the server."""
        ...


@runtime_checkable
class Named(Protocol):
    """A model that its provider knows by another name than people do."""

    @property
    def model_name(self) -> object:
        """The id that is sent."""
        ...


def requested_from(model: Model) -> str:
    """The id by which the provider of a model knows it."""
    match model.model_name if isinstance(model, Named) else None:
        case str() as name if name:
            return name
        case _:
            return model.name


def streams(model: Model) -> bool:
    """Whether a model is certain to ask for a stream. The others can only say so once one has come."""
    return getattr(model, "always_streams", False) is True


def provider_of(model: Model) -> str:
    """The provider of a model: by its server, or else as the model's class says it (`provider_name`), or `_OTHER`."""
    server = server_of(model)
    if server is not None:
        for pattern, name in _HOSTS:
            if fnmatchcase(server[0].lower(), pattern):
                return name
    said = getattr(model, "provider_name", OTHER)
    return said if isinstance(said, str) and said else OTHER


def server_of(model: Model) -> tuple[str, int] | None:
    """The host and the port that a model is asked at, if it is one of those that say so."""
    match model.server if isinstance(model, Served) else None:
        case (str() as host, int() as port):
            return host, port
        case _:
            return None
