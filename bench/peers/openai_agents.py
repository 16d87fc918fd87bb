"""The OpenAI Agents SDK, with a fake Model of its own kind, and its tracing off.

    python -m bench.peers.openai_agents

Its own fake, `ScriptedModel`, copies the whole history at every call, so the fake here is a plain `Model`.
"""

import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

# Peers are installed in environments of their own: who checks types need not have them.
from agents import (  # pyright: ignore[reportMissingImports]
    Agent,
    Model,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
)
from agents.items import ModelResponse, TResponseInputItem  # pyright: ignore[reportMissingImports]
from bench.measure import main
from bench.peers.history import check
from bench.yardstick import PROMPT, Move, Script, Subject, current, look, sqlite_bytes
from openai.types.responses import (  # pyright: ignore[reportMissingImports]
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import (  # pyright: ignore[reportMissingImports]
    InputTokensDetails,
    OutputTokensDetails,
)

USAGE: Final = ResponseUsage(
    input_tokens=100,
    output_tokens=10,
    total_tokens=110,
    input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
)


class Fake(Model):  # type: ignore[misc]
    """The fake model: of the events of a response the delta of the text, the items as they are done, and the end."""

    async def get_response(
        self,
        *_: object,
        input: list[TResponseInputItem],  # noqa: A002 (it is passed by this name)
        **__: object,
    ) -> ModelResponse:
        """One response, whole."""
        script = current()
        move = await script.reply()
        if not move.calls:
            check(script, sum(item.get("type") == "function_call_output" for item in input))
        output = list(items_of(f"msg_{script.model_calls}", move))
        usage = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
        return ModelResponse(output=output, usage=usage, response_id=f"resp_{script.model_calls}")

    async def stream_response(
        self, instructions: str | None, items: list[TResponseInputItem], *_: object, **__: object
    ) -> AsyncIterator[object]:
        """One response, at once."""
        del instructions
        script = current()
        move = await script.reply()
        message = f"msg_{script.model_calls}"
        yield ResponseTextDeltaEvent(
            type="response.output_text.delta",
            item_id=message,
            output_index=0,
            content_index=0,
            delta=move.text,
            logprobs=[],
            sequence_number=0,
        )
        output = list(items_of(message, move))
        for index, item in enumerate(output):
            yield ResponseOutputItemDoneEvent(
                type="response.output_item.done", item=item, output_index=index, sequence_number=index + 1
            )
        response = Response(
            id=f"resp_{script.model_calls}",
            created_at=0,
            model="fake",
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
            usage=USAGE,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=len(output) + 1)
        if not move.calls:
            check(script, sum(item.get("type") == "function_call_output" for item in items))


def items_of(message: str, move: Move) -> Iterator[ResponseOutputItem]:
    """The items of a response: the message, and the calls."""
    text = ResponseOutputText(type="output_text", text=move.text, annotations=[], logprobs=[])
    yield ResponseOutputMessage(id=message, type="message", role="assistant", status="completed", content=[text])
    for call in move.calls:
        yield ResponseFunctionToolCall(
            type="function_call", id=f"fc_{call.id}", call_id=call.id, name=call.name, arguments=call.arguments
        )


class OpenAIAgentsStreamed(Subject):
    """The agent, its run streamed."""

    name = "openai-agents, streamed"
    streamed = True
    modules = ("agents",)
    packages = ("openai-agents", "openai", "pydantic")
    notes: ClassVar[tuple[str, ...]] = ("Its tracing, which is on by default, is off.",)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One agent for all turns."""
        self._agent = Agent(name="Looker", model=Fake(), tools=[function_tool(look)])
        self._config = RunConfig(tracing_disabled=True)
        yield

    def kept(self) -> SQLiteSession | None:
        """The session of the next turn; None if nothing is kept."""
        return None

    async def turn(self, script: Script) -> str:
        """One turn, its events taken: only then does it go on."""
        result = Runner.run_streamed(
            self._agent, PROMPT, max_turns=script.steps, run_config=self._config, session=self.kept()
        )
        async for _ in result.stream_events():
            pass
        return str(result.final_output)


class OpenAIAgentsSqlite(OpenAIAgentsStreamed):
    """The agent with its SQLite session, each turn a session of its own."""

    name = "openai-agents, SQLiteSession"
    durable = True
    store_kind = "SQLite"
    has_sessions = True

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """A file for all sessions, and the one session that turns may share."""
        self._numbers = itertools.count()
        with tempfile.TemporaryDirectory() as folder:
            self._path = Path(folder) / "sessions.db"
            self._shared = SQLiteSession("s", self._path)
            async with super().opened():
                yield
            self._shared.close()

    def kept(self) -> SQLiteSession:
        """The shared session, or a new one."""
        return self._shared if self.session else SQLiteSession(str(next(self._numbers)), self._path)

    def stored(self) -> int:
        """The bytes of the rows."""
        return sqlite_bytes(self._path)


class OpenAIAgents(OpenAIAgentsStreamed):
    """The agent's plain run, its replies whole."""

    name = "openai-agents"
    streamed = False

    async def turn(self, script: Script) -> str:
        """One turn."""
        result = await Runner.run(self._agent, PROMPT, max_turns=script.steps, run_config=self._config)
        return str(result.final_output)


if __name__ == "__main__":
    main(OpenAIAgents(), OpenAIAgentsStreamed(), OpenAIAgentsSqlite())
