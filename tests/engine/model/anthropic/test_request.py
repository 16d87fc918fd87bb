import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import Message, ReasoningPart, Role, TextPart, ToolCallPart, ToolSpec
from turnwright.model.anthropic.client import AnthropicMessages
from turnwright.model.anthropic.request import MAX_TOKENS, AnthropicEncoder
from turnwright.model.anthropic.settings import MIN_BUDGET
from turnwright.model.capabilities import Capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import ModelRequest, ToolChoice
from turnwright_states import CallStatus

HELLO = Message.user("hello")
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LIST = ToolSpec("list", "", {"type": "object"})
CACHE = {"type": "ephemeral"}
THINKING: dict[str, JsonValue] = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
MANUAL: dict[str, JsonValue] = {"type": "enabled", "budget_tokens": 4000}
ADAPTIVE: dict[str, JsonValue] = {"type": "adaptive"}


def encode(request: ModelRequest, encoder: AnthropicEncoder | None = None) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((encoder or AnthropicEncoder("m", cache=False)).encode(request))
    return body


def sent(*messages: Message, encoder: AnthropicEncoder | None = None) -> list[dict[str, Any]]:
    wire: list[dict[str, Any]] = encode(ModelRequest(messages), encoder)["messages"]
    return wire


def asks(*ids: str, thought: bool = False) -> Message:
    parts = [ToolCallPart(id=call_id, name="read") for call_id in ids]
    thinking = [ReasoningPart(text="hm", details=(THINKING,))] if thought else []
    return Message(role="assistant", parts=(*thinking, *parts))


def result(call: str) -> Message:
    return Message.result(call, "read", f"result of {call}")


