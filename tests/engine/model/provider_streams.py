"""Streams of providers, one of each shape, with the reply that each contains.

Shortened from what they document and what people have recorded; the fields that set them apart are kept.
"""

import json
from typing import Final

from msgspec.structs import replace
from pydantic import JsonValue

from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright_states import Finish, Usage

from .chunks import Chunk, chunk, sse

PARIS: Final[dict[str, JsonValue]] = {"city": "Paris"}
RAW: Final = '{"city": "Paris"}'


def usage(read: int, output: int, **more: JsonValue) -> Chunk:
    return {"prompt_tokens": read, "completion_tokens": output, "total_tokens": read + output, **more}


def counted(read: int, output: int) -> Usage:
    return Usage(input_tokens=read, output_tokens=output)


def weather(call_id: str = "call_1", raw: str = RAW) -> ResponseToolCall:
    return ResponseToolCall(name="get_weather", arguments=json.loads(raw or "{}"), raw=raw, id=call_id)


def entry(
    index: int | None = 0, call_id: str | None = "call_1", arguments: JsonValue = RAW, **more: JsonValue
) -> Chunk:
    numbered: Chunk = {} if index is None else {"index": index}
    return {
        **numbered,
        "id": call_id,
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
        **more,
    }


def more(arguments: str, index: int = 0) -> Chunk:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


def only(**fields: JsonValue) -> Chunk:
    """A choice that has no delta."""
    return {"choices": [{"index": 0, **fields}]}


