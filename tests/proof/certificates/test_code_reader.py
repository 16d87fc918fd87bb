"""The tools, hooks and guardrails of an agent, as its certificate lists them."""

from pathlib import Path

import pytest

from turnwright import (
    Agent,
    ToolContext,
    TurnContext,
    after_model,
    before_tool,
    input_guardrail,
    output_guardrail,
    tool,
)
from turnwright.driver.hooks.decisions import CallView
from turnwright.model.protocol import ModelResponse
from turnwright.tools import builtin_tools
from turnwright_proof.certificates.certified_code import CertifiedCode, Reviews
from turnwright_proof.certificates.code_reader import certified_code

AGENT = Agent(name="Tester")


@before_tool
def cap(_ctx: ToolContext, _call: CallView) -> None: ...


@after_model
def picky(_ctx: TurnContext, _response: ModelResponse) -> None: ...


@input_guardrail
def wary(_ctx: TurnContext, _prompt: str) -> None: ...


@output_guardrail
def polite(_ctx: TurnContext, _text: str) -> None: ...


def test_two_built_in_tools_ask_a_person(tmp_path: Path) -> None:
    code = certified_code(AGENT, builtin_tools(tmp_path))
    assert {tool.tool: tool.asks for tool in code.tools or ()} == {
        "list_files": "never",
        "read_file": "never",
        "search_files": "never",
        "ask_user_input": "perhaps",
        "request_read_access": "perhaps",
    }
    assert code.may_ask


def test_tool_never_asks_only_without_a_way_to_ask() -> None:
    """With its context it can ask a question, with `on_crash="ask"` a crash asks, and an approval asks before."""

    @tool
    def plain() -> None: ...
    @tool
    def asker(context: ToolContext) -> None: ...
    @tool(on_crash="ask")
    def fragile() -> None: ...
    @tool(needs_approval=lambda: True)
    def dear() -> None: ...
    @tool(needs_approval=True)
    def dearest() -> None: ...

    code = certified_code(AGENT, [plain, asker, fragile, dear, dearest])
    asks = [tool.asks for tool in code.tools or ()]
    assert asks == ["never", "perhaps", "perhaps", "perhaps", "always"]


def test_unknown_tools_and_hooks_before_calls_may_ask() -> None:
    assert certified_code(AGENT, None).may_ask
    assert certified_code(AGENT, [], [cap]).may_ask
    assert not certified_code(AGENT, [], [picky]).may_ask


@pytest.mark.parametrize(
    ("code", "reviews", "may_refuse"),
    [
        (certified_code(AGENT, []), "never", False),
        (certified_code(AGENT, [], [cap]), "never", False),
        (certified_code(AGENT, [], [], [wary]), "sometimes", False),
        (certified_code(AGENT, [], [], [polite]), "always", False),
        (certified_code(AGENT, [], [picky]), "always", True),
        (certified_code(Agent.model_validate({"name": "Tester", "output_type": list[int]}), []), "always", True),
        (certified_code(Agent(name="Tester", hooks=[picky], guardrails=[wary]), []), "always", True),
    ],
)
def test_certificate_tells_whether_replies_are_reviewed(
    code: CertifiedCode, reviews: Reviews, may_refuse: bool
) -> None:
    assert (code.reviews, code.may_refuse) == (reviews, may_refuse)


def test_hooks_and_guardrails_are_named() -> None:
    code = certified_code(Agent(name="Tester", guardrails=[polite]), [], [cap], [wary])
    assert [(hook.name, hook.on) for hook in code.hooks] == [("cap", ("before_tool",))]
    assert [(guardrail.name, guardrail.checks) for guardrail in code.guardrails] == [
        ("wary", "input"),
        ("polite", "output"),
    ]
