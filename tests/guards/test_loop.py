"""A loop around a client of OpenAI or Anthropic, in the client's own format."""

import importlib
import itertools
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.errors import ConfigError, TurnAlreadyEndedError
from turnwright.rules import Rule, RuleError
from turnwright_guards import Ending, GuardedLoop
from turnwright_guards.client_formats import FORMATS, ClientApi
from turnwright_states import EndReason, Finish, Limits, Outcome, Usage

from .clients import NO_TOOLS, PROMPT, WRITERS, Json, check_pairs

APIS = pytest.mark.parametrize("api", WRITERS)
#: Requests after which a loop that does not end is stopped.
PLUG = 60


class PluggedOutError(BaseException):
    """The loop made too many requests."""


class Client:
    """A scripted client: its replies, and the requests that it received. Without tools it sums up."""

    def __init__(self, api: ClientApi, replies: Iterator[Json], summary: str = "I am not done.") -> None:
        self.api: ClientApi = api
        self.replies, self.summary = replies, summary
        self.requests: list[Json] = []

    def create(self, **request: object) -> Json:
        """One request. A provider refuses one with a call without its result."""
        self.requests.append(request)
        if len(self.requests) > PLUG:
            raise PluggedOutError
        messages = request[FORMATS[self.api].messages]
        assert isinstance(messages, list)
        check_pairs(messages)
        if request.get("tool_choice") == NO_TOOLS[self.api]:
            return WRITERS[self.api](self.summary)
        return next(self.replies)


def pages(api: ClientApi, batch_size: int = 1) -> Iterator[Json]:
    """A model that always wants more pages."""
    numbers = itertools.count(1)
    while True:
        batch = [next(numbers) for _ in range(batch_size)]
        yield WRITERS[api]("", [(f"call_{number}", "read_page", {"number": number}) for number in batch])


def run(client: Client, loop: GuardedLoop, tool: Callable[[int], object] = lambda number: f"page {number}") -> Ending:
    """The loop of an app."""
    with loop:
        while loop.running:
            reply = client.create(**loop.request(model="m", tools=["read_page"]))
            for call in loop.reply(reply):
                number = call.arguments["number"]
                assert isinstance(number, int)
                loop.result(call, tool(number))
    assert loop.ending is not None
    check_pairs(loop.messages)
    return loop.ending


def run_unguarded(client: Client) -> None:
    """The usual first loop."""
    form, messages = FORMATS[client.api], list[Json]()
    while (read := form.reply(client.create(**{form.messages: messages}))).calls:
        messages += read.messages
        for call in read.calls:
            form.add_result(messages, call.provider_id, "a page", error=False)


def guarded(api: ClientApi, journal: str | None = None, **limits: object) -> GuardedLoop:
    return GuardedLoop([{"role": "user", "content": PROMPT}], Limits.model_validate(limits), api=api, journal=journal)


@APIS
def test_unguarded_loop_runs_away_and_guarded_loop_concludes(api: ClientApi) -> None:
    with pytest.raises(PluggedOutError):
        run_unguarded(Client(api, pages(api)))
    client, loop = Client(api, pages(api)), guarded(api, steps=3)
    ending = run(client, loop)
    assert (ending.outcome, ending.reason) == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert loop.text == "I am not done."
    assert len(client.requests) == 4
    assert "Stopped at the step limit (3 of 3)" in client.requests[-1][FORMATS[api].messages][-1]["content"]


@APIS
def test_answer_ends_the_turn(api: ClientApi) -> None:
    client, loop = Client(api, iter([next(pages(api, 2)), WRITERS[api]("It says hello.")])), guarded(api)
    assert run(client, loop).reason is EndReason.ANSWERED
    assert loop.text == "It says hello."
    assert "tool_choice" not in client.requests[-1]
    with pytest.raises(TurnAlreadyEndedError):
        loop.request()


@APIS
def test_calls_beyond_the_budget_get_a_result_and_do_not_run(api: ClientApi) -> None:
    ran: list[int] = []
    client, loop = Client(api, pages(api, batch_size=8)), guarded(api, tool_calls=10)
    assert run(client, loop, ran.append).reason is EndReason.BUDGET
    assert ran == list(range(1, 11))
    assert str(loop.messages).count("not executed: the tool budget is spent") == 6


@APIS
def test_repeating_model_concludes(api: ClientApi) -> None:
    same = [WRITERS[api]("", [(f"call_{number}", "read_page", {"number": 1})]) for number in range(9)]
    client, loop = Client(api, iter(same)), guarded(api, nudges=1)
    ending = run(client, loop)
    assert (ending.outcome, ending.reason) == (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)
    assert "several times" in client.requests[3][FORMATS[api].messages][-1]["content"]


