"""The certificate of an agent as an engine runs it."""

from functools import partial

from turnwright.agent import Agent
from turnwright.driver.admission import limits_for
from turnwright.driver.subagents import subagent_tools
from turnwright.runtime.engine import Engine

from .certificate import Certificate, certificate
from .code_reader import code_reader


def explain(engine: Engine, agent: Agent) -> Certificate:
    """Return the bounds of a turn of this agent on this engine, and who set each.

    Raises `ConfigError` for an invalid agent.
    """
    setup = engine.setup
    limits_for(agent, setup)
    return certificate(
        agent,
        setup.limits,
        subagent_tools=partial(subagent_tools, setup.tools),
        code_of=code_reader(lambda agent: setup.tools_for(agent).values(), setup.hooks, setup.guardrails, setup.limits),
        model_settings=setup.model_settings,
    )
