"""Models that pydantic-ai speaks to: Gemini, Bedrock, Mistral, Cohere, xAI and whatever else it has an adapter for."""

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
    """Let any model of pydantic-ai drive turns.

    `model` is one of its model objects, or a name such as `google:gemini-3-pro` or `bedrock:...`, from which it makes
    one with the keys of the environment. `settings` are its `ModelSettings` (`temperature`, `timeout` in seconds,
    `thinking` and the like), sent with every request; the smaller of their `max_tokens` and the request's holds.
    `capabilities` says what the model takes; as a rule nothing needs to be said, for pydantic-ai's adapters know their
    providers. `name` is what the journal and people see: by default the name it was made from, or its `model_id`.
    `idle_timeout` is how many seconds may pass without a part of the reply (text, thinking, a call), also before the
    first one. The client's own time-outs, such as `timeout` in `settings`, apply beside it.

    One call makes one attempt, since retries belong to the chart (DESIGN 4.10). `max_retries: 0` is sent with every
    request, which switches off those of the clients of OpenAI, Anthropic, Google, Groq, Mistral, Cohere and all that
    speak like them, whoever made the model. A few adapters cannot be told so (Bedrock, xAI, Hugging Face): a warning
    is logged once, and their own client must be told (Bedrock: the variable `AWS_MAX_ATTEMPTS=1`). A transport that
    retries is left alone, and a `FallbackModel` asks its models one after the other: that is one attempt here.

    Ids that are sent are ours (DESIGN 4.8), so what a provider keeps at its side cannot be gone on with by id:
    `openai_previous_response_id` finds nothing to go on with. Thinking, its signatures and what else must go back to
    the provider is journalled with the reply and goes back at its place. Tools that run at the provider's side are
    not shown, and a reply that waits for them (`openai_background`, Anthropic's `pause_turn`) is a failure.

    Messages go through pydantic-ai's own preparation: an instruction in the middle of a conversation is marked for
    providers that know none there, with a paragraph before the instructions that says what the mark means. Files given
    by address are fetched from here where a provider does not fetch them itself.

    The model keeps its connections open; `aclose`, `async with` or the engine closes them in the end. It runs wherever
    its client does: some need asyncio.

    Raises `ConfigError` if pydantic-ai, or what it needs for this provider, is not installed; for a name that it does
    not know, a missing key, and settings that the request itself decides.
    """
    try:
        from .adapter import PydanticAIModel, made_of  # noqa: PLC0415 (an extra)
    except ImportError as error:
        hint = "install it with: pip install 'turnwright[pydantic-ai]'"
        raise ConfigError(f"pydantic-ai cannot be used here ({error}): {hint}") from error
    return PydanticAIModel(
        made_of(model),
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
