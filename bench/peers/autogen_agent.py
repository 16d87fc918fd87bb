"""AutoGen's AssistantAgent, with a fake ChatCompletionClient of its own kind.

    python -m bench.peers.autogen_agent

Only the text is streamed: its clients hand over calls whole, in the result that ends the stream.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Final

# Peers are installed in environments of their own: who checks types need not have them.
from autogen_agentchat.agents import AssistantAgent  # pyright: ignore[reportMissingImports]
from autogen_core import FunctionCall  # pyright: ignore[reportMissingImports]
from autogen_core.models import (  # pyright: ignore[reportMissingImports]
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import FunctionTool  # pyright: ignore[reportMissingImports]
from bench.measure import main
from bench.peers.history import check
from bench.yardstick import PROMPT, Script, Subject, current, look

INFO: Final = ModelInfo(
    vision=False, function_calling=True, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
)


class Fake(ChatCompletionClient):  # type: ignore[misc]
    """The fake model. A text beside calls is a thought, as AutoGen's own clients have it."""

    async def create_stream(self, messages: Sequence[LLMMessage], **_: object) -> AsyncIterator[str | CreateResult]:
        """One reply, in pieces."""
        script = current()
        move = await script.reply()
        yield move.text
        calls = [FunctionCall(id=call.id, name=call.name, arguments=call.arguments) for call in move.calls]
        yield CreateResult(
            finish_reason="function_calls" if calls else "stop",
            content=calls or move.text,
            thought=move.text if calls else None,
            usage=RequestUsage(prompt_tokens=100, completion_tokens=10),
            cached=False,
        )
        if not calls:
            results = [message for message in messages if isinstance(message, FunctionExecutionResultMessage)]
            check(script, sum(len(message.content) for message in results))

    async def create(self, *_: object, **__: object) -> CreateResult:
        """Not needed, for the agent streams."""
        raise NotImplementedError("it streams only")

    async def close(self) -> None:
        """Nothing is open."""

    def actual_usage(self) -> RequestUsage:
        """Not kept."""
        return RequestUsage(prompt_tokens=0, completion_tokens=0)

    def total_usage(self) -> RequestUsage:
        """Not kept."""
        return RequestUsage(prompt_tokens=0, completion_tokens=0)

    def count_tokens(self, *_: object, **__: object) -> int:
        """Not counted."""
        return 0

    def remaining_tokens(self, *_: object, **__: object) -> int:
        """Any number."""
        return 1_000_000

    @property
    def capabilities(self) -> ModelInfo:
        """The model's capabilities, under their old name."""
        return INFO

    @property
    def model_info(self) -> ModelInfo:
        """The model's capabilities."""
        return INFO


class AutoGen(Subject):
    """The agent with its own loop over tool calls."""

    name = "autogen"
    modules = ("autogen_agentchat.agents",)
    packages = ("autogen-agentchat", "autogen-core", "pydantic")
    has_sessions = True
    notes: ClassVar[tuple[str, ...]] = (
        "An agent keeps its history, in memory: it is a session, and else each turn makes one of its own.",
    )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The model and the tool, for all turns."""
        self._model = Fake()
        self._look = FunctionTool(look, description="Look at a place.")
        self._shared = self._made(1)
        yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        agent = self._shared if self.session else self._made(script.steps)
        result = await agent.run(task=PROMPT)
        return str(result.messages[-1].content)

    def _made(self, steps: int) -> AssistantAgent:
        return AssistantAgent(
            "Looker",
            self._model,
            tools=[self._look],
            model_client_stream=True,
            reflect_on_tool_use=False,
            max_tool_iterations=steps,
        )


if __name__ == "__main__":
    main(AutoGen())