@APIS
def test_stalling_model_gets_a_hint_in_each_request(api: ClientApi) -> None:
    read = [WRITERS[api]("", [(f"call_{number}", "read_page", {"number": number % 5})]) for number in range(12)]
    client, loop = Client(api, iter([*read, WRITERS[api]("Here.")])), guarded(api)
    assert run(client, loop).reason is EndReason.ANSWERED
    hints = ["brought nothing new" in str(request[FORMATS[api].messages][-1]) for request in client.requests]
    assert hints == [False] * 11 + [True, True]
    assert "brought nothing new" not in str(loop.messages)


@APIS
def test_empty_conclusion_is_repeated_once_and_then_summarized(api: ClientApi) -> None:
    client, loop = Client(api, pages(api), summary=""), guarded(api, steps=1)
    assert run(client, loop).reason is EndReason.STEP_CAP
    assert len(client.requests) == 3
    assert loop.text.startswith("Stopped at the step limit (1 of 1). The model gave no summary.")
    assert loop.messages[-1] == {"role": "assistant", "content": loop.text}


@APIS
def test_blank_replies_are_repeated_and_discarded(api: ClientApi) -> None:
    client, loop = Client(api, iter([WRITERS[api](), WRITERS[api]("Here.")])), guarded(api)
    assert run(client, loop).reason is EndReason.ANSWERED
    assert len(loop.messages) == 2
    client, loop = Client(api, itertools.repeat(WRITERS[api]())), guarded(api, max_retries=1)
    assert run(client, loop).reason is EndReason.EMPTY_REPLY
    assert loop.text.startswith("The model kept replying with neither text nor tool calls.")
    assert len(loop.messages) == 2


@APIS
def test_reply_is_read_with_usage_and_finish_reason(api: ClientApi) -> None:
    read = FORMATS[api].reply(WRITERS[api]("Hello", [("c1", "read_page", {"number": 1})], cut=True))
    assert (read.text, read.calls[0].arguments, read.finish) == ("Hello", {"number": 1}, Finish.LENGTH)
    reasoning = 0 if api == "anthropic" else 4
    assert read.usage == Usage(input_tokens=100, output_tokens=10, cached_tokens=60, reasoning_tokens=reasoning)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_non_object_arguments_are_refused(api: ClientApi) -> None:
    reply = WRITERS[api]("", [("c1", "read_page", {})])
    broken = {"chat": lambda: reply["choices"][0]["message"]["tool_calls"][0]["function"]}.get(
        api, lambda: reply["output"][1]
    )()
    broken["arguments"] = '{"number": '
    loop = guarded(api)
    assert list(loop.reply(reply)) == []
    assert "the arguments are not one whole JSON object" in str(loop.messages[-1])
    check_pairs(loop.messages)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_custom_tool_call_has_the_text_as_input(api: ClientApi) -> None:
    custom = {"name": "grammar", "input": "a + b"}
    reply = WRITERS[api]()
    if api == "chat":
        reply["choices"][0]["message"]["tool_calls"] = [{"id": "c1", "type": "custom", "custom": custom}]
    else:
        reply["output"] = [{"type": "custom_tool_call", "id": "ct_1", "call_id": "c1", **custom}]
    loop = guarded(api)
    (call,) = loop.reply(reply)
    assert (call.name, call.arguments) == ("grammar", {"input": "a + b"})
    loop.result(call, 3)
    if api == "responses":
        assert loop.messages[-1] == {"type": "custom_tool_call_output", "call_id": "c1", "output": "3"}


def test_reply_paused_by_the_provider_does_not_end_the_turn() -> None:
    paused = WRITERS["anthropic"]("Searching.") | {"stop_reason": "pause_turn"}
    client, loop = Client("anthropic", iter([paused, WRITERS["anthropic"]("Found.")])), guarded("anthropic")
    assert run(client, loop).reason is EndReason.ANSWERED
    assert [message["role"] for message in loop.messages] == ["user", "assistant", "assistant"]


def test_call_without_a_result_gets_a_default_result() -> None:
    loop = guarded("chat")
    loop.reply(next(pages("chat", 2)))
    check_pairs(loop.request()["messages"])
    assert loop.messages[-1]["content"] == "no result was reported"


def test_failed_result_is_marked_as_an_error() -> None:
    loop = guarded("anthropic")
    for call in loop.reply(next(pages("anthropic", 2))):
        loop.result(call, "there is no such page", error=True)
    assert [block["is_error"] for block in loop.messages[-1]["content"]] == [True, True]


