"""Reads the tools, hooks and guardrails of an agent for its certificate."""

from collections.abc import Callable, Iterable, Sequence

from turnwright.agent import Agent
from turnwright.context import GuardrailBase, HooksBase
from turnwright.driver.hooks.chain import checked_guardrails, checked_hooks
from turnwright.driver.hooks.hooks import HOOKS, overrides
from turnwright.tools.tool import Tool
from turnwright_proof.certificates.certified_code import (
    Asks,
    CertifiedCode,
    CertifiedGuardrail,
    CertifiedHook,
    CertifiedTool,
)
from turnwright_states import Limits


def certified_code(
    agent: Agent,
    tools: Iterable[Tool] | None,
    hooks: Sequence[HooksBase] = (),
    guardrails: Sequence[GuardrailBase] = (),
    limits: Limits | None = None,
) -> CertifiedCode:
    """Return the code of an agent's turns.

    `tools` are the tools that it may use, or None if some of them are unknown. `hooks`, `guardrails`
    and `limits` are the engine's. Raises `ConfigError` for an object of another kind.
    """
    where = f"agent {agent.name!r}"
    all_hooks = (*checked_hooks(hooks, "engine"), *checked_hooks(agent.hooks, where))
    checks = (*checked_guardrails(guardrails, "engine"), *checked_guardrails(agent.guardrails, where))
    return CertifiedCode(
        tools=None if tools is None else tuple(_certify_tool(tool, agent.limits_for(limits)) for tool in tools),
        hooks=tuple(
            CertifiedHook(name=hook.name, on=tuple(on for on in HOOKS if overrides(hook, on))) for hook in all_hooks
        ),
        guardrails=tuple(CertifiedGuardrail(name=check.name, checks=check.kind) for check in checks),
        typed=agent.is_typed,
    )


def code_reader(
    tools_for: Callable[[Agent], Iterable[Tool] | None],
    hooks: Sequence[HooksBase] = (),
    guardrails: Sequence[GuardrailBase] = (),
    limits: Limits | None = None,
) -> Callable[[Agent], CertifiedCode]:
    """Return `certified_code` for the agents of one engine. `tools_for` returns an agent's tools, or None."""
    return lambda agent: certified_code(agent, tools_for(agent), hooks, guardrails, limits)


def _certify_tool(tool: Tool, limits: Limits) -> CertifiedTool:
    return CertifiedTool(
        tool=tool.name,
        read_only=tool.read_only,
        delegates=tool.delegates,
        timeout=None if tool.delegates else tool.seconds_of_call(limits.tool_timeout),
        asks=_asks(tool),
        returns_direct=tool.may_answer,
        retries=tool.retries,
        retry_requests=tool.retries + 1,
    )


def _asks(tool: Tool) -> Asks:
    if tool.always_asks:
        return "always"
    return "perhaps" if tool.may_ask else "never"
