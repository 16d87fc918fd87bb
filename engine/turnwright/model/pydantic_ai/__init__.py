"""Models through pydantic-ai: Gemini, Bedrock, Mistral, Cohere, xAI and every other adapter of its."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from turnwright.errors import ConfigError
from turnwright.model.capabilities import Capabilities

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from .adapter import PydanticAIModel


def pydantic_ai_model(
    model: "Model | str",
    *,
    settings: Mapping[str, object] | None = None,
    capabilities: Capabilities | None = None,
    name: str | None = None,
    idle_timeout: float = 300.0,
) -> "PydanticAIModel":
    """Use any model of pydantic-ai in turns.

    `model` is one of its model objects, or a name such as `google:gemini-3-pro` or `bedrock:...`, which takes keys from
    the environment. `settings` are its `ModelSettings` (`temperature`, `timeout` in seconds, `thinking` and others),
    sent with every request; the smaller of their `max_tokens` and the request's applies. `capabilities` are rarely
    needed, because pydantic-ai's adapters know their providers. `name` is the name in the journal and for people, by
    default the given name or the model's `model_id`. `idle_timeout` is the longest time, in seconds, without a part of
    the reply (text, thinking, a call), also before the first one. The client's own timeouts apply too.

    One call makes one attempt, because the chart decides on retries (docs/rules.md#retries). `max_retries: 0` is sent
    with every request, which disables retries in the clients of OpenAI, Anthropic, Google, Groq, Mistral, Cohere and
    compatible ones. A few adapters ignore it (Bedrock, xAI, Hugging Face): a warning is logged once, and their client
    must be configured (Bedrock: the variable `AWS_MAX_ATTEMPTS=1`). Retries of a transport, and the models of a
    `FallbackModel`, are part of one attempt.

    Ids are ours (docs/rules.md#pairing), so responses that the provider stored cannot be continued by id:
    `openai_previous_response_id` does not work. Thinking, signatures and other values that the provider requires are in
    the journal with the reply, and are sent back at their place. Tools of the provider are not shown, and a reply that
    waits for them (`openai_background`, Anthropic's `pause_turn`) is an error.

    pydantic-ai prepares the messages: for providers without instructions inside a conversation it marks them, and
    explains the mark before the first instructions. Files given by address are downloaded here if the provider does
    not download them.

    The model keeps its connections open until `aclose`, the end of `async with`, or the engine closes them. Some
    clients need asyncio.

    Raises `ConfigError` if pydantic-ai, or a package for this provider, is not installed; for an unknown name, a
    missing key, and settings that the request itself sets.
    """
    try:
        from .adapter import PydanticAIModel, build_model  # noqa: PLC0415 (an extra)
    except ImportError as error:
        hint = "install it with: pip install 'turnwright[pydantic-ai]'"
        raise ConfigError(f"pydantic-ai cannot be used here ({error}): {hint}") from error
    return PydanticAIModel(
        build_model(model),
        settings=settings,
        capabilities=capabilities,
        name=name or (model if isinstance(model, str) else None),
        idle_timeout=idle_timeout,
    )


def open_model(model: str, *, timeout: float | None = None) -> "PydanticAIModel":
    """See `Provider.opener`."""
    if timeout is None:
        return pydantic_ai_model(model)
    return pydantic_ai_model(model, settings={"timeout": timeout}, idle_timeout=timeout)
