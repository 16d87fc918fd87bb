"""Google's Agent Development Kit, with a fake BaseLlm of its own kind.

    python -m bench.peers.adk

Sessions are kept by its in-memory service.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from bench.measure import main
from bench.peers.history import check
from bench.yardstick import PROMPT, Script, Subject, current, look

# Peers are installed in environments of their own: who checks types need not have them.
from google.adk.agents import LlmAgent  # pyright: ignore[reportMissingImports]
from google.adk.agents.run_config import RunConfig, StreamingMode  # pyright: ignore[reportMissingImports]
from google.adk.models import BaseLlm, LlmRequest, LlmResponse  # pyright: ignore[reportMissingImports]
from google.adk.runners import InMemoryRunner  # pyright: ignore[reportMissingImports]
from google.adk.telemetry.context import (  # pyright: ignore[reportMissingImports]
    ContentCapturingMode,
    TelemetryConfig,
)
from google.genai import types  # pyright: ignore[reportMissingImports]

USER = "user"
SHARED = "s"


class Fake(BaseLlm):  # type: ignore[misc]
    """The fake model: the pieces of a reply, and then the whole."""

    model: str = "fake"

    async def generate_content_async(
        self, llm_request: LlmRequest, *_: object, **__: object
    ) -> AsyncIterator[LlmResponse]:
        """One reply."""
        script = current()
        move = await script.reply()
        parts = [types.Part(text=move.text)]
        yield LlmResponse(partial=True, content=types.Content(role="model", parts=parts[:1]))
        for call in move.calls:
            function_call = types.FunctionCall(id=call.id, name=call.name, args={"place": call.place})
            parts.append(types.Part(function_call=function_call))
            yield LlmResponse(partial=True, content=types.Content(role="model", parts=parts[-1:]))
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=100, candidates_token_count=10, total_token_count=110
        )
        yield LlmResponse(
            partial=False,
            content=types.Content(role="model", parts=parts),
            usage_metadata=usage,
            finish_reason=types.FinishReason.STOP,
        )
        if not move.calls:
            sent_parts = (part for content in llm_request.contents for part in content.parts)
            check(script, sum(part.function_response is not None for part in sent_parts))


class Adk(Subject):
    """The agent, its run streamed."""

    name = "adk, streamed"
    streamed = True
    modules = ("google.adk.agents", "google.adk.runners")
    packages = ("google-adk", "google-genai", "pydantic")
    has_sessions = True
    notes: ClassVar[tuple[str, ...]] = (
        "Sessions are kept in memory, and each turn has one of its own except where sessions are measured.",
        "Its telemetry is set to the least that a run can ask for, and no exporter is set.",
    )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One runner for all turns."""
        self._runner = InMemoryRunner(LlmAgent(name="looker", model=Fake(), tools=[look]), app_name="bench")
        plain = TelemetryConfig(
            genai_semconv_stability_opt_in="stable", capture_message_content=ContentCapturingMode.NO_CONTENT
        )
        self._config = RunConfig(streaming_mode=StreamingMode.SSE, telemetry=plain)
        await self._runner.session_service.create_session(app_name="bench", user_id=USER, session_id=SHARED)
        yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        service = self._runner.session_service
        new_session = None if self.session else await service.create_session(app_name="bench", user_id=USER)
        text = ""
        async for event in self._runner.run_async(
            user_id=USER,
            session_id=SHARED if new_session is None else new_session.id,
            new_message=types.Content(role="user", parts=[types.Part(text=PROMPT)]),
            run_config=self._config,
        ):
            if event.is_final_response():
                text = event.content.parts[0].text
        return text


if __name__ == "__main__":
    main(Adk())
