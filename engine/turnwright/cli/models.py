"""Finds the model that `--model` names: `local`, an id at an endpoint, or a provider with an id (`anthropic:ID`)."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turnwright.model.providers import LOCAL, open_model, openai_base_url, split_name, whole_name

if TYPE_CHECKING:
    from turnwright.agent import Agent
    from turnwright.model.protocol import Model

#: The model where no flag names one: OpenAI needs a real name, and a server with one model takes any.
DEFAULT_MODEL: Final = "gpt-5-mini"
ANY_MODEL: Final = "default"


def model_named(name: str | None, base_url: str | None) -> str:
    """Return the full name of a model, as `open_model` takes it.

    For None, return the model of the configured endpoint, or else the embedded model. A Claude model is asked at
    Anthropic, unless an endpoint is named.
    """
    endpoint = base_url or openai_base_url()
    if name is None:
        configured = endpoint or os.environ.get("OPENAI_API_KEY")
        return (ANY_MODEL if endpoint else DEFAULT_MODEL) if configured else LOCAL.name
    return whole_name(name, endpoint)


def models_for(
    served: "Model", name: str, agent: "Agent | None", base_url: str | None, timeout: float | None = None
) -> "Callable[[str], Model]":
    """Return a function that finds an agent's model by its name.

    `served`, called `name`, is the model of `agent`, whichever model the agent names. `base_url` is used only for
    models of the same API as `name`.
    """
    agent_model = None if agent is None else agent.model
    models = {model_name: served for model_name in (served.name, name, agent_model) if model_name is not None}

    def find(model_name: str) -> "Model":
        if model_name not in models:
            whole = model_named(model_name, base_url)
            same = split_name(whole)[0] == split_name(name)[0]
            models[model_name] = open_model(whole, base_url=base_url if same else None, timeout=timeout)
        return models[model_name]

    return find
