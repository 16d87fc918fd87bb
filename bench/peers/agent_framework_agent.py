"""Microsoft's Agent Framework, the successor of AutoGen, with a fake chat client of its own kind.

    python -m bench.peers.agent_framework_agent

The fake has the layer that runs tools, as the framework's own clients do, and neither middleware nor telemetry.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

# Peers are installed in environments of their own: who checks types need not have them.
from agent_framework import (  # pyright: ignore[reportMissingImports]
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)
from bench.measure import main
from bench.peers.history import check
from bench.yardstick import PROMPT, Script, Subject, current, look


class Fake(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
    """The fake model."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, object], **_: object
    ) -> ResponseStream[ChatResponseUpdate, ChatResponse]:
        """One reply, in pieces."""
        del stream, options
        return self._build_response_stream(self._pieces(messages))

    async def _pieces(self, messages: Sequence[Message]) -> AsyncIterator[ChatResponseUpdate]:
        script = current()
        move = await script.reply()
        reply = f"reply_{script.model_calls}"

        def piece(content: Content, finish: str | None = None) -> ChatResponseUpdate:
            return ChatResponseUpdate(
                contents=[content], role="assistant", response_id=reply, message_id=reply, finish_reason=finish
            )

        yield piece(Content.from_text(move.text))
        for call in move.calls:
            yield piece(Content.from_function_call(call.id, call.name, arguments=call.arguments))
        usage = {"input_token_count": 100, "output_token_count": 10, "total_token_count": 110}
        yield piece(Content.from_usage(usage), "tool_calls" if move.calls else "stop")
        if not move.calls:
            parts = (part for message in messages for part in message.contents)
            check(script, sum(part.type == "function_result" for part in parts))


class AgentFramework(Subject):
    """The agent, its run streamed."""

    name = "agent-framework, streamed"
    streamed = True
    modules = ("agent_framework",)
    packages = ("agent-framework-core", "pydantic")
    has_sessions = True
    notes: ClassVar[tuple[str, ...]] = ("A session's history is kept in memory.",)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One agent for all turns, and the session that they may share."""
        client = Fake(function_invocation_configuration={"max_iterations": 1_000})
        self._agent = Agent(client, tools=[look])
        self._session: AgentSession = self._agent.create_session()
        yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        stream = self._agent.run(PROMPT, stream=True, session=self._session if self.session else None)
        async for _ in stream:
            pass
        return str((await stream.get_final_response()).messages[-1].text)


if __name__ == "__main__":
    main(AgentFramework())
