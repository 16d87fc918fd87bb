"""Lines of a recorded model, made from facts."""

from typing import Final

from turnwright.model.protocol import ModelError, ModelResponse
from turnwright_states import Cause, Usage
from turnwright_states import facts as f

from .recording import Broke, Unfinished

Line = str | ModelResponse | ModelError | Unfinished | Broke

#: The texts that a script abbreviates; see `ScriptedModel`.
_ONE_EACH: Final = Usage(input_tokens=1, output_tokens=1)


def line_of(reply: ModelResponse) -> str | ModelResponse:
    """Return the reply, as a text if nothing is lost."""
    plain = ModelResponse(text=reply.text, usage=_ONE_EACH)
    return reply.text if reply == plain and reply.text else reply


def failed_line(fact: f.AttemptFailed) -> ModelResponse | ModelError:
    """Return the line of a failed attempt."""
    if fact.cause is Cause.EMPTY_REPLY and not fact.partial:
        return ModelResponse(usage=fact.usage)
    heard = ModelResponse(text=fact.partial, usage=fact.usage) if fact.partial or fact.usage else None
    return ModelError(fact.message, cause=fact.cause, partial=heard)