def test_exception_in_the_loop_fails_the_turn() -> None:
    def fails(_: int) -> object:
        raise LookupError("no such page")

    loop = guarded("chat")
    with pytest.raises(LookupError):
        run(Client("chat", pages("chat")), loop, fails)
    assert loop.ending is not None
    assert (loop.ending.outcome, loop.ending.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)


def test_failed_conclusion_of_a_client_does_not_fail_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    loop = guarded("chat", steps=1)
    with caplog.at_level(logging.WARNING), loop:
        for call in loop.reply(next(pages("chat"))):
            loop.result(call, "page 1")
        raise ConnectionError("the server is down")
    assert loop.ending is not None
    assert loop.ending.reason is EndReason.STEP_CAP
    assert loop.text.startswith("Stopped at the step limit")
    assert "the concluding call failed" in caplog.text


@pytest.mark.parametrize("stops", [KeyboardInterrupt, None])
def test_abandoned_loop_is_aborted(stops: type[BaseException] | None) -> None:
    loop = guarded("chat")
    try:
        with loop:
            loop.reply(next(pages("chat")))
            if stops is not None:
                raise stops
    except KeyboardInterrupt:
        pass
    assert loop.ending is not None
    assert loop.ending.outcome is Outcome.ABORTED


def test_unenforceable_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="nobody to ask"):
        guarded("chat", doom_response="ask")
    with pytest.raises(ConfigError, match="no prices"):
        guarded("chat", cost=1.0)
    with pytest.raises(TypeError, match="not str"):
        guarded("chat").reply("Hello")
    with pytest.raises(TypeError, match="pass it, not its message"):
        guarded("chat").reply({"role": "assistant", "content": "Hello"})


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: GuardedLoop("Hello", Limits()), "messages must be the list of messages to which the turn adds"),  # type: ignore[arg-type]
        (lambda: GuardedLoop([], 5), r"limits must be Limits\(steps=\.\.\.\), not 5"),  # type: ignore[arg-type]
        (lambda: GuardedLoop([], rules=Rule("a", never="b")), r"rules must be a list: write rules=\[a\]"),  # type: ignore[arg-type]
        (lambda: GuardedLoop([], api="openai"), "api must be 'chat', 'responses', 'anthropic', not 'openai'"),  # type: ignore[arg-type]
    ],
)
def test_argument_of_another_type_is_refused(make: Callable[[], GuardedLoop], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


def test_result_needs_a_waiting_call() -> None:
    loop = guarded("chat")
    (call,) = loop.reply(next(pages("chat")))
    with pytest.raises(ConfigError, match="call must be one that `reply` returned, not 'call00001'"):
        loop.result(call.id, "page 1")  # type: ignore[arg-type]
    loop.result(call, "page 1")
    with pytest.raises(ConfigError, match="call call00001 of read_page has its result"):
        loop.result(call, "page 1")


@APIS
@given(
    data=st.data(),
    limits=st.builds(
        Limits,
        steps=st.integers(0, 5),
        concluding=st.sampled_from(("after", "within")),
        tool_calls=st.integers(0, 8),
        max_retries=st.integers(0, 1),
    ),
)
def test_any_model_ends_within_the_limits_with_every_call_answered(
    api: ClientApi, data: st.DataObject, limits: Limits
) -> None:
    def replies() -> Iterator[Json]:
        for number in itertools.count():
            calls = data.draw(st.lists(st.integers(0, 3), max_size=4, unique=True))
            tool_calls = [(f"call_{number}_{place}", "read_page", {"number": place}) for place in calls]
            yield WRITERS[api](data.draw(st.sampled_from(("", "x"))), tool_calls)

    client = Client(api, replies(), data.draw(st.sampled_from(("", "The end."))))
    loop = GuardedLoop([{"role": "user", "content": PROMPT}], limits, api=api)
    ran: list[int] = []
    run(client, loop, ran.append)
    assert len(client.requests) <= limits.model_calls
    assert limits.call_limit is None or len(ran) <= limits.call_limit


@APIS
def test_call_cut_off_by_the_output_limit_does_not_run(api: ClientApi) -> None:
    """Without arguments, and as the last block of Anthropic, whose client completes the input."""
    loop = guarded(api)
    loop.request()
    arguments = {"number": 1} if api == "anthropic" else {}
    calls = loop.reply(WRITERS[api]("", [("c1", "read_page", {"number": 1}), ("c2", "read_page", arguments)], cut=True))
    assert [call.arguments for call in calls] == [{"number": 1}]
    assert "cut off at its output limit of 10 tokens before the arguments were complete" in str(loop.messages[-1])


@APIS
def test_call_with_a_long_id_keeps_the_id(api: ClientApi) -> None:
    """Some gateways write the signature of the reasoning into the id."""
    call_id = "call_1" + "x" * 4000
    (call,) = FORMATS[api].reply(WRITERS[api]("", [(call_id, "read_page", {"number": 1})])).calls
    assert (call.provider_id, call.arguments) == (call_id, {"number": 1})


def test_gateway_reply_reads_as_in_the_client() -> None:
    """Its content has parts, its arguments are an object, and it reports a cost."""
    reply = WRITERS["chat"]("", [("c1", "read_page", {})])
    message = reply["choices"][0]["message"]
    message["content"] = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hello"}]
    message["tool_calls"][0]["function"]["arguments"] = {"number": 1}
    reply["usage"]["cost"] = 0.5
    read = FORMATS["chat"].reply(reply)
    assert (read.text, read.calls[0].arguments) == ("Hello", {"number": 1})
    assert read.usage is not None
    assert read.usage.cost == 0.5


REFUND = [("call_r", "refund", {"order_id": "7"})]
VERIFY = [("call_v", "verify", {"order_id": "7"})]
NEED = Rule("verify-first", before="refund", need="verify if result.ok", same=["order_id"])


def run_desk(api: ClientApi, replies: list[Json], *rules: Rule) -> tuple[GuardedLoop, list[str], Client]:
    """A loop with two tools. Return it with the names of the tools that ran."""
    client, ran = Client(api, iter(replies)), []
    loop = GuardedLoop([{"role": "user", "content": PROMPT}], api=api, rules=rules)
    with loop:
        while loop.running:
            for call in loop.reply(client.create(**loop.request(model="m", tools=["refund", "verify"]))):
                ran.append(call.name)
                loop.result(call, {"ok": True})
    return loop, ran, client


@APIS
def test_rule_refuses_a_call_of_a_loop(api: ClientApi) -> None:
    write = WRITERS[api]
    replies = [write("", REFUND), write("", VERIFY + REFUND), write("Done.")]
    loop, ran, client = run_desk(api, replies, NEED)
    assert (ran, str(loop.ending)) == (["verify", "refund"], "finished: answered")
    assert "verify-first" in str(client.requests[1])


@APIS
def test_rule_that_asks_a_person_refuses_in_a_loop(api: ClientApi) -> None:
    write = WRITERS[api]
    large = Rule("large", never="refund", effect="ask")
    loop, ran, _ = run_desk(api, [write("", REFUND), write("Done.")], large)
    assert (ran, str(loop.ending)) == ([], "finished: answered")


@APIS
def test_rule_ends_a_loop(api: ClientApi) -> None:
    write = WRITERS[api]
    loop, ran, _ = run_desk(api, [write("", VERIFY + REFUND)], Rule("no", never="refund", effect="end"))
    assert (ran, str(loop.ending)) == (["verify"], "failed: guardrail")
    assert loop.text != ""


@APIS
def test_refused_answer_of_a_loop_is_requested_again(api: ClientApi) -> None:
    write = WRITERS[api]
    owed = Rule("tested", before="@answer", need="verify")
    loop, ran, client = run_desk(api, [write("Paid."), write("", VERIFY), write("Done.")], owed)
    assert (ran, loop.text, str(loop.ending)) == (["verify"], "Done.", "finished: answered")
    assert "tested" in str(client.requests[1])
    loop, _, _ = run_desk(api, [write("Paid.")] * 4, owed)
    assert str(loop.ending) == "failed: guardrail"
    assert loop.text != "Paid."


def test_call_that_a_rule_couples_with_an_open_call_is_refused() -> None:
    loop = GuardedLoop([{"role": "user", "content": PROMPT}], rules=[NEED])
    write = WRITERS["chat"]
    with loop:
        loop.request(model="m")
        calls = list(loop.reply(write("", VERIFY + REFUND)))
        assert [call.name for call in calls] == ["verify"]
    assert "by a rule it comes after verify" in str(loop.messages)


def test_rules_that_a_guard_cannot_keep_are_refused() -> None:
    messages = [{"role": "user", "content": PROMPT}]
    with pytest.raises(ConfigError, match="rule 'once': a guard remembers one turn"):
        GuardedLoop(messages, rules=[Rule("once", at_most=1, of="refund", scope="session")])
    with pytest.raises(RuleError, match="two rules have this name"):
        GuardedLoop(messages, rules=[NEED, NEED])


@pytest.mark.parametrize(
    ("module", "library", "package"),
    [
        ("langchain", "langchain", "langchain"),
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_guard_without_its_framework_names_the_package_to_install(
    module: str, library: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"turnwright_guards.{module}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=f"^this guard needs {library}: pip install {package}$"):
        importlib.import_module(f"turnwright_guards.{module}")
