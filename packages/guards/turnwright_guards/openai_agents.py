"""A guard for runs of the OpenAI Agents SDK: `await guarded_run(agent, prompt, limits=Limits(steps=20))`.

Hooks of the SDK cannot refuse anything. So the run gets a model that asks the guard, in front of the models of its
agents. A run inside a tool (`Agent.as_tool`) receives the same model from the SDK, but not the hooks of the run. So the
hooks announce each call of the guarded run, and any other call is passed on.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Final

import turnwright_states as states
from turnwright.rules import Rules
from turnwright_states import CallDecision, CallStatus, Limits

from ._frameworks import framework
from .client_formats import last_user_text, text_of
from .turn import Ending, GuardedTurn, GuardOptions, NextCall, tool_call

with framework("openai-agents"):
    # An optional package: who checks types need not have it.
    from agents import (  # pyright: ignore[reportMissingImports]
        Agent,
        ItemHelpers,
        Model,
        ModelResponse,
        ModelSettings,
        RunConfig,
        RunHooks,
        Runner,
        RunResult,
        RunResultStreaming,
        RunState,
        StreamEvent,
        Usage,
    )
    from agents.models import get_default_model_settings  # pyright: ignore[reportMissingImports]
    from agents.run_config import CallModelData, ModelInputData  # pyright: ignore[reportMissingImports]
    from openai.types.responses import (  # pyright: ignore[reportMissingImports]
        Response,
        ResponseCompletedEvent,
        ResponseOutputMessage,
        ResponseOutputText,
        ResponseUsage,
    )

Item = dict[str, Any]
#: The agent whose model call is being made. Runs inside tools may make calls at the same time.
_AGENT: ContextVar[Agent[Any]] = ContextVar("_AGENT")
#: The kinds of calls whose refusal the model can read, and of their results.
_RESULTS: Final = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


async def guarded_run(
    agent: Agent[Any],
    prompt: str | list[Item] | RunState[Any],
    *,
    limits: Limits | None = None,
    journal: str | None = None,
    rules: Rules = (),
    **options: Any,  # noqa: ANN401 (those of `Runner.run`)
) -> tuple[RunResult, Ending]:
    """Run an agent as `Runner.run` does, bounded by `limits`, and return its result and the ending of its turn.

    A call beyond the budget does not run; the model reads why. At a limit the model answers once more, without calls.
    Handoffs count as calls. A sub-agent that is a tool (`Agent.as_tool`) is one call. Its own model calls are not
    bounded by these limits: give it `max_turns`. `seconds` are checked between steps only. `journal` is the address of
    a store. `rules` are judged before the calls of a reply run; a rule that would ask a person refuses. There is no
    `max_turns`, unless `options` have it.

    An exception fails the turn and is raised. A run that is interrupted for approvals aborts its turn; its state, as
    the prompt, continues it in a new turn, which runs the approved calls. Raises `ConfigError` for limits that a guard
    cannot keep.
    """
    turn = await _begin(prompt, limits, journal, rules)
    model = _GuardedModel(turn, agent, _config(options))
    try:
        result = await Runner.run(agent, prompt, run_config=model.config, **model.options(options))
    except BaseException as error:
        model.failed(error)
        raise
    await turn.in_thread(model.finish, result)
    assert turn.ending is not None  # noqa: S101 (`finish` has ended it)
    return result, turn.ending


async def guarded_run_streamed(
    agent: Agent[Any],
    prompt: str | list[Item] | RunState[Any],
    *,
    limits: Limits | None = None,
    journal: str | None = None,
    rules: Rules = (),
    **options: Any,  # noqa: ANN401 (those of `Runner.run_streamed`)
) -> "GuardedStream":
    """Run an agent as `guarded_run` does, and return its events as `Runner.run_streamed` does.

    Each reply arrives complete, in one event: a streamed reply would be shown before its calls could be refused.
    """
    turn = await _begin(prompt, limits, journal, rules)
    model = _GuardedModel(turn, agent, _config(options))
    result = Runner.run_streamed(agent, prompt, run_config=model.config, **model.options(options))
    return GuardedStream(turn, model, result)


class GuardedStream:
    """A guarded run whose events arrive one by one. Once they were iterated over, `ending` is that of its turn.

    A run whose events are not read to the end is canceled, and its turn aborted.
    """

    def __init__(self, turn: GuardedTurn, model: "_GuardedModel", result: RunResultStreaming) -> None:
        self.result = result
        self._turn = turn
        self._model = model

    @property
    def ending(self) -> Ending | None:
        """The ending of the turn; None before."""
        return self._turn.ending

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        try:
            async for event in self.result.stream_events():
                yield event
        except GeneratorExit:
            self.result.cancel()
            self._turn.aborted()
            raise
        except BaseException as error:
            self._model.failed(error)
            raise
        await self._turn.in_thread(self._model.finish, self.result)


async def _begin(
    prompt: str | list[Item] | RunState[Any], limits: Limits | None, journal: str | None, rules: Rules
) -> GuardedTurn:
    original_input: str | list[Item] = getattr(prompt, "_original_input", prompt)  # that of a state
    prompt_text = original_input if isinstance(original_input, str) else last_user_text(original_input)
    options = GuardOptions(limits or Limits(), journal, rules=rules).checked()
    return await GuardedTurn.begin(options, app="openai-agents", prompt=prompt_text)


def _config(options: dict[str, Any]) -> RunConfig:
    """Return the configuration of a run, taken out of its options."""
    config = options.pop("run_config", None)
    return RunConfig(**config) if isinstance(config, dict) else config or RunConfig()


class _GuardedModel(Model):  # type: ignore[misc]
    """The model of a run. It asks the guard, and then the model of the agent that runs."""

    def __init__(self, turn: GuardedTurn, agent: Agent[Any], config: RunConfig) -> None:
        self.error: BaseException | None = None
        self._turn, self._first, self._config = turn, agent, config
        #: Whether the next model call is one of the guarded run, and not of a run inside a tool.
        self._is_next = False
        self._models: dict[object, Model] = {}
        #: The refused calls and their results: where the input had them, by index and after the results of these calls.
        self._refused: list[tuple[int, frozenset[str], list[Item]]] = []
        #: The results of refused calls that a server with the conversation has not received.
        self._unsent: list[Item] = []

    @property
    def config(self) -> RunConfig:
        """The configuration of the run, with this model."""
        return replace(self._config, model=self, call_model_input_filter=self.see(self._config.call_model_input_filter))

    def options(self, run_options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of the run, with hooks that announce its model calls."""
        return {"max_turns": None, **run_options, "hooks": _AnnouncingHooks(self.announce, run_options.get("hooks"))}

    def announce(self) -> None:
        """Note that the next model call is one of the guarded run."""
        self._is_next = True

    def failed(self, error: BaseException) -> None:
        """Fail the turn with an error of the run."""
        end = self._turn.model_failed if error is self.error else self._turn.broke
        end(error)

    def see(self, own_filter: Callable[[CallModelData[Any]], Any] | None) -> Callable[[CallModelData[Any]], Any]:
        """Return a filter of the run's input that notes which agent runs."""

        async def note(data: CallModelData[Any]) -> ModelInputData:
            _AGENT.set(data.agent)
            model_data = data.model_data if own_filter is None else own_filter(data)
            return await model_data if isawaitable(model_data) else model_data

        return note

    async def get_response(  # noqa: PLR0917 (the SDK's)
        self,
        system_instructions: str | None,
        input: str | list[Item],  # noqa: A002 (the SDK's)
        model_settings: ModelSettings,
        tools: Any,  # noqa: ANN401 (the SDK's)
        output_schema: Any,  # noqa: ANN401
        handoffs: Any,  # noqa: ANN401
        tracing: Any,  # noqa: ANN401
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> ModelResponse:
        """Call the agent's model as often as the turn allows, and return the reply without its refused calls."""
        if not self._is_next:
            return await self._model().get_response(
                system_instructions,
                input,
                self._resolve_settings(model_settings),
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                **options,
            )
        turn, usage = self._turn, Usage()
        items = ItemHelpers.input_to_new_input_list(input)
        await turn.in_thread(self._settle, items)
        while True:
            call = await turn.in_thread(turn.next_call)
            is_stored = previous_response_id is not None or conversation_id is not None
            items = [*items, *self._unsent] if is_stored else self._with_refused(items)
            try:
                response = await self._model().get_response(
                    system_instructions,
                    [*items, {"role": "user", "content": call.hint}] if call.hint else items,
                    self._settings(model_settings, call),
                    tools,
                    output_schema,
                    handoffs,
                    tracing,
                    previous_response_id=previous_response_id,
                    conversation_id=conversation_id,
                    **options,
                )
            except Exception as error:
                if not call.conclude:
                    self.error = error
                    raise
                await turn.in_thread(turn.model_failed, error)
                self._is_next = False
                return _replace_text(ModelResponse(output=[], usage=usage, response_id=None), turn.summary)
            self._unsent = []
            usage.add(response.usage)
            kept_items = await turn.in_thread(self._reply, call, response, len(items))
            if kept_items is not None:
                self._is_next = False  # until then the SDK may try again
                return replace(kept_items, usage=usage)
            if is_stored:  # the server has the reply
                items, previous_response_id = [], previous_response_id and response.response_id

    async def stream_response(self, *request: Any, **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401 (the SDK's)
        """Yield the reply in one event; that of a run inside a tool as it streams."""
        if not self._is_next:
            instructions, items, settings, *more_parts = request
            request = (instructions, items, self._resolve_settings(settings), *more_parts)
            async for event in self._model().stream_response(*request, **options):
                yield event
            return
        reply = await self.get_response(*request, **options)
        usage = reply.usage
        response = Response(
            id=reply.response_id or "resp_turnwright",
            created_at=time.time(),
            model="",
            object="response",
            output=reply.output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
            usage=ResponseUsage(
                input_tokens=usage.input_tokens,
                input_tokens_details=usage.input_tokens_details,
                output_tokens=usage.output_tokens,
                output_tokens_details=usage.output_tokens_details,
                total_tokens=usage.total_tokens,
            ),
        )
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=response)

    def get_retry_advice(self, request: Any) -> Any:  # noqa: ANN401 (the SDK's)
        """Return the advice of the agent's model."""
        return self._model().get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        for model in self._models.values():
            await model._cleanup_on_run_end(owner)  # noqa: SLF001 (the SDK's runner calls it)

    def finish(self, result: RunResult | RunResultStreaming) -> None:
        """End the turn with the run. If the run ended with the result of a call, that is the answer."""
        self._turn.reviewed()
        if not result.interruptions:
            self._settle(result.to_input_list(), final=True)
        self._turn.aborted()

    @property
    def _agent(self) -> Agent[Any]:
        """The agent that runs."""
        return _AGENT.get(self._first)

    def _model(self) -> Model:
        """Return the model of the agent that runs."""
        model = self._agent.model if self._config.model is None else self._config.model
        if isinstance(model, Model):
            self._models[id(model)] = model
            return model
        if model not in self._models:
            self._models[model] = self._config.model_provider.get_model(model)
        return self._models[model]

    def _settings(self, settings: ModelSettings, call: NextCall) -> ModelSettings:
        """Return the settings with the defaults of the agent's model and the ban."""
        settings = self._resolve_settings(settings)
        return settings if call.tools else settings.resolve(ModelSettings(tool_choice="none"))

    def _resolve_settings(self, settings: ModelSettings) -> ModelSettings:
        """Return the settings with the defaults of the agent's model, which the SDK did not know."""
        model = self._agent.model
        if self._config.model is None and not isinstance(model, Model):
            defaults = get_default_model_settings() if model is None else get_default_model_settings(model)
            if self._agent.model_settings == defaults:
                return defaults.resolve(settings)
        return settings

    def _reply(self, call: NextCall, response: ModelResponse, place: int) -> ModelResponse | None:
        """Record a reply. Return what of it the run receives, or None if the model is called again."""
        turn, output = self._turn, response.output
        text = "".join(text_of(item["content"]) for item in map(_plain, output) if item.get("type") == "message")
        call_items = [item for item in output if _call_id(item)]
        calls = [tool_call(_name(item), _arguments(item), _call_id(item)) for item in call_items]
        # The SDK does not pass the reason on for which a reply ended, but the status of an item that was cut off.
        cut_off = any(_plain(item).get("status") == "incomplete" for item in output)
        finish = states.Finish.LENGTH if cut_off else states.Finish.STOP
        decisions = turn.replied(text, calls, finish=finish, usage=_usage(response), review=True)
        if turn.over:
            return self._bare(response, text)
        if call.conclude or not call_items:
            return None if turn.model_is_next else response
        starts = {decision.provider_id: turn.started(decision.provider_id) for decision in decisions if decision.runs}
        if turn.over:  # a rule ended the turn
            return self._bare(response, "")
        decisions_by_id = {decision.provider_id: decision for decision in decisions} | starts
        refusals = {name: decision for name, decision in decisions_by_id.items() if not decision.runs}
        runs = frozenset(decisions_by_id) - frozenset(refusals)
        self._refuse(response, refusals, runs, place)
        return replace(response, output=[item for item in output if _call_id(item) not in refusals]) if runs else None

    def _bare(self, response: ModelResponse, text: str) -> ModelResponse:
        """Return the reply of a turn that is over: its text, or else the summary, without its calls."""
        bare = replace(response, output=[item for item in response.output if not _call_id(item)])
        last_text = self._turn.text_after(text)
        return bare if last_text == text else _replace_text(bare, last_text)

    def _refuse(
        self, response: ModelResponse, refusals: dict[str, CallDecision], runs: frozenset[str], place: int
    ) -> None:
        """Keep refused calls and their results for the next requests, or all of a reply of which nothing runs."""
        items = [item for item in response.to_input_items() if not runs or item.get("call_id") in refusals]
        results = [
            {"type": _RESULTS[item["type"]], "call_id": item["call_id"], "output": refusals[item["call_id"]].refusal}
            for item in items
            if item.get("type") in _RESULTS
        ]
        readable = {result["call_id"] for result in results}
        items = [item for item in items if item.get("call_id", "") in {"", *readable}]
        if results:
            self._refused.append((place, runs, [*items, *results]))
            self._unsent = results

    def _with_refused(self, request_items: Sequence[Item]) -> list[Item]:
        """Return the input with the refused calls and their results at their places."""
        items = list(request_items)
        for place, runs, pairs in reversed(self._refused):
            after = [at for at, item in enumerate(items) if item.get("call_id") in runs]
            at = after[-1] + 1 if after else min(place, len(items))
            items[at:at] = pairs
        return items

    def _settle(self, items: Sequence[Item], *, final: bool = False) -> None:
        """Record the results that the SDK puts into the input of the next request."""
        results = {item["call_id"]: item["output"] for item in items if "output" in item and "call_id" in item}
        texts = {
            own_id: result if isinstance(result, str) else json.dumps(result, default=str)
            for own_id, result in results.items()
        }
        self._turn.settle_rest({own_id: (text, CallStatus.OK) for own_id, text in texts.items()}, final=final)


class _AnnouncingHooks(RunHooks[Any]):  # type: ignore[misc]
    """The hooks of a run, which announce each of its model calls. The SDK gives runs inside tools no hooks."""

    def __init__(self, announce: Callable[[], None], own_hooks: RunHooks[Any] | None) -> None:
        self._announce, self._own = announce, own_hooks or RunHooks()
        for name in dir(self._own):
            if name.startswith("on_") and name != "on_llm_start":
                setattr(self, name, getattr(self._own, name))

    async def on_llm_start(self, *about: Any, **values: Any) -> None:  # noqa: ANN401 (the SDK's)
        """Announce the call, and call the hook of the app."""
        self._announce()
        await self._own.on_llm_start(*about, **values)


def _replace_text(response: ModelResponse, text: str) -> ModelResponse:
    """Return the reply with a text of ours instead of its own."""
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    message = ResponseOutputMessage(
        id="msg_turnwright", type="message", role="assistant", status="completed", content=[content]
    )
    return replace(response, output=[message])


def _plain(item: Any) -> Item:  # noqa: ANN401 (an item of a reply)
    plain: Item = item if isinstance(item, dict) else item.model_dump()
    return plain


def _call_id(item: Any) -> str:  # noqa: ANN401
    """Return the id of a call that the SDK runs; empty for any other item of a reply."""
    plain = _plain(item)
    return str(plain.get("call_id") or "") if str(plain.get("type")).endswith("call") else ""


def _name(item: Any) -> str:  # noqa: ANN401
    plain = _plain(item)
    return str(plain.get("name") or plain["type"])


def _arguments(item: Any) -> object:  # noqa: ANN401
    """Return the arguments of a call. A call of the SDK's other tools has an action, or an input."""
    plain = _plain(item)
    fields = {name: plain[name] for name in ("input", "action", "operation") if plain.get(name) is not None}
    return plain["arguments"] if "arguments" in plain else json.loads(json.dumps(fields, default=str))


def _usage(response: ModelResponse) -> states.Usage:
    counts = response.usage
    return states.Usage(
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_tokens=counts.input_tokens_details.cached_tokens or 0,
        reasoning_tokens=counts.output_tokens_details.reasoning_tokens or 0,
    )
