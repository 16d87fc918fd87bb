"""The models that `--model` names: `local`, an id at an endpoint, `anthropic:ID`, `pydantic-ai:PROVIDER:ID`."""

import os
from collections.abc import Callable
from typing import Final

from turnwright.agent import Agent
from turnwright.model.protocol import Model
from turnwright.model.providers import LOCAL, open_model, openai_base_url, split_name, whole_name

#: What is asked where nobody names a model: OpenAI's needs a real one, a server of one model takes any name.
DEFAULT_MODEL: Final = "gpt-5-mini"
ANY_MODEL: Final = "default"


def model_named(name: str | None, base_url: str | None) -> str:
    """The whole name of the model that the flags and the environment mean, as `open_model` takes it.

    None is what is configured, else the embedded model. Claude is asked at Anthropic unless an endpoint is named.
    """
    endpoint = base_url or openai_base_url()
    if name is None:
        configured = endpoint or os.environ.get("OPENAI_API_KEY")
        return (ANY_MODEL if endpoint else DEFAULT_MODEL) if configured else LOCAL.name
    return whole_name(name, endpoint)


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
            same = split_name(whole)[0] == split_name(name)[0]
            made[wanted] = open_model(whole, base_url=base_url if same else None, timeout=timeout)
        return made[wanted]

    return find
