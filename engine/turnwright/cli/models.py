"""The models that `--model` names: `local`, an id at an endpoint, `anthropic:ID`, `pydantic-ai:PROVIDER:ID`."""

import os
from collections.abc import Callable
from typing import Final, TypedDict

from turnwright import model as models  # which loads only the one that is made
from turnwright.agent import Agent
from turnwright.errors import ConfigError
from turnwright.model.local.weights import LOCAL_MODEL, local_model_available, missing_message
from turnwright.model.protocol import Model
from turnwright.model.pydantic_ai.factory import pydantic_ai_model

LOCAL: Final = "local"
ANTHROPIC: Final = "anthropic"
PYDANTIC_AI: Final = "pydantic-ai"
#: What is asked where nobody names a model: OpenAI's needs a real one, a server of one model takes any name.
DEFAULT_MODEL: Final = "gpt-5-mini"
ANY_MODEL: Final = "default"

#: Seconds to connect, however long a server may take to answer.
_CONNECT_TIMEOUT: Final = 10.0


class _Patience(TypedDict, total=False):
    connect_timeout: float
    first_byte_timeout: float
    idle_timeout: float


def model_named(name: str | None, base_url: str | None) -> str:
    """The whole name of the model that the flags and the environment mean, as `make_model` takes it.

    None is what is configured, else the embedded model. Claude is asked at Anthropic unless an endpoint is named.
    """
    endpoint = base_url or _openai_base_url()
    if name is None:
        configured = endpoint or os.environ.get("OPENAI_API_KEY")
        return (ANY_MODEL if endpoint else DEFAULT_MODEL) if configured else LOCAL
    if name == LOCAL_MODEL:
        return LOCAL
    return f"{ANTHROPIC}:{name}" if name.startswith("claude-") and not endpoint else name


def make_model(name: str, base_url: str | None, timeout: float | None = None) -> Model:
    """The model of a whole name. `timeout` is how many seconds an endpoint may be silent, above 0.

    Raises `ConfigError`, naming the ways to get a model, when it is the embedded one and that is not installed, and
    what the models themselves raise.
    """
    api, _, rest = name.partition(":")
    if name == LOCAL:
        if not local_model_available():
            raise ConfigError(missing_message())
        return models.LocalModel()
    if api == PYDANTIC_AI:
        if timeout is None:
            return pydantic_ai_model(rest)
        return pydantic_ai_model(rest, settings={"timeout": timeout}, idle_timeout=timeout)
    patience = _Patience()
    if timeout is not None:
        patience = _Patience(
            connect_timeout=min(timeout, _CONNECT_TIMEOUT), first_byte_timeout=timeout, idle_timeout=timeout
        )
    if api == ANTHROPIC:
        # The configuration takes what OpenAI's clients read for an address; that is not Anthropic's.
        return models.AnthropicMessages(rest, base_url=None if base_url == _openai_base_url() else base_url, **patience)
    return models.OpenAIChat(name, base_url=base_url, **patience)


def models_for(
    served: Model, name: str, agent: Agent | None, base_url: str | None, timeout: float | None = None
) -> Callable[[str], Model]:
    """The models of a turn's agents by name: `served`, called `name`, is its own agent's, whatever that one names.

    Without an agent each has the model that it names. The address is that of its own API alone.
    """
    named = None if agent is None else agent.model
    made = {one: served for one in (served.name, name, named) if one is not None}

    def find(wanted: str) -> Model:
        if wanted not in made:
            whole = model_named(wanted, base_url)
            made[wanted] = make_model(whole, base_url if _api_of(whole) == _api_of(name) else None, timeout)
        return made[wanted]

    return find


def _api_of(name: str) -> str:
    api = name.partition(":")[0]
    return api if api in (LOCAL, ANTHROPIC, PYDANTIC_AI) else ""


def _openai_base_url() -> str:
    return os.environ.get("OPENAI_BASE_URL", "").strip()