STREAMS: Final[dict[str, tuple[bytes, ModelResponse]]] = {
    "OpenAI": (
        sse(
            chunk({"role": "assistant", "content": "", "refusal": None}, obfuscation="KbQ2", service_tier="default"),
            chunk({"content": "Hello"}, logprobs=None, obfuscation="x", usage=None),
            chunk({"content": "!"}, obfuscation="1fYi8"),
            chunk({}, "stop"),
            {"choices": [], "usage": usage(9, 2, completion_tokens_details={"reasoning_tokens": 0})},
        ),
        ModelResponse(text="Hello!", usage=counted(9, 2)),
    ),
    "OpenAI, parallel calls": (
        sse(
            chunk({"role": "assistant", "content": None}),
            chunk({"tool_calls": [entry(0, "call_1", "")]}),
            chunk(more('{"city":')),
            chunk(more(' "Paris"}')),
            chunk({"tool_calls": [entry(1, "call_2", "")]}),
            chunk(more(RAW, 1)),
            chunk({}, "tool_calls"),
        ),
        ModelResponse(calls=(weather(), weather("call_2"))),
    ),
    "OpenAI, audio": (
        sse(
            chunk({"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "Hi"}}),
            chunk({"content": None, "audio": {"data": "AAAA", "expires_at": 1}}),
            {"object": "chat.completion.chunk", "audio": {"data": "AAAA"}},
            chunk({"content": "Hi"}, "stop"),
        ),
        ModelResponse(text="Hi"),
    ),
    "Azure": (
        sse(
            {"choices": [], "object": "", "id": "", "model": "", "prompt_filter_results": [{"prompt_index": 0}]},
            chunk({"content": "", "role": "assistant"}, content_filter_results={}),
            chunk({"content": "Hello"}),
            only(content_filter_offsets={"end_offset": 5}, content_filter_results={"hate": {"filtered": False}}),
            chunk({}, "content_filter"),
        ),
        ModelResponse(text="Hello", finish=Finish.CONTENT_FILTER),
    ),
    "Groq": (
        sse(
            chunk({"role": "assistant", "content": ""}, x_groq={"id": "req_1"}),
            chunk({"reasoning": "Hm.", "channel": "analysis"}),
            chunk({"tool_calls": [entry()]}),
            chunk({}, "tool_calls", x_groq={"id": "req_1", "usage": usage(5, 7, queue_time=0.1)}),
        ),
        ModelResponse(reasoning="Hm.", calls=(weather(),), usage=counted(5, 7)),
    ),
    "Mistral": (
        sse(
            chunk(
                {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "H"}]}]}
            ),
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m"}], "closed": True}]}),
            chunk({"content": [{"type": "text", "text": "Hel"}, {"type": "reference", "reference_ids": [1]}]}),
            chunk({"content": "lo"}),
            chunk(
                {"content": "", "tool_calls": [entry(0, "D68"), entry(1, "D69", PARIS)]},
                "tool_calls",
                usage=usage(5, 7),
            ),
        ),
        ModelResponse(
            text="Hello",
            reasoning="Hm",
            calls=(weather("D68"), weather("D69")),
            usage=counted(5, 7),
        ),
    ),
    "DeepSeek": (
        b": keep-alive\n\n: keep-alive\n\n"
        + sse(
            chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
            chunk({"content": None, "reasoning_content": "Hm."}),
            chunk({"content": "Hello", "reasoning_content": None}),
            chunk({"content": "", "reasoning_content": None}, "stop", usage=usage(5, 7, prompt_cache_hit_tokens=0)),
        ),
        ModelResponse(text="Hello", reasoning="Hm.", usage=counted(5, 7)),
    ),
    "OpenRouter": (
        b": OPENROUTER PROCESSING\n\n"
        + sse(
            chunk({"reasoning": "H", "reasoning_details": [{"type": "reasoning.text", "text": "H", "index": 0}]}),
            chunk({"reasoning": "m", "reasoning_details": [{"type": "reasoning.text", "text": "m", "index": 0}]}),
            chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "c2ln", "index": 0}]}),
            chunk({"role": "assistant", "content": "Hello"}, None, provider="Anthropic"),
            chunk({"role": "assistant", "content": ""}, "stop", native_finish_reason="end_turn"),
            chunk({"role": "assistant", "content": ""}, None, usage=usage(5, 7, cost=0.1)),
        ),
        ModelResponse(
            text="Hello",
            reasoning="Hm",
            reasoning_details=({"type": "reasoning.text", "text": "Hm", "index": 0, "signature": "c2ln"},),
            usage=replace(counted(5, 7), cost=0.1),
        ),
    ),
    "Together": (
        sse(
            {"choices": [{"index": 0, "text": "He", "delta": {"token_id": 1, "content": "He"}}], "usage": None},
            {
                "choices": [{"index": 0, "text": "y", "delta": {"content": "y"}, "finish_reason": "eos"}],
                "usage": usage(5, 7),
            },
        ),
        ModelResponse(text="Hey", usage=counted(5, 7)),
    ),
    "Fireworks": (
        sse(
            chunk({"role": "assistant"}),
            chunk({"content": "Hello"}),
            chunk({}, "stop", usage=usage(5, 7), perf_metrics=None),
            {"choices": [], "usage": usage(5, 7)},
        ),
        ModelResponse(text="Hello", usage=counted(5, 7)),
    ),
    "Perplexity": (
        b"".join(
            b"data: " + json.dumps(event).encode() + b"\r\n\r\n"
            for event in (
                only(delta={"role": "assistant", "content": "He"}, message={"content": "He"}, usage=usage(5, 1)),
                only(delta={"content": "y"}, message={"role": "assistant", "content": "Hey"}, finish_reason="stop"),
                {**only(delta={"content": ""}, message={"content": "Hey"}), "usage": usage(5, 7), "citations": ["a"]},
            )
        ),
        ModelResponse(text="Hey", usage=counted(5, 7)),
    ),
    "xAI": (
        sse(
            chunk({"reasoning_content": "Hm.", "role": "assistant"}, usage=usage(5, 0)),
            chunk({"content": "Hello", "role": "assistant"}, usage=usage(5, 1)),
            chunk({"tool_calls": [entry()]}, "tool_calls", usage=usage(5, 7)),
            {"object": "chat.completion.chunk", "choices": [], "usage": usage(5, 8), "citations": []},
        ),
        ModelResponse(text="Hello", reasoning="Hm.", calls=(weather(),), usage=counted(5, 8)),
    ),
    "Gemini": (
        sse(
            chunk(
                {
                    "role": "assistant",
                    "tool_calls": [
                        entry(None, "function-call-1", extra_content={"google": {"thought_signature": "c2ln"}}),
                        entry(None, "function-call-2"),
                    ],
                },
                "stop",
                usage=usage(5, 7),
            ),
        ),
        ModelResponse(
            calls=(weather("function-call-1"), weather("function-call-2")),
            reasoning_details=(
                {"type": "extra_content", "call": 0, "extra_content": {"google": {"thought_signature": "c2ln"}}},
            ),
            usage=counted(5, 7),
        ),
    ),
    "Cohere": (
        sse(
            chunk({"role": "assistant", "content": "", "tool_calls": None}),
            chunk({"content": "Hello"}),
            chunk({}, "stop", usage=usage(5, 7)),
            done=False,
        )
        + b"data: [DONE]",
        ModelResponse(text="Hello", usage=counted(5, 7)),
    ),
    "Cerebras": (
        sse(
            chunk({"role": "assistant"}, system_fingerprint="fp"),
            chunk({"reasoning": "Hm."}),
            chunk({"content": "Hello"}, "stop", usage=usage(5, 7), time_info={"queue_time": 0.1}),
            done=False,
        ),
        ModelResponse(text="Hello", reasoning="Hm.", usage=counted(5, 7)),
    ),
    "SambaNova": (
        sse(
            chunk({"role": "assistant", "content": ""}, id=""),
            chunk({"content": "Hello"}, None, usage=None, id="b"),
            chunk({"content": ""}, "stop", usage=None),
            {"choices": [], "usage": usage(5, 7, time_to_first_token=0.1), "is_last_response": True},
        ),
        ModelResponse(text="Hello", usage=counted(5, 7)),
    ),
    "vLLM": (
        sse(
            chunk({"role": "assistant", "content": ""}, usage=usage(5, 0)),
            chunk({"reasoning": "Hm.", "reasoning_content": "Hm."}, usage=usage(5, 1)),
            chunk({"tool_calls": [entry(0, "chatcmpl-tool-1", "")]}, usage=usage(5, 2)),
            chunk(more('{"city": "Pa'), usage=usage(5, 3)),
            chunk(more('ris"}'), "tool_calls", usage=usage(5, 4), stop_reason=128008),
            {"choices": [], "usage": usage(5, 4)},
        ),
        ModelResponse(reasoning="Hm.", calls=(weather("chatcmpl-tool-1"),), usage=counted(5, 4)),
    ),
    "vLLM, an id for each delta": (
        sse(
            chunk({"tool_calls": [entry(0, "chatcmpl-tool-1", "")]}),
            chunk({"tool_calls": [{"index": 0, "id": "chatcmpl-tool-2", "function": {"arguments": '{"city": "Pa'}}]}),
            chunk({"tool_calls": [{"index": 0, "id": "chatcmpl-tool-3", "function": {"arguments": 'ris"}'}}]}),
            chunk({}, "tool_calls"),
        ),
        ModelResponse(calls=(weather("chatcmpl-tool-1"),)),
    ),
    "SGLang": (
        sse(
            chunk({"role": "assistant", "content": None, "reasoning_content": None, "tool_calls": None}),
            chunk({"role": None, "content": "Hello", "tool_calls": None}, matched_stop=None),
            chunk({"role": None, "content": None}, "stop", matched_stop=151645),
            {"choices": [], "usage": usage(5, 7, reasoning_tokens=0)},
        ),
        ModelResponse(text="Hello", usage=counted(5, 7)),
    ),
    "llama.cpp": (
        sse(
            chunk({"role": "assistant", "content": None}),
            chunk({"content": "Hello"}, None, timings={"predicted_n": 1}),
            chunk({}, "length"),
            {"choices": [], "usage": usage(5, 7), "timings": {"cache_n": 0}},
        ),
        ModelResponse(text="Hello", finish=Finish.LENGTH, usage=counted(5, 7)),
    ),
    "Ollama": (
        sse(
            chunk({"role": "assistant", "content": "", "reasoning": "Hm."}),
            chunk({"role": "assistant", "content": "", "tool_calls": [entry(0, "call_a")]}),
            chunk({"role": "assistant", "content": "", "tool_calls": [entry(0, "call_b")]}),
            chunk({"role": "assistant", "content": ""}, "tool_calls"),
            {"choices": [], "usage": usage(5, 7)},
        ),
        ModelResponse(reasoning="Hm.", calls=(weather("call_a"), weather("call_b")), usage=counted(5, 7)),
    ),
    "LM Studio": (
        sse(
            chunk({"role": "assistant", "reasoning_content": "Hm."}, stats={}),
            chunk({"role": "assistant", "content": "Hello"}),
            chunk({}, "stop", usage=usage(5, 7)),
        ),
        ModelResponse(text="Hello", reasoning="Hm.", usage=counted(5, 7)),
    ),
    "Moonshot": (
        sse(
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "Hello"}),
            only(delta={}, finish_reason="stop", usage=usage(5, 7, cached_tokens=5)),
        ),
        ModelResponse(text="Hello", usage=Usage(input_tokens=5, output_tokens=7, cached_tokens=5)),
    ),
    "GLM": (
        sse(
            chunk({"role": "assistant", "reasoning_content": "\nHm."}),
            chunk({"role": "assistant", "content": "Hel"}),
            chunk({"role": "assistant", "content": ""}, "sensitive", usage=usage(5, 7), request_id="1"),
        ),
        ModelResponse(text="Hel", reasoning="\nHm.", finish=Finish.CONTENT_FILTER, usage=counted(5, 7)),
    ),
    "Qwen": (
        sse(
            chunk({"content": "", "role": "assistant", "tool_calls": [entry(0, "call_1", '{"city": ')]}),
            chunk(
                {
                    "content": None,
                    "tool_calls": [{"index": 0, "id": "", "function": {"name": "", "arguments": '"Paris"}'}}],
                }
            ),
            chunk({"content": None, "tool_calls": [{"index": 0, "id": "", "function": {"arguments": None}}]}),
            chunk({"content": ""}, "tool_calls", usage=None),
            {"choices": [], "usage": usage(5, 7)},
        ),
        ModelResponse(calls=(weather(),), usage=counted(5, 7)),
    ),
    "MiniMax": (
        sse(
            chunk(
                {
                    "role": "",
                    "reasoning_content": "Hm.",
                    "reasoning_details": [{"id": "r-1", "index": 0, "text": "Hm."}],
                },
                usage={"total_tokens": 0, "total_characters": 0},
            ),
            chunk({"role": "assistant", "name": "MiniMax AI", "audio_content": "", "content": "Hello"}, "stop"),
            {
                "object": "chat.completion",
                "choices": [
                    {"index": 0, "finish_reason": "stop", "message": {"content": "Hello", "role": "assistant"}}
                ],
                "usage": usage(5, 7, total_characters=0),
                "base_resp": {"status_code": 0, "status_msg": ""},
            },
            done=False,
        ),
        ModelResponse(text="Hello", reasoning="Hm.", usage=counted(5, 7)),
    ),
    "Baichuan": (
        sse(
            chunk({"role": "assistant", "content": "He"}, None, knowledge_base={}),
            chunk({"content": "y"}, "stop", usage={**usage(5, 7), "search_count": 0}),
        ),
        ModelResponse(text="Hey", usage=counted(5, 7)),
    ),
    "Databricks": (
        sse(
            chunk(
                {
                    "role": "assistant",
                    "content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}],
                },
                usage=usage(5, 1),
            ),
            chunk({"content": [{"type": "text", "text": "Hello"}]}, usage=usage(5, 7)),
            chunk({"content": ""}, "stop", usage=usage(5, 7)),
        ),
        ModelResponse(text="Hello", reasoning="Hm.", usage=counted(5, 7)),
    ),
    "Bedrock": (
        sse(
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "Hello"}),
            chunk({"content": ""}, "end_turn"),
            {"choices": [], "usage": usage(5, 7), "amazon-bedrock-invocationMetrics": {"inputTokenCount": 5}},
        ),
        ModelResponse(text="Hello", usage=counted(5, 7)),
    ),
    "Cloudflare": (
        sse(
            chunk({"role": "assistant", "content": "Hello"}, p="abcd"),
            chunk({"content": ""}, "stop"),
            {"choices": [], "usage": {**usage(5, 7), "prompt_tokens_details": {"cached_tokens": 0}}, "response": ""},
        ),
        ModelResponse(text="Hello", usage=counted(5, 7)),
    ),
    "GitHub Models": (
        sse(
            {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": []},
            chunk({"content": "", "refusal": None, "role": "assistant"}),
            chunk({"content": "Hello"}, "stop"),
        ),
        ModelResponse(text="Hello"),
    ),
    "GitHub Copilot": (
        sse(
            chunk({"content": None, "role": "assistant", "reasoning_text": "Hm."}),
            {"choices": [], "usage": usage(1, 1), "copilot_annotations": {}},
            chunk({"content": "Hello"}, "stop", usage=usage(5, 7)),
        ),
        ModelResponse(text="Hello", reasoning="Hm.", usage=counted(5, 7)),
    ),
    "LiteLLM": (
        sse(
            chunk(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning_content": "Hm.",
                    "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": ""}],
                }
            ),
            chunk({"content": "Hello", "function_call": None, "tool_calls": None, "audio": None}),
            chunk({}, "stop"),
            {"choices": [{"index": 0, "delta": {}}], "usage": usage(5, 7)},
        ),
        ModelResponse(text="Hello", reasoning="Hm.", usage=counted(5, 7)),
    ),
    "Anthropic": (
        sse(
            chunk({"role": "assistant", "content": "Hello"}),
            chunk({"tool_calls": [entry(1, "toolu_1", "")]}),
            chunk(more(RAW, 1)),
            chunk({}, "tool_calls"),
            {"choices": [], "usage": usage(5, 7)},
        ),
        ModelResponse(text="Hello", calls=(weather("toolu_1"),), usage=counted(5, 7)),
    ),
    "Hugging Face": (
        sse(
            chunk({"role": "assistant", "content": "Hello", "tool_call_id": None}),
            chunk({"role": "assistant", "tool_calls": {**entry(0, "0", RAW)}}, "eos_token"),
        ),
        ModelResponse(text="Hello", calls=(weather("0"),)),
    ),
    "one body": (
        json.dumps(
            {
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "delta": {"role": "assistant", "content": ""},
                        "message": {"role": "assistant", "content": "Hello", "tool_calls": [entry(None)]},
                        "finish_reason": "stop",
                    }
                ],
                "usage": usage(5, 7),
            }
        ).encode(),
        ModelResponse(text="Hello", calls=(weather(),), usage=counted(5, 7)),
    ),
}
