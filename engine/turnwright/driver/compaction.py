"""Makes the conversation of a running turn shorter: when, and how (docs/rules.md#compaction)."""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from turnwright.agent import Compact
from turnwright.message import Message
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import Model, ModelError, ModelRequest, ModelResponse, no_reply, stream_reply
from turnwright.transcript.compaction import cut_before, oldest_steps, size_of, without_results
from turnwright.transcript.pairing import repair_pairs
from turnwright.transcript.refusal import CONTENT_CAUSES
from turnwright.transcript.wording import prompt
from turnwright_states import (
    AttemptFailedInput,
    Cause,
    CompactedInput,
    CompactHistory,
    Input,
    OversizedInput,
    Usage,
)
from turnwright_states.inputs import is_blank

from .repetition import RepetitionGuard, repeats_itself
from .segment import Segment

_LOG = logging.getLogger(__name__)
#: The most tokens of a summary.
_SUMMARY_TOKENS: Final = 2048


#: The settings that shape an answer, and would cut a summary short.
_OF_ANSWERS: Final[Mapping[str, object]] = {"max_tokens": None, "stop_sequences": (), "parallel_tool_calls": None}
#: What a summary may be thought about. More would use up its tokens.
_LITTLE_THINKING: Final = (False, "minimal", "low")


def summary_settings(settings: ModelSettings | None) -> ModelSettings | None:
    """Return the settings of a call that summarizes: those of the turn that do not shape its answers."""
    if settings is None:
        return None
    thinking = settings.thinking if settings.thinking in _LITTLE_THINKING else None
    return settings.model_copy(update={**_OF_ANSWERS, "thinking": thinking})


