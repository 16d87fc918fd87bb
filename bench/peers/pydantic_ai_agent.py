"""pydantic-ai's Agent, with its FunctionModel as the fake.

    python -m bench.peers.pydantic_ai_agent

Its `run_stream` takes the first text for the answer, and here each step has one, so the run is streamed node by node.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, Final

from bench.measure import main
from bench.peers.history import check
from bench.yardstick import PROMPT, Script, Subject, current, look
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import RequestUsage

UNLIMITED: Final = UsageLimits(request_limit=None)


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """The fake model."""
    del info
    script = current()
    move = await script.reply()
    yield move.text
    for index, call in enumerate(move.calls):
        yield {index: DeltaToolCall(name=call.name, json_args=call.arguments, tool_call_id=call.id)}
    if not move.calls:
        check(script, sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts))


async def reply_whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The fake model, its replies whole."""
    del info
    script = current()
    move = await script.reply()
    if not move.calls:
        check(script, sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts))
    calls = [ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in move.calls]
    # Without a usage it would be estimated, from the whole history.
    return ModelResponse(parts=[TextPart(move.text), *calls], usage=RequestUsage(input_tokens=100, output_tokens=10))


class PydanticAiStreamed(Subject):
    """The agent, node by node, each model request streamed: the leanest way that streams of its documentation."""

    name = "pydantic-ai, streamed"
    streamed = True
    modules = ("pydantic_ai",)
    packages = ("pydantic-ai-slim", "pydantic")
    has_sessions = True
    notes: ClassVar[tuple[str, ...]] = (
        "Its FunctionModel estimates the usage of a stream; a test cannot set it.",
        "A session's history is a list of messages in memory, handed to each turn.",
    )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One agent for all turns."""
        self._agent = Agent(FunctionModel(stream_function=stream))
        self._agent.tool_plain(look)
        self._history: list[ModelMessage] = []
        yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        history = self._history if self.session else None
        async with self._agent.iter(PROMPT, message_history=history, usage_limits=UNLIMITED) as run:
            async for node in run:
                if Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as events:
                        async for _ in events:
                            pass
            if run.result is None:
                return ""
            if self.session:
                self._history = run.result.all_messages()
            return run.result.output


class PydanticAi(Subject):
    """The agent's `run`, its replies whole: its leanest way."""

    name = "pydantic-ai"
    modules = ("pydantic_ai",)
    packages = ("pydantic-ai-slim", "pydantic")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One agent for all turns."""
        self._agent = Agent(FunctionModel(reply_whole))
        self._agent.tool_plain(look)
        yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        return (await self._agent.run(PROMPT, usage_limits=UNLIMITED)).output


if __name__ == "__main__":
    main(PydanticAi(), PydanticAiStreamed())
