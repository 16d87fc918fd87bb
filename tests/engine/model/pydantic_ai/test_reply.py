"""Finish reasons that pydantic-ai knows, and those that only the provider's own words say."""

from typing import Final

import pytest
from pydantic_ai.messages import FinishReason, TextPart
from pydantic_ai.messages import ModelResponse as PydanticResponse

from turnwright.model.protocol import ModelError
from turnwright.model.pydantic_ai.reply import whole_reply
from turnwright_states import Cause, Finish

TEXT: Final = "Let me look."


def response(own_reason: FinishReason | None, provider_reason: str | None) -> PydanticResponse:
    details = None if provider_reason is None else {"finish_reason": provider_reason}
    return PydanticResponse([TextPart(TEXT)], finish_reason=own_reason, provider_details=details)


@pytest.mark.parametrize(
    ("own_reason", "provider_reason", "finish"),
    [
        (None, None, Finish.STOP),
        ("stop", "STOP", Finish.STOP),
        ("tool_call", "tool_calls", Finish.STOP),
        ("length", None, Finish.LENGTH),
        ("content_filter", "SAFETY", Finish.CONTENT_FILTER),
        # Chat completions of other servers.
        (None, "MAX_TOKENS", Finish.LENGTH),
        (None, "SAFETY", Finish.CONTENT_FILTER),
        (None, "content_filter: PROHIBITED_CONTENT", Finish.CONTENT_FILTER),
        (None, "eos", Finish.STOP),
    ],
)
def test_finish_reason_of_pydantic_ai_precedes_the_providers_word(
    own_reason: FinishReason | None, provider_reason: str | None, finish: Finish
) -> None:
    reply = whole_reply(response(own_reason, provider_reason))
    assert (reply.finish, reply.finish_reason, reply.text) == (finish, provider_reason or own_reason, TEXT)


@pytest.mark.parametrize(
    ("own_reason", "provider_reason", "cause"),
    [
        ("error", "MALFORMED_FUNCTION_CALL", Cause.SERVER_ERROR),
        (None, "function_call_filter: MALFORMED_FUNCTION_CALL", Cause.SERVER_ERROR),
        (None, "error", Cause.SERVER_ERROR),
        (None, "insufficient_system_resource", Cause.OVERLOADED),
    ],
)
def test_reply_broken_off_by_the_provider_is_no_answer(
    own_reason: FinishReason | None, provider_reason: str, cause: Cause
) -> None:
    with pytest.raises(ModelError, match="could not finish its reply") as error:
        whole_reply(response(own_reason, provider_reason))
    assert provider_reason in str(error.value)
    assert error.value.cause is cause
    assert error.value.partial is not None
    assert error.value.partial.text == TEXT