class Compactor:
    """Compacts the conversation of one segment. `model` writes the summaries."""

    def __init__(self, segment: Segment, config: Compact, model: Model) -> None:
        self._segment = segment
        self._config = config
        self._model = model

    def compact_oversized(self) -> OversizedInput | None:
        """Return the input that compacts first, if the next request is too long and something can be compacted.

        The model call of a step follows its compaction, even if that failed.
        """
        segment, config = self._segment, self._config
        if segment.journal.transcript.compacts or not segment.machine.turn.counters.compactions_left:
            return None
        tokens = self._tokens()
        if tokens < config.at_tokens or not self._older(config.keep_steps):
            return None
        return OversizedInput(tokens=tokens, elapsed=segment.elapsed())

    def _tokens(self) -> int:
        """Estimate the tokens of the next request: the provider's last count, and what is new since."""
        conversation, transcript = self._segment.conversation, self._segment.journal.transcript
        if transcript.counted is None or not transcript.counted.tokens:
            tools = sum(len(str(tool)) for tool in conversation.tools) // 4
            return conversation.size.tokens + tools + len(conversation.instructions) // 4
        # The provider has counted everything up to its own last reply.
        messages = conversation.messages
        newest_first = enumerate(reversed(messages))
        replies = (at for at, message in newest_first if message.role == "assistant" and message.says_something)
        return transcript.counted.tokens + size_of(messages[len(messages) - next(replies, 0) :]).tokens

    def _older(self, keep_steps: int) -> int:
        """Return how many messages a compaction would replace; 0 if it would gain nothing."""
        messages = self._segment.conversation.closed
        cut_at = cut_before(messages, keep_steps)
        older = messages[:cut_at]
        if self._config.mode == "clear_tool_results":
            return cut_at if any(without_results(message) is not message for message in older) else 0
        return cut_at if any(message.role == "assistant" for message in older) else 0

    def _kept_steps(self) -> Iterator[int]:
        """Yield how many of the latest steps may stay, fewer and fewer.

        A request that the provider refused may be too long even without the older steps.
        """
        keep = self._config.keep_steps
        while keep >= 0:
            yield keep
            keep = keep // 2 if keep > 1 else keep - 1

    async def compact(self, action: CompactHistory) -> Input:
        """Perform the action: summarize, or clear tool results.

        A summary that the provider refuses for its content is replaced by clearing the tool results that it was to
        cover. Where nothing can be cleared, the oldest steps are left out.
        """
        messages = self._segment.conversation.closed
        elapsed = self._segment.elapsed
        cut_at = next(filter(None, map(self._older, self._kept_steps())), 0)
        if not cut_at:
            return self._left_out(len(messages))
        if self._config.mode == "clear_tool_results":
            return CompactedInput(cleared=True, kept=len(messages) - cut_at, elapsed=elapsed())
        await self._segment.back_off()
        try:
            reply = await self._summarize(messages[:cut_at], action.max_tokens)
        except ModelError as error:
            usage = self._segment.price_reply(error.partial, self._model)
            if error.cause in CONTENT_CAUSES:
                return self._compacted_without_summary(cut_at, error, usage)
            return self._segment.fail_attempt(error, usage)
        usage = self._segment.account_for(reply, self._model)
        if is_blank(reply.text):
            why = "the summary is empty"
            return AttemptFailedInput(cause=Cause.EMPTY_REPLY, message=why, usage=usage, elapsed=elapsed())
        return CompactedInput(text=reply.text, kept=len(messages) - cut_at, usage=usage, elapsed=elapsed())

    def _compacted_without_summary(self, cut_at: int, error: ModelError, usage: Usage | None) -> Input:
        """Return the input of a compaction whose summary was refused: of the first `cut_at` messages."""
        turn_id = self._segment.journal.turn_id
        _LOG.warning("turn %s: its summary was refused: %s", turn_id, error, extra={"turn": turn_id})
        messages = self._segment.conversation.closed
        if any(without_results(message) is not message for message in messages[:cut_at]):
            kept_count = len(messages) - cut_at
            return CompactedInput(cleared=True, kept=kept_count, usage=usage, elapsed=self._segment.elapsed())
        return self._left_out(cut_at, usage)

    def _left_out(self, cut_at: int, usage: Usage | None = None) -> Input:
        """Return the input that leaves out the oldest of the first `cut_at` messages, or that none can be left out."""
        messages, elapsed = self._segment.conversation.closed, self._segment.elapsed()
        older = (messages[: min(cut_at, cut_before(messages, keep))] for keep in self._kept_steps())
        oldest = next(filter(None, map(oldest_steps, older)), 0)
        if not oldest:
            why = "nothing is left to compact: the last step alone is too long"
            return AttemptFailedInput(cause=Cause.CONTEXT_OVERFLOW, message=why, usage=usage, elapsed=elapsed)
        text = f"[The {oldest} oldest messages were left out, because they could not be summarized.]"
        return CompactedInput(text=text, kept=len(messages) - oldest, usage=usage, elapsed=elapsed)

    async def _summarize(self, older: tuple[Message, ...], max_tokens: int | None) -> ModelResponse:
        conversation = self._segment.conversation
        instructions = [Message.system(conversation.instructions)] if conversation.instructions else []
        spoken_messages = (message for message in older if message.says_something)
        request_messages, _ = repair_pairs([*instructions, *spoken_messages, Message.user(prompt("compact").strip())])
        most = _SUMMARY_TOKENS if max_tokens is None else min(_SUMMARY_TOKENS, max_tokens)
        # Another model has other names for the same things, and may lack a setting.
        settings = summary_settings(conversation.settings) if self._model is self._segment.model else None
        request = ModelRequest(
            tuple(request_messages), tools=conversation.tools, tool_choice="none", max_tokens=most, settings=settings
        )
        stream, repetition = stream_reply(self._model, request), RepetitionGuard()
        try:
            async for item in stream:
                if isinstance(item, ModelResponse):
                    return item
                if self._segment.setup.stop_repetition and repetition.add(item):
                    raise repeats_itself(self._model.name)  # noqa: TRY301 (the stream is closed however it ends)
        except Exception:
            raise
        except BaseException as error:
            from .hooks.asking import own_error  # noqa: PLC0415 (few models raise these)

            raise await own_error(self._model.name, error) from error
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        raise no_reply(self._model.name)
