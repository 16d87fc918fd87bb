"""Requests of the Responses API: what a body has, and in which order."""

import gc
import json
from typing import Any, ClassVar

import pytest
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import FilePart, Message, ReasoningPart, TextPart, ToolCallPart, ToolSpec
from turnwright.model.capabilities import Capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.openai_responses.request import MIN_TOKENS, ResponsesEncoder
from turnwright.model.protocol import ModelRequest, OutputFormat, ToolChoice

from .events import SEARCH, Item, kept, ordered, reasoning

HELLO = Message.user("hello")
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
ASKED = {"role": "user", "content": "hello"}
PNG = FilePart.of(b"png", "image/png")
SEALED: Item = reasoning("hm")


def encode(request: ModelRequest, **options: Any) -> dict[str, Any]:  # noqa: ANN401 (whatever the encoder takes)
    body: dict[str, Any] = json.loads(ResponsesEncoder("m", **options).encode(request))
    return body


def sent(*messages: Message, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401 (whatever the encoder takes)
    items: list[dict[str, Any]] = encode(ModelRequest(messages), **options)["input"]
    return items


def said(text: str, **more: str) -> Item:
    content: JsonValue = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content, **more}


def called(call_id: str, name: str = "read", arguments: str = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def answered(*details: Item, text: str = "", calls: tuple[str, ...] = ()) -> Message:
    thought = ReasoningPart(text="hm", details=details)
    words = [TextPart(text=text)] if text else []
    return Message(role="assistant", parts=(thought, *words, *(ToolCallPart(id=call, name="read") for call in calls)))


def test_request_asks_for_an_unstored_stream() -> None:
    assert encode(ModelRequest((HELLO,))) == {
        "model": "m",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [ASKED],
    }


class TestMessages:
    def test_instructions_keep_place_and_role(self) -> None:
        assert sent(Message.system("Be short."), HELLO, Message.system("Shorter.")) == [
            {"role": "system", "content": "Be short."},
            ASKED,
            {"role": "system", "content": "Shorter."},
        ]

    def test_calls_and_results_are_paired_by_our_ids(self) -> None:
        calls = (ToolCallPart(id="c1", name="re ad", arguments={"q": "é"}), ToolCallPart(id="c2", name="read"))
        results = (Message.result("c2", "read", ""), Message.result("c1", "read", "one"))
        assert sent(HELLO, Message.assistant("I look.", calls), *results) == [
            ASKED,
            said("I look."),
            called("c1", "re_ad", '{"q":"é"}'),
            called("c2"),
            {"type": "function_call_output", "call_id": "c2", "output": ""},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
        ]

    def test_a_message_without_anything_for_the_model_is_left_out(self) -> None:
        assert sent(HELLO, Message(role="assistant"), answered(kept(SEALED)), HELLO) == [ASKED, ASKED]

    def test_pictures_and_documents_are_sent_in_messages_and_in_results(self) -> None:
        pdf = FilePart.of(b"pdf", "application/pdf")
        far = FilePart(media_type="application/pdf", url="https://host/a.pdf")
        csv = FilePart.of(b"a,b", "text/csv", "t.csv")
        picture = {"type": "input_image", "image_url": "data:image/png;base64,cG5n"}
        content = sent(Message.user("Look.", [PNG, pdf, far, csv]))[0]["content"]
        assert content == [
            {"type": "input_text", "text": "Look."},
            picture,
            {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,cGRm"},
            {"type": "input_file", "file_url": "https://host/a.pdf"},
            {"type": "input_text", "text": "A file, t.csv (text/csv), holds:\n\na,b"},
        ]
        asks = Message.assistant(calls=[ToolCallPart(id="c1", name="read")])
        result = sent(HELLO, asks, Message.result("c1", "read", "It is:", files=[PNG]))[-1]
        assert result["output"] == [{"type": "input_text", "text": "It is:"}, picture]


class TestKeptItems:
    def test_reasoning_goes_back_before_the_related_item(self) -> None:
        assert sent(HELLO, answered(kept(SEALED), text="Done."))[1:] == [SEALED, said("Done.")]
        assert sent(HELLO, answered(kept(SEALED), calls=("c1",)))[1:] == [SEALED, called("c1")]

    def test_every_item_is_in_place_and_texts_have_a_phase(self) -> None:
        order = ordered("item", {"text": 7, "phase": "commentary"}, "item", "call", "item", "call", 3)
        second = reasoning(item_id="rs_2")
        message = answered(kept(SEALED), kept(SEARCH), kept(second), order, text="I look.\n\nYes", calls=("c1", "c2"))
        assert sent(HELLO, message)[1:] == [
            SEALED,
            said("I look.", phase="commentary"),
            SEARCH,
            called("c1"),
            second,
            called("c2"),
            said("Yes"),
        ]

    @pytest.mark.parametrize("text", ["I looked.", "I look.", ""])
    def test_changed_reply_is_sent_in_the_usual_order(self, text: str) -> None:
        order = ordered("call", 7, "item", "call")
        message = answered(kept(SEALED), order, text=text, calls=("c1",))
        assert sent(HELLO, message)[1:] == [SEALED, *([said(text)] if text else []), called("c1")]

    @pytest.mark.parametrize("order", [5, ["item", None, -1], [{"text": True}], ["item", "item"], [{"text": 3}, "x"]])
    def test_mismatched_order_is_ignored(self, order: JsonValue) -> None:
        message = answered(kept(SEALED), {"type": "openai_response", "order": order}, text="Done.")
        assert sent(HELLO, message)[1:] == [SEALED, said("Done.")]

    def test_reasoning_without_a_following_item_is_left_out(self) -> None:
        message = answered(kept(SEALED), ordered(5, "item"), text="Done.")
        assert sent(HELLO, message)[1:] == [said("Done.")]

    def test_display_only_items_are_left_out(self) -> None:
        message = answered({"type": "openai_response", "shown": SEARCH}, text="Done.")
        assert sent(HELLO, message)[1:] == [said("Done.")]

    def test_reasoning_of_other_apis_is_left_out(self) -> None:
        message = answered({"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "reasoning"}, text="a")
        assert sent(HELLO, message)[1:] == [said("a")]

    def test_fields_rejected_by_the_server_are_left_out(self) -> None:
        item: Item = {**SEALED, "summary": None, "content": [], "status": "completed"}
        assert sent(HELLO, answered(kept(item), text="a"))[1] == {**SEALED, "summary": []}

    def test_ids_can_be_left_out(self) -> None:
        message = answered(kept(SEALED), kept(SEARCH), text="a")
        assert [item.get("id") for item in sent(HELLO, message)] == [None, "rs_1", "ws_1", None]
        assert [item.get("id") for item in sent(HELLO, message, send_item_ids=False)] == [None] * 4

    def test_model_without_reasoning_is_sent_only_non_reasoning_items(self) -> None:
        plain = Capabilities(reasoning_details=False)
        answer = answered(kept(SEALED), kept(SEARCH), text="a")
        assert sent(HELLO, answer, capabilities=plain)[1:] == [said("a")]
        assert sent(HELLO, answered(kept(SEARCH), text="a"), capabilities=plain)[1:] == [SEARCH, said("a")]
        assert "include" not in encode(ModelRequest((HELLO,)), capabilities=plain)


class TestTools:
    def test_schemas_are_not_made_strict(self) -> None:
        (tool,) = encode(ModelRequest((HELLO,), (READ,)))["tools"]
        assert tool == {
            "type": "function",
            "name": "read",
            "description": "Read a file.",
            "parameters": READ.parameters,
            "strict": False,
        }

    def test_hosted_tools_follow_in_their_own_json(self) -> None:
        hosted = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
        body = encode(ModelRequest((HELLO,), (READ,)), hosted_tools=hosted)
        assert body["tools"][1:] == hosted
        assert encode(ModelRequest((HELLO,)), hosted_tools=hosted)["tools"] == hosted

    def test_settings_may_add_hosted_tools(self) -> None:
        """So a configuration, an agent file and the command line can name them."""
        settings = ModelSettings(extra_body={"tools": [{"type": "web_search"}], "top_logprobs": 1})
        request = ModelRequest((HELLO,), (READ,), settings=settings)
        body = encode(request, hosted_tools=[{"type": "code_interpreter", "container": "c"}])
        assert [tool["type"] for tool in body["tools"]] == ["function", "code_interpreter", "web_search"]
        assert body["top_logprobs"] == 1
        mistakes: list[JsonValue] = [{"type": "custom"}, {}, "web_search"]
        for wrong in mistakes:
            with pytest.raises(ConfigError, match="hosted_tools"):
                ResponsesEncoder("m").map_settings(ModelSettings(extra_body={"tools": [wrong]}))
        with pytest.raises(ConfigError, match="a list of hosted tools"):
            ResponsesEncoder("m").map_settings(ModelSettings(extra_body={"tools": "web_search"}))
        with pytest.raises(ConfigError, match="store"):
            ResponsesEncoder("m").map_settings(ModelSettings(extra_body={"store": True}))

    def test_a_hosted_mcp_server_must_not_wait_for_approvals(self) -> None:
        server = {"type": "mcp", "server_label": "a", "server_url": "https://host"}
        with pytest.raises(ConfigError, match="require_approval to 'never'"):
            ResponsesEncoder("m", hosted_tools=[server])
        ResponsesEncoder("m", hosted_tools=[{**server, "require_approval": "never"}])

    @pytest.mark.parametrize(
        ("tool", "why"),
        [
            ({"type": "function", "name": "f"}, "give it to the agent"),
            ({"type": "computer_use_preview"}, "the provider does not answer"),
            ({"type": "shell"}, "the provider does not answer"),
            ({"type": "shell", "environment": {"type": "local"}}, "the provider does not answer"),
            ({"name": "web_search"}, "without a type"),
            ("web_search", "without a type"),
            ({"type": "web_search", "filters": {1, 2}}, "JSON"),
        ],
    )
    def test_unworkable_hosted_tool_is_refused(self, tool: Any, why: str) -> None:  # noqa: ANN401 (a mistake)
        with pytest.raises(ConfigError, match=why):
            ResponsesEncoder("m", hosted_tools=[tool])

    @pytest.mark.parametrize("choice", ["none", "required"])
    def test_choice_is_sent_unless_default(self, choice: ToolChoice) -> None:
        assert encode(ModelRequest((HELLO,), (READ,), choice))["tool_choice"] == choice
        assert "tool_choice" not in encode(ModelRequest((HELLO,), (READ,)))
        assert "tool_choice" not in encode(ModelRequest((HELLO,), (), choice))

    def test_the_first_choice_of_a_turn_can_differ(self) -> None:
        first = ModelRequest((HELLO,), (READ,), first=True)
        assert encode(first, tool_choice_first="required")["tool_choice"] == "required"

    def test_single_calls_can_be_requested(self) -> None:
        single = Capabilities(parallel_tool_calls=False)
        assert encode(ModelRequest((HELLO,), (READ,)), capabilities=single)["parallel_tool_calls"] is False
        assert "parallel_tool_calls" not in encode(ModelRequest((HELLO,)), capabilities=single)


class TestOptions:
    def test_too_small_limit_is_raised_to_the_minimum(self) -> None:
        assert encode(ModelRequest((HELLO,), max_tokens=900))["max_output_tokens"] == 900
        assert encode(ModelRequest((HELLO,), max_tokens=1))["max_output_tokens"] == MIN_TOKENS

    def test_reasoning_and_further_fields_are_added(self) -> None:
        body = encode(
            ModelRequest((HELLO,)), reasoning={"effort": "low"}, extra_body={"include": None, "temperature": 0}
        )
        assert (body["reasoning"], body["temperature"]) == ({"effort": "low"}, 0)
        assert "include" not in body

    @pytest.mark.parametrize("name", ["model", "input", "tools", "stream", "store", "previous_response_id"])
    def test_fields_of_the_request_cannot_be_replaced(self, name: str) -> None:
        with pytest.raises(ConfigError, match=name):
            ResponsesEncoder("m", extra_body={name: None})

    def test_reasoning_must_be_json(self) -> None:
        with pytest.raises(ConfigError, match="reasoning"):
            ResponsesEncoder("m", reasoning="low")  # type: ignore[arg-type]


class TestOutput:
    SCHEMA: ClassVar[dict[str, JsonValue]] = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    }

    def test_a_text_reply_is_held_to_a_schema(self) -> None:
        request = ModelRequest((HELLO,), output=OutputFormat("number", self.SCHEMA))
        closed = {**self.SCHEMA, "additionalProperties": False}
        assert encode(request)["text"] == {
            "format": {"type": "json_schema", "name": "number", "schema": closed, "strict": True}
        }

    def test_a_schema_with_optional_fields_is_not_strict(self) -> None:
        loose = {name: value for name, value in self.SCHEMA.items() if name != "required"}
        body = encode(
            ModelRequest((HELLO,), output=OutputFormat("number", loose)), extra_body={"text": {"verbosity": "low"}}
        )
        format_ = {"type": "json_schema", "name": "number", "schema": loose}
        assert body["text"] == {"verbosity": "low", "format": format_}


class TestSettings:
    def test_settings_are_fields_of_the_request(self) -> None:
        settings = ModelSettings(
            temperature=0.2,
            top_p=0.9,
            parallel_tool_calls=False,
            service_tier="flex",
            thinking="high",
            extra_body={"prompt_cache_key": "a"},
        )
        request = ModelRequest((HELLO,), (READ,), settings=settings)
        body = encode(request, reasoning={"summary": "auto", "effort": "low"})
        assert (body["temperature"], body["top_p"], body["service_tier"]) == (0.2, 0.9, "flex")
        assert body["parallel_tool_calls"] is False
        assert body["reasoning"] == {"summary": "auto", "effort": "high"}
        assert body["prompt_cache_key"] == "a"
        alone = encode(ModelRequest((HELLO,), settings=settings))
        assert "parallel_tool_calls" not in alone

    @pytest.mark.parametrize(("thinking", "effort"), [(True, "medium"), (False, "none"), ("minimal", "minimal")])
    def test_thinking_is_an_effort(self, thinking: bool | str, effort: str) -> None:
        settings = ModelSettings.model_validate({"thinking": thinking})
        assert encode(ModelRequest((HELLO,), settings=settings))["reasoning"] == {"effort": effort}

    def test_settings_missing_from_the_api_are_not_sent(self) -> None:
        settings = ModelSettings(seed=1, stop_sequences=("END",), thinking=4096, cache="1h", temperature=0)
        mapped = ResponsesEncoder("m").map_settings(settings)
        assert mapped.body == {"temperature": 0}
        assert set(mapped.unsupported) == {"seed", "stop_sequences", "thinking", "cache"}
        single = ResponsesEncoder("m", capabilities=Capabilities(parallel_tool_calls=False, thinking=None))
        mapped = single.map_settings(ModelSettings(parallel_tool_calls=True, thinking="low", cache="auto"))
        assert (mapped.body, set(mapped.unsupported)) == ({}, {"parallel_tool_calls", "thinking"})


def test_nothing_outlives_the_messages() -> None:
    encoder = ResponsesEncoder("m")
    messages = [HELLO, *(Message.assistant(str(number)) for number in range(4))]
    encoder.encode(ModelRequest(tuple(messages)))
    assert encoder.remembered == 5
    messages.clear()
    gc.collect()
    assert encoder.remembered == 1