def said(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def marked(body: dict[str, Any]) -> list[Any]:
    """Return the marked places, up to which the provider may cache: names of tools, texts, and ids of results."""
    blocks = [
        *body.get("tools", ()),
        *body.get("system", ()),
        *(block for message in body["messages"] for block in message["content"]),
    ]
    assert all(block["cache_control"] == CACHE for block in blocks if "cache_control" in block)
    return [
        block.get("name") or block.get("text") or block.get("tool_use_id")
        for block in blocks
        if "cache_control" in block
    ]


def test_a_request_asks_for_a_stream_with_a_bound() -> None:
    assert encode(ModelRequest((HELLO,))) == {
        "model": "m",
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "messages": [said("user", "hello")],
    }


class TestMessages:
    def test_instructions_at_the_beginning_are_the_system_prompt(self) -> None:
        body = encode(ModelRequest((Message.system("a"), Message.system(" "), Message.system("b"), HELLO)))
        assert body["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        assert body["messages"] == [said("user", "hello")]
        assert "system" not in encode(ModelRequest((Message.system(""), HELLO)))

    def test_later_instructions_are_the_users_words(self) -> None:
        assert sent(HELLO, Message.system("be brief")) == [said("user", "hello", "be brief")]

    def test_all_results_of_a_message_precede_the_users_text(self) -> None:
        wire = sent(HELLO, asks("c1", "c2"), result("c1"), result("c2"), Message.user("And now?"))
        assert [message["role"] for message in wire] == ["user", "assistant", "user"]
        assert [block["type"] for block in wire[2]["content"]] == ["tool_result", "tool_result", "text"]
        assert [block.get("tool_use_id") for block in wire[2]["content"]] == ["c1", "c2", None]

    def test_blank_messages_are_left_out_without_splitting_a_side(self) -> None:
        assert sent(Message.user("a"), Message.assistant(" "), Message.user("b")) == [said("user", "a", "b")]

    @pytest.mark.parametrize("messages", [(), (Message.user(" "),), (Message.system("be brief"),)])
    def test_request_without_user_text_gets_a_user_message(self, messages: tuple[Message, ...]) -> None:
        assert sent(*messages) == [said("user", "Go on.")]

    def test_conversation_beginning_with_the_assistant_gets_a_user_message(self) -> None:
        assert sent(Message.assistant("a"), HELLO) == [
            said("user", "Go on."),
            said("assistant", "a"),
            said("user", "hello"),
        ]

    @pytest.mark.parametrize("blank", [Message.user(" "), Message.user(""), Message.system("\n")])
    def test_conversation_ending_with_a_blank_ends_with_the_user(self, blank: Message) -> None:
        """The API refuses a blank, and a conversation that ends with the assistant."""
        begun = (HELLO, Message.assistant("a"), blank)
        assert sent(*begun)[2:] == [said("user", "Go on.")]
        prefilled = sent(
            *begun, encoder=AnthropicEncoder("m", cache=False, capabilities=Capabilities(allows_prefill=True))
        )
        assert prefilled[2:] == ([said("user", "Go on.")] if blank.role == "user" else [])

    def test_blank_user_message_keeps_the_prefix_stable(self) -> None:
        """Else what was said before and after it would be one message, and nothing of it could be kept."""
        begun = (HELLO, Message.assistant("a"), Message.user(" "))
        after = sent(*begun, asks("c1", thought=True), result("c1"))
        assert after[:3] == sent(*begun)
        assert [block["type"] for block in after[3]["content"]] == ["thinking", "tool_use"]

    def test_half_a_surrogate_pair_does_not_stop_a_request(self) -> None:
        assert sent(Message.user("a\ud83d")) == [said("user", "a\ufffd")]

    @given(st.data())
    def test_sides_alternate_and_results_come_first_for_any_conversation(self, data: st.DataObject) -> None:
        texts = st.sampled_from(["", " ", "a", "b\n"])
        roles: st.SearchStrategy[Role] = st.sampled_from(("system", "user", "assistant"))
        messages: list[Message] = []
        for number in range(data.draw(st.integers(0, 5))):
            role = data.draw(roles)
            if role != "assistant":
                messages.append(Message(role=role, parts=(TextPart(text=data.draw(texts)),)))
                continue
            calls = [ToolCallPart(id=f"c{number}-{index}", name="f") for index in range(data.draw(st.integers(0, 3)))]
            messages.append(Message.assistant(data.draw(texts), calls))
            messages += [
                Message.result(call.id, "f", data.draw(texts), data.draw(st.sampled_from(CallStatus))) for call in calls
            ]
        cached = encode(ModelRequest(tuple(messages)), AnthropicEncoder("m"))
        wire = cached["messages"]
        assert [message["role"] for message in wire] == [
            ("user", "assistant")[position % 2] for position in range(len(wire))
        ]
        assert wire[-1]["role"] == "user"
        assert len(marked(cached)) <= 4
        for before, message in zip([{"content": []}, *wire], wire, strict=False):
            kinds = [block["type"] for block in message["content"]]
            assert kinds
            assert kinds.count("tool_result") == [block["type"] for block in before["content"]].count("tool_use")
            assert kinds[: kinds.count("tool_result")] == ["tool_result"] * kinds.count("tool_result")
            assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")


class TestTools:
    def test_tools_are_described(self) -> None:
        body = encode(ModelRequest((HELLO,), tools=(READ, LIST)))
        assert body["tools"] == [
            {"name": "read", "description": "Read a file.", "input_schema": READ.parameters},
            {"name": "list", "input_schema": {"type": "object"}},
        ]
        assert "tool_choice" not in body, "auto is what the API does unasked"

    @pytest.mark.parametrize(("choice", "wire"), [("none", {"type": "none"}), ("required", {"type": "any"})])
    def test_a_choice_is_sent_with_tools_only(self, choice: ToolChoice, wire: dict[str, str]) -> None:
        assert encode(ModelRequest((HELLO,), tools=(READ,), tool_choice=choice))["tool_choice"] == wire
        assert "tool_choice" not in encode(ModelRequest((HELLO,), tool_choice=choice))

    def test_first_call_of_a_turn_may_have_a_special_choice(self) -> None:
        encoder = AnthropicEncoder("m", tool_choice_first="required")
        assert encode(ModelRequest((HELLO,), tools=(READ,), first=True), encoder)["tool_choice"] == {"type": "any"}
        assert "tool_choice" not in encode(ModelRequest((HELLO,), tools=(READ,)), encoder)

    @pytest.mark.parametrize(
        ("choice", "wire"),
        [
            ("auto", {"type": "auto", "disable_parallel_tool_use": True}),
            ("required", {"type": "any", "disable_parallel_tool_use": True}),
            ("none", {"type": "none"}),
        ],
    )
    def test_model_limited_to_a_single_call_gets_the_restriction(
        self, choice: ToolChoice, wire: dict[str, JsonValue]
    ) -> None:
        encoder = AnthropicEncoder("m", capabilities=Capabilities(parallel_tool_calls=False))
        assert encode(ModelRequest((HELLO,), tools=(READ,), tool_choice=choice), encoder)["tool_choice"] == wire


class TestMaxTokens:
    @pytest.mark.parametrize(
        ("option", "requested", "bound"),
        [(None, None, MAX_TOKENS), (None, 5, 5), (100, None, 100), (100, 5, 5), (100, 500, 100)],
    )
    def test_the_smaller_bound_counts(self, option: int | None, requested: int | None, bound: int) -> None:
        assert (
            encode(ModelRequest((HELLO,), max_tokens=requested), AnthropicEncoder("m", max_tokens=option))["max_tokens"]
            == bound
        )

    def test_a_budget_for_thinking_is_added_to_the_default(self) -> None:
        body = encode(ModelRequest((HELLO,)), AnthropicEncoder("m", thinking=MANUAL))
        assert (body["max_tokens"], body["thinking"]) == (MAX_TOKENS + 4000, MANUAL)


class TestThinking:
    @pytest.mark.parametrize(
        ("bound", "budget"),
        [(20_000, 4000), (4000 + MIN_BUDGET, 4000), (4000, 4000 - MIN_BUDGET), (2 * MIN_BUDGET, MIN_BUDGET)],
    )
    def test_a_budget_leaves_room_for_the_answer(self, bound: int, budget: int) -> None:
        body = encode(
            ModelRequest((HELLO,), max_tokens=bound), AnthropicEncoder("m", max_tokens=20_000, thinking=MANUAL)
        )
        assert (body["max_tokens"], body["thinking"]) == (bound, {"type": "enabled", "budget_tokens": budget})

    @pytest.mark.parametrize("thinking", [MANUAL, ADAPTIVE])
    def test_call_without_room_for_thinking_sends_none(self, thinking: dict[str, JsonValue]) -> None:
        """A conclusion, say. A turn that continues without thinking must not hold any."""
        messages = (HELLO, asks("c1", thought=True), result("c1"))
        encoder = AnthropicEncoder("m", thinking=thinking)
        body = encode(ModelRequest(messages, max_tokens=2 * MIN_BUDGET - 1), encoder)
        assert "thinking" not in body
        assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
        body = encode(ModelRequest(messages), encoder)
        assert body["messages"][1]["content"][0] == THINKING

    def test_adaptive_thinking_has_no_budget_and_is_sent_unchanged(self) -> None:
        body = encode(ModelRequest((HELLO,), max_tokens=2 * MIN_BUDGET), AnthropicEncoder("m", thinking=ADAPTIVE))
        assert (body["max_tokens"], body["thinking"]) == (2 * MIN_BUDGET, ADAPTIVE)

    @pytest.mark.parametrize(
        ("thinking", "is_kept"), [(None, True), (ADAPTIVE, True), (MANUAL, True), ({"type": "disabled"}, False)]
    )
    def test_thinking_goes_back_first_unless_switched_off(
        self, thinking: dict[str, JsonValue] | None, *, is_kept: bool
    ) -> None:
        """Models that think by themselves want it too."""
        encoder = AnthropicEncoder("m", thinking=thinking)
        wire = sent(HELLO, asks("c1", thought=True), result("c1"), encoder=encoder)
        assert [block["type"] for block in wire[1]["content"]] == [*(["thinking"] if is_kept else ()), "tool_use"]

    @pytest.mark.parametrize(
        ("messages", "thinks"),
        [
            ([asks("c1"), result("c1")], False),
            ([asks("c1"), result("c1"), Message.user("a hint"), Message.system("another")], False),
            ([asks("c1"), result("c1"), asks("c2", thought=True), result("c2")], False),
            # Without interleaved thinking only the first message of a turn has any.
            ([asks("c1", thought=True), result("c1"), asks("c2"), result("c2")], True),
            ([asks("c1"), result("c1"), Message.assistant("done"), Message.user("next")], True),
            ([Message.assistant("done"), Message.user("next")], True),
            ([], True),
        ],
    )
    def test_turn_begun_without_thinking_goes_on_without_thinking(
        self, messages: list[Message], *, thinks: bool
    ) -> None:
        """The API refuses a change in between. Adaptive thinking may begin at any time."""
        body = encode(ModelRequest((HELLO, *messages)), AnthropicEncoder("m", thinking=MANUAL))
        assert ("thinking" in body) is thinks
        assert "thinking" in encode(ModelRequest((HELLO, *messages)), AnthropicEncoder("m", thinking=ADAPTIVE))

    @pytest.mark.parametrize(
        ("thinking", "choice"),
        [(MANUAL, None), (ADAPTIVE, None), ({"type": "disabled"}, {"type": "any"}), (None, {"type": "any"})],
    )
    def test_thinking_model_is_not_forced_to_a_tool(
        self, thinking: dict[str, JsonValue] | None, choice: JsonValue
    ) -> None:
        body = encode(ModelRequest((HELLO,), (READ,), tool_choice="required"), AnthropicEncoder("m", thinking=thinking))
        assert body.get("tool_choice") == choice

    def test_call_without_thinking_may_be_forced_to_a_tool(self) -> None:
        request = ModelRequest((HELLO,), (READ,), tool_choice="required", max_tokens=100)
        assert encode(request, AnthropicEncoder("m", thinking=MANUAL))["tool_choice"] == {"type": "any"}


class TestCache:
    def test_tools_instructions_and_last_message_may_be_cached(self) -> None:
        request = ModelRequest((Message.system("a"), Message.system("b"), HELLO), tools=(READ, LIST))
        assert marked(encode(request, AnthropicEncoder("m"))) == ["list", "b", "hello"]

    def test_end_of_the_previous_step_may_be_cached(self) -> None:
        """A batch may be longer than the provider looks back."""
        steps = (HELLO, asks("c1", "c2"), result("c1"), result("c2"), asks("c3"), result("c3"))
        encoder = AnthropicEncoder("m")
        assert marked(encode(ModelRequest(steps[:1]), encoder)) == ["hello"]
        assert marked(encode(ModelRequest(steps[:4]), encoder)) == ["hello", "c2"]
        assert marked(encode(ModelRequest(steps), encoder)) == ["c2", "c3"]

    @pytest.mark.parametrize(
        "behind", [[], [asks("c1"), result("c1")], [asks("c1"), result("c1"), asks("c2"), result("c2")]]
    )
    def test_text_for_a_single_call_is_not_cached(self, behind: list[Message]) -> None:
        """The next request does not hold it: what was kept up to there would never be found again."""
        encoder = AnthropicEncoder("m")
        lasting = marked(encode(ModelRequest((HELLO, *behind)), encoder))
        hints = (Message.user("Two steps are left."), Message.user("Stop now."))
        assert marked(encode(ModelRequest((HELLO, *behind, *hints)), encoder)) == lasting

    def test_caching_can_be_switched_off(self) -> None:
        body = encode(ModelRequest((Message.system("a"), HELLO), tools=(READ,)), AnthropicEncoder("m", cache=False))
        assert marked(body) == []


class TestExtraBody:
    def test_extra_body_adds_replaces_and_removes(self) -> None:
        encoder = AnthropicEncoder("m", extra_body={"temperature": 0, "tool_choice": {"type": "tool", "name": "read"}})
        body = encode(ModelRequest((HELLO,), (READ,)), encoder)
        assert (body["temperature"], body["tool_choice"]) == (0, {"type": "tool", "name": "read"})
        encoder = AnthropicEncoder("m", extra_body={"tool_choice": None})
        assert "tool_choice" not in encode(ModelRequest((HELLO,), (READ,), tool_choice="none"), encoder)

    @pytest.mark.parametrize(
        ("options", "fault"),
        [
            ({"extra_body": {"messages": []}}, "extra_body must not contain messages"),
            ({"extra_body": {"thinking": {}, "max_tokens": 1}}, "extra_body must not contain max_tokens, thinking"),
            ({"extra_body": {"a": float("nan")}}, "extra_body cannot be written as JSON"),
            ({"thinking": {"type": "adaptive", "a": float("nan")}}, "thinking cannot be written as JSON"),
            ({"thinking": {"budget_tokens": 4000}}, "thinking has no type"),
            (
                {"thinking": {"type": "enabled", "budget_tokens": 1000}},
                "budget_tokens is 1000: it must be at least 1024",
            ),
            ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "budget_tokens is 'x'"),
            ({"thinking": MANUAL, "max_tokens": 2000}, "max_tokens is 2000: it must be at least 2048"),
            ({"max_tokens": 0}, "max_tokens is 0: it must be at least 1"),
        ],
    )
    def test_unusable_option_is_refused(self, options: dict[str, Any], fault: str) -> None:
        with pytest.raises(ConfigError, match=fault):
            AnthropicEncoder("m", **options)


def test_unsigned_thinking_goes_back_where_required() -> None:
    """Also in a call with little room: such a server thinks without being asked. Kimi and DeepSeek refuse the rest."""
    call = ToolCallPart(id="c", name="read", arguments={})
    messages = (
        HELLO,
        Message(role="assistant", parts=(ReasoningPart(text="hm"), call)),
        result("c"),
        Message(role="assistant", parts=(ReasoningPart(text="so", details=(THINKING,)), TextPart(text="Done."))),
        Message.user("And?"),
        Message.assistant("That is all."),
        Message.user("Go."),
    )
    model = AnthropicMessages("kimi-k3", base_url="https://api.kimi.com/coding", api_key="k")
    encoder = AnthropicEncoder("m", capabilities=model.capabilities, thinking=ADAPTIVE)
    for limit in (None, 100):
        bodies = encode(ModelRequest(messages, max_tokens=limit), encoder)["messages"]
        blocks = [block for message in bodies if message["role"] == "assistant" for block in message["content"]]
        assert [block for block in blocks if "thinking" in block] == [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            THINKING,
            {"type": "thinking", "thinking": "", "signature": ""},
        ]
        assert [block["type"] for block in blocks] == ["thinking", "tool_use", "thinking", "text", "thinking", "text"]
    plain = encode(ModelRequest(messages), AnthropicEncoder("m"))["messages"]
    assert [block for message in plain for block in message["content"] if "thinking" in block] == [THINKING]


def test_a_message_is_encoded_once_and_forgotten_with_the_message() -> None:
    """Else the steps of a long turn get slower and slower, or the memory fills."""
    encoder = AnthropicEncoder("m")
    kept_message, gone = Message.user("kept"), Message.user("gone")
    first = encoder.encode(ModelRequest((kept_message, gone)))
    assert encoder.encode(ModelRequest((kept_message, gone))) == first
    assert encoder.remembered == 2
    del gone
    gc.collect()
    assert encoder.remembered == 1
    assert sent(kept_message, Message.user("new"), encoder=encoder)[0]["content"][1]["text"] == "new"


SEARCH: dict[str, JsonValue] = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
SEARCHED: tuple[dict[str, JsonValue], ...] = (
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]},
)


