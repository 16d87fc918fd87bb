"""A provider of chat completions, played by the client of `shop`, without a network."""

import json

import httpx
from shop import Client


def transport_to(client: Client) -> httpx.MockTransport:
    """Return the transport for `OpenAIChat` that reaches the client."""

    def handle(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        reply = client.chat(body["messages"], tools=body.get("tool_choice") != "none")
        calls = [
            {**call, "index": index}
            for index, call in enumerate(reply.get("tool_calls") or ())
        ]
        delta = {
            "role": "assistant",
            "content": reply["content"],
            **({"tool_calls": calls} if calls else {}),
        }
        chunk = {
            "choices": [
                {
                    "index": 0,
                    "delta": delta,
                    "finish_reason": "tool_calls" if calls else "stop",
                }
            ]
        }
        text = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        return httpx.Response(
            200, text=text, headers={"content-type": "text/event-stream"}
        )

    return httpx.MockTransport(handle)
