"""A guard for a loop around a client of OpenAI or Anthropic: the loop sends requests and runs tools, nothing else."""

import json
import logging
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from msgspec import Struct

from turnwright.errors import ConfigError, need_kind
from turnwright.rules import Rules
from turnwright_states import CallStatus, Limits
from turnwright_states.inputs import is_blank

from .client_formats import FORMATS, ClientApi, last_user_text
from .turn import NO_RESULT, Ending, GuardedTurn, GuardOptions

_LOG = logging.getLogger(__name__)
#: The feedback of a reply that its provider wants to continue.
PAUSED: Final = "the provider paused its reply"


class LoopCall(Struct, frozen=True):
    """A call that your loop runs. `id` is the guard's, unique in the turn."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    provider_id: str


class GuardedLoop:
    """One turn of your loop. `messages` is the conversation in the client's format, to which the turn adds.

    `api` is the client's method: `chat` (`chat.completions.create`), `responses` (`responses.create`) or `anthropic`
    (`messages.create`). `journal` is the address of a store. `rules` are judged where a call starts; a refused call
    gets its result from the guard, and a rule that would ask a person refuses. The turn is a context manager: at its
    end it has an ending. An exception in the block fails the turn, one during the conclusion does not and is logged.
    `seconds` are checked between steps only.

    Raises `ConfigError` for arguments of another type, limits that a guard cannot keep and another address, and
    `StoreError`.
    """

    def __init__(
        self,
        messages: list[Any],
        limits: Limits | None = None,
        *,
        api: ClientApi = "chat",
        journal: str | None = None,
        session: str | None = None,
        rules: Rules = (),
    ) -> None:
        if api not in FORMATS:
            raise ConfigError(f"api must be {', '.join(map(repr, FORMATS))}, not {api!r:.80}")
        need_kind("messages", messages, list, "the list of messages to which the turn adds")
        self._format = FORMATS[api]
        self.messages = messages
        #: The text of the last reply, or the summary of a turn whose model gave none.
        self.text = ""
        options = GuardOptions(limits or Limits(), journal, session, rules=rules).checked()
        self._turn = GuardedTurn(options, app=f"loop ({api})", prompt=last_user_text(messages))
        #: The calls without a result.
        self._open: dict[str, LoopCall] = {}

    @property
    def running(self) -> bool:
        """Whether your loop makes another request."""
        return not self._turn.over

    @property
    def ending(self) -> Ending | None:
        """The ending of the turn, or None while it has not ended."""
        return self._turn.ending

    def request(self, **options: object) -> dict[str, Any]:
        """Return the arguments of the client's method: `options`, the messages, and perhaps the ban on calls.

        Raises `TurnAlreadyEndedError`.
        """
        for open_call in tuple(self._open.values()):
            self._settle(open_call, NO_RESULT, CallStatus.UNKNOWN)
        call = self._turn.next_call()
        hint_messages = [{"role": "user", "content": call.hint}] if call.hint else []
        request: dict[str, Any] = {**options, self._format.messages: [*self.messages, *hint_messages]}
        if not call.tools and options.get("tools"):
            request["tool_choice"] = self._format.no_tools
        return request

    def reply(self, reply: object) -> Iterator[LoopCall]:
        """Record a reply of the client, an object or a dictionary, and return the calls that your loop runs.

        The messages get the reply and the results of refused calls. Each call starts when it is taken from the
        iterator. Pass its result to `result` before the next request.
        """
        client_reply, concluding = self._format.reply(reply), self._turn.concluding
        decisions = self._turn.replied(
            client_reply.text,
            client_reply.calls,
            finish=client_reply.finish,
            usage=client_reply.usage,
            review=client_reply.paused,
        )
        if client_reply.paused:
            self._turn.reviewed(PAUSED)
        over, blank = self._turn.over, is_blank(client_reply.text)
        if over and (last_text := self._turn.text_after(client_reply.text)) != client_reply.text:
            self._say(last_text)
        elif over:
            self.text = client_reply.text
            self.messages += client_reply.text_only
        elif not concluding and (client_reply.calls or client_reply.paused or not blank):
            self.text = client_reply.text
            self.messages += client_reply.messages
            for call, decision in zip(client_reply.calls, decisions, strict=True):
                if decision.runs:
                    self._open[decision.id] = LoopCall(
                        decision.id, decision.name, call.arguments or {}, decision.provider_id
                    )
                else:
                    self._format.add_result(self.messages, decision.provider_id, decision.refusal, error=True)
        return self._starting(tuple(self._open.values()))

    def result(self, call: LoopCall, result: object, *, error: bool = False) -> None:
        """Record the result of a call and add it to the messages. A result that is not text becomes JSON.

        `error`: the result says why the call failed. Raises `ConfigError` for anything but a call that waits for its
        result.
        """
        need_kind("call", call, LoopCall, "one that `reply` returned")
        if call.id not in self._open:
            raise ConfigError(f"call {call.id} of {call.name} has its result: give each call one, before `request`")
        text = result if isinstance(result, str) else json.dumps(result, default=str)
        self._settle(call, text, CallStatus.ERROR if error else CallStatus.OK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        if error is None:
            self._turn.aborted()
            return False
        if isinstance(error, Exception) and self._turn.concluding:
            _LOG.warning("turn %s: the concluding call failed", self._turn.id, exc_info=error)
            self._turn.model_failed(error)
            self._say(self._turn.summary)
            return True
        self._turn.broke(error)
        return False

    def _starting(self, calls: tuple[LoopCall, ...]) -> Iterator[LoopCall]:
        for call in calls:
            decision = self._turn.started(call.provider_id)
            if decision.runs:
                yield call
            elif self._open.pop(call.id, None) is not None:
                self._format.add_result(self.messages, call.provider_id, decision.refusal, error=True)
        if self._turn.over and calls:  # a rule ended the turn
            self._say(self._turn.summary)

    def _settle(self, call: LoopCall, text: str, status: CallStatus) -> None:
        del self._open[call.id]
        self._turn.settled(call.id, text, status)
        self._format.add_result(self.messages, call.provider_id, text, error=status is not CallStatus.OK)

    def _say(self, text: str) -> None:
        self.text = text
        self.messages.append({"role": "assistant", "content": text})