class TestHostedTools:
    """The provider runs them, and their calls and results go back at their places."""

    def test_hosted_tools_follow_the_tools_of_a_request(self) -> None:
        encoder = AnthropicEncoder("m", hosted_tools=[SEARCH])
        body = encode(ModelRequest((HELLO,), tools=(READ,)), encoder)
        assert [tool["name"] for tool in body["tools"]] == ["read", "web_search"]
        assert body["tools"][1] == {**SEARCH, "cache_control": CACHE}
        assert encode(ModelRequest((HELLO,)), encoder)["tools"] == [{**SEARCH, "cache_control": CACHE}]

    def test_request_without_calls_forbids_hosted_tools(self) -> None:
        encoder = AnthropicEncoder("m", hosted_tools=[SEARCH])
        assert encode(ModelRequest((HELLO,), tool_choice="none"), encoder)["tool_choice"] == {"type": "none"}

    def test_request_settings_add_hosted_tools(self) -> None:
        settings = ModelSettings(extra_body={"tools": [SEARCH]})
        body = encode(ModelRequest((HELLO,), tools=(READ,), settings=settings))
        assert body["tools"][1:] == [SEARCH]

    @pytest.mark.parametrize(
        ("tool", "why"),
        [
            ({"name": "web_search"}, "without a type"),
            ({"type": "custom", "name": "f"}, "give it to the agent as a function"),
            ({"type": "bash_20250124", "name": "bash"}, "whose calls the provider does not answer"),
        ],
    )
    def test_tool_not_run_by_the_provider_is_refused(self, tool: dict[str, JsonValue], why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            AnthropicEncoder("m", hosted_tools=[tool])
        with pytest.raises(ConfigError, match=why):
            AnthropicEncoder("m").map_settings(ModelSettings(extra_body={"tools": [tool]}))

    @pytest.mark.parametrize("thinks", [True, False])
    def test_hosted_calls_and_results_go_back_in_place(self, thinks: bool) -> None:
        order: dict[str, JsonValue] = {"type": "block_order", "blocks": [6, "thinking", "thinking", 4, "call"]}
        reply = Message(
            role="assistant",
            parts=(
                ReasoningPart(text="", details=(*SEARCHED, order)),
                TextPart(text="I ask.Sun."),
                ToolCallPart(id="c1", name="read"),
            ),
        )
        encoder = AnthropicEncoder("m", cache=False, thinking=None if thinks else {"type": "disabled"})
        content = sent(HELLO, reply, result("c1"), encoder=encoder)[1]["content"]
        assert [block["type"] for block in content] == [
            *("text", "server_tool_use", "web_search_tool_result", "text", "tool_use")
        ]
        assert content[1:3] == list(SEARCHED)
