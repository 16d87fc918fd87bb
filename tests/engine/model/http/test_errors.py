import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.http.error_body import ErrorBody
from turnwright.model.http.errors import (
    MAX_EXCERPT,
    MissingReasoningError,
    RefusedReasoningError,
    classify,
    excerpt,
    http_failure,
    stream_failure,
)
from turnwright.model.protocol import ModelError, ModelResponse
from turnwright_states import Cause


def failed(status: int, body: JsonValue | bytes, **headers: str) -> ModelError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http_failure(
        status,
        headers,
        data,
        where="http://host/v1",
        now=1e9,
        key_hint="set SOME_API_KEY, or pass api_key",
        secrets=["sk-secret"],
    )


@pytest.mark.parametrize(
    ("status", "cause", "next_step"),
    [
        (400, Cause.BAD_REQUEST, "must change"),
        (401, Cause.AUTHENTICATION, "set SOME_API_KEY, or pass api_key"),
        (402, Cause.PERMISSION, "credit"),
        (403, Cause.PERMISSION, "key may use"),
        (404, Cause.NOT_FOUND, "model's id and the base URL"),
        (405, Cause.REJECTED, "base URL"),
        (408, Cause.TIMEOUT, "Try again"),
        (409, Cause.CONFLICT, "Try again"),
        (410, Cause.NOT_FOUND, "model's id"),
        (413, Cause.CONTEXT_OVERFLOW, "Send less"),
        (422, Cause.BAD_REQUEST, "must change"),
        (424, Cause.SERVER_ERROR, "provider's"),
        (425, Cause.CONFLICT, "Try again"),
        (429, Cause.RATE_LIMITED, "Wait"),
        (498, Cause.OVERLOADED, "later"),
        (499, Cause.INTERRUPTED, "Try again"),
        (500, Cause.SERVER_ERROR, "provider's"),
        (501, Cause.REJECTED, "base URL"),
        (502, Cause.SERVER_ERROR, "provider's"),
        (503, Cause.OVERLOADED, "later"),
        (504, Cause.TIMEOUT, "Try again"),
        (505, Cause.REJECTED, "base URL"),
        (511, Cause.REJECTED, "base URL"),
        (520, Cause.SERVER_ERROR, "provider's"),
        (521, Cause.SERVER_ERROR, "provider's"),
        (522, Cause.TIMEOUT, "Try again"),
        (524, Cause.TIMEOUT, "Try again"),
        (525, Cause.SERVER_ERROR, "provider's"),
        (529, Cause.OVERLOADED, "later"),
    ],
)
def test_each_status_has_a_cause_the_providers_words_and_a_next_step(status: int, cause: Cause, next_step: str) -> None:
    error = failed(status, {"error": {"message": "The words."}})
    assert (error.cause, error.status) == (cause, status)
    assert str(error).startswith(f"http://host/v1 answered {status}: The words. ")
    assert next_step in str(error)


@pytest.mark.parametrize(
    ("status", "error", "cause"),
    [
        (400, {"code": "context_length_exceeded"}, Cause.CONTEXT_OVERFLOW),
        (
            400,
            {"type": "exceed_context_size_error", "message": "request (9) exceeds the available context size (8)"},
            Cause.CONTEXT_OVERFLOW,
        ),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "prompt is too long: 9 tokens > 8 maximum"}, Cause.CONTEXT_OVERFLOW),
        (422, {"message": "Input exceeds the context window"}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "too many tokens: 9"}, Cause.CONTEXT_OVERFLOW),
        (500, {"code": 500, "message": "Context size has been exceeded."}, Cause.CONTEXT_OVERFLOW),
        (429, {"message": "too many tokens per minute", "code": "rate_limit_exceeded"}, Cause.RATE_LIMITED),
        (401, {"message": "no key for a context window"}, Cause.AUTHENTICATION),
        (400, {"message": "max_tokens is too large: this model takes at most 16"}, Cause.BAD_REQUEST),
        (400, {"code": "content_filter"}, Cause.CONTENT_FILTER),
        (400, {"code": "content_policy_violation"}, Cause.CONTENT_FILTER),
        (400, {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}, Cause.CONTENT_FILTER),
        (400, {"message": "blocked by the content management policy"}, Cause.CONTENT_FILTER),
        (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, Cause.PERMISSION),
        (429, {"message": "That model is currently overloaded"}, Cause.OVERLOADED),
        (500, {"type": "overloaded_error"}, Cause.OVERLOADED),
        (404, {"message": "the method is overloaded"}, Cause.NOT_FOUND),
        # Anthropic.
        (413, {"type": "request_too_large"}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "input length and `max_tokens` exceed context limit: 9 + 8 > 10"}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "max_tokens: 9 > 8, the maximum number of output tokens"}, Cause.BAD_REQUEST),
        (400, {"message": "Output blocked by content filtering policy"}, Cause.CONTENT_FILTER),
        (400, {"message": "Your credit balance is too low to access the API."}, Cause.PERMISSION),
        (400, {"message": "You have reached your specified API usage limits."}, Cause.PERMISSION),
        (402, {"type": "billing_error"}, Cause.PERMISSION),
        (529, {"type": "overloaded_error", "message": "Overloaded"}, Cause.OVERLOADED),
        # OpenAI: a request that is larger than a minute's limit. Waiting does not help.
        (
            429,
            {
                "code": "rate_limit_exceeded",
                "message": "Request too large for m on tokens per min (TPM): Limit 9, Requested 10. The input or "
                "output tokens must be reduced in order to run successfully.",
            },
            Cause.CONTEXT_OVERFLOW,
        ),
        # Groq: the model wrote what its server could not read, and need not write it again.
        (400, {"code": "tool_use_failed", "type": "invalid_request_error"}, Cause.SERVER_ERROR),
        (413, {"code": "rate_limit_exceeded", "message": "Request too large"}, Cause.CONTEXT_OVERFLOW),
        # Google.
        (400, {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}, Cause.AUTHENTICATION),
        (400, {"status": "FAILED_PRECONDITION"}, Cause.PERMISSION),
        (429, {"status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota"}, Cause.RATE_LIMITED),
        # OpenRouter.
        (402, {"metadata": {"limit_source": "openrouter_credits"}}, Cause.PERMISSION),
        (402, {"metadata": {"limit_source": "openrouter_in_flight_budget"}}, Cause.RATE_LIMITED),
        (403, {"metadata": {"flagged_input": "x", "reasons": ["violence"]}}, Cause.CONTENT_FILTER),
        (400, {"metadata": {"raw": '{"error": {"code": "context_length_exceeded"}}'}}, Cause.CONTEXT_OVERFLOW),
        # DeepSeek, Moonshot, GLM, Qwen, xAI.
        (402, {"message": "Insufficient Balance"}, Cause.PERMISSION),
        (400, {"message": "Content Exists Risk"}, Cause.CONTENT_FILTER),
        (429, {"type": "exceeded_current_quota_error"}, Cause.PERMISSION),
        (429, {"type": "engine_overloaded_error"}, Cause.OVERLOADED),
        (400, {"message": "Your request exceeded model token limit: 8192"}, Cause.CONTEXT_OVERFLOW),
        (429, {"code": "1113", "message": "Insufficient balance or no resource package."}, Cause.PERMISSION),
        (400, {"code": "1261", "message": "Prompt exceeds max length"}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "Range of input length should be [1, 30720]"}, Cause.CONTEXT_OVERFLOW),
        (400, {"code": "data_inspection_failed"}, Cause.CONTENT_FILTER),
        (400, {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}, Cause.CONTENT_FILTER),
        (400, {"message": "potentially unsafe or sensitive content in input or generation"}, Cause.CONTENT_FILTER),
        (400, {"message": "Input text data may contain inappropriate content."}, Cause.CONTENT_FILTER),
        (400, {"message": "the input text may contain sensitive information"}, Cause.CONTENT_FILTER),
        (400, {"message": "input contains sensitive words: [x]", "type": "new_api_error"}, Cause.CONTENT_FILTER),
        (400, {"message": "The request was rejected because it was considered high risk"}, Cause.CONTENT_FILTER),
        (500, {"message": "input new_sensitive, messages[1]'s content[1] (1026)"}, Cause.CONTENT_FILTER),
        (429, {"message": "slow down: it may contain sensitive content"}, Cause.RATE_LIMITED),
        (403, {"message": "Content violates usage guidelines."}, Cause.CONTENT_FILTER),
        (403, {"message": "The model requires moderation and your input was flagged"}, Cause.CONTENT_FILTER),
        (429, {"message": "Your team has used all available credits"}, Cause.PERMISSION),
        (429, {"message": "You are out of credits. Please add a payment method."}, Cause.PERMISSION),
        (403, {"message": "账户已欠费"}, Cause.PERMISSION),
        (429, {"message": "用户额度不足"}, Cause.PERMISSION),
        # TGI, Together, Groq's other words, Mistral, Cohere.
        (422, {"message": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"}, Cause.CONTEXT_OVERFLOW),
        (422, {"message": "Input validation error: inputs tokens + max_new_tokens"}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "Please reduce the length of the messages or completion."}, Cause.CONTEXT_OVERFLOW),
        (429, {"type": "service_tier_capacity_exceeded", "code": "3505"}, Cause.RATE_LIMITED),
        (498, {"code": "capacity_exceeded"}, Cause.OVERLOADED),
        # OpenAI: a text that is too long counts only in the conversation.
        (400, {"message": "Invalid 'messages[3].content': string too long."}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "Invalid 'input': array too long. Expected at most 2048."}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "Invalid 'messages': array too long. Expected at most 2048."}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "Invalid 'messages[1].tool_calls': array too long. Expected 128."}, Cause.BAD_REQUEST),
        (400, {"message": "Invalid 'messages[1].content': array too long."}, Cause.BAD_REQUEST),
        (
            400,
            {"message": "Invalid 'tools[0].function.description': string too long.", "code": "string_above_max_length"},
            Cause.BAD_REQUEST,
        ),
    ],
)
def test_the_body_may_say_more_than_the_status(status: int, error: JsonValue, cause: Cause) -> None:
    assert failed(status, {"error": error}).cause is cause


@pytest.mark.parametrize(
    "words",
    [
        "The decoder prompt (length 9) is longer than the maximum model length of 8.",
        "The prompt (length 9) exceeds the maximum length of 8",
        "litellm.BadRequestError: ContextWindowExceededError: too much",
        "Prompt length 9 is greater than max_seq_len 8",
        "The model returned the following errors: too many total text bytes: 9 > 8",
        "Request payload size exceeds the limit: 20971520 bytes.",
        "prompt token count of 9 exceeds the limit of 8",
        "Input length (9 tokens) exceeds the maximum allowed length (8 tokens). Use a shorter input.",
        "Input length 9 exceeds maximum input length of 8",
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
        "the number of input tokens 9 cannot exceed the total tokens limit 8 for this model",
        "the size of the input text (9 tokens) exceeds the maximum tokens (8 tokens)",
        "Prompt length:9, max_tokens: 1 exceeds maximum 8",
        "Token limit exceeded",
        "max_tokens must be at least 1, got -904.",
        "Prompt 超长",
        "Prompt too long: 9 tokens",
        "PayloadTooLargeError: request entity too large",
        "Total tokens of image and text exceed max message tokens. Request id: 9",
        "upstream said {'code': 'context_length_exceeded'}",
    ],
)
def test_context_overflow_is_known_by_the_message(words: str) -> None:
    assert failed(400, {"error": {"message": words}}).cause is Cause.CONTEXT_OVERFLOW
    assert failed(429, {"error": {"message": words}}).cause is Cause.RATE_LIMITED


@pytest.mark.parametrize("code", ["model_max_prompt_tokens_exceeded", "tokens_limit_reached", "tokens_too_long"])
def test_context_overflow_is_known_by_the_code(code: str) -> None:
    assert failed(400, {"error": {"message": "No.", "code": code}}).cause is Cause.CONTEXT_OVERFLOW


def test_error_in_events_is_read_like_an_error_body() -> None:
    """Some gateways answer a request for a stream with events, whatever the status is."""
    event = json.dumps({"error": {"message": "Boom.", "code": "insufficient_quota"}})
    for body in (f"data: {event}\n\ndata: [DONE]\n\n", f"id: 1\nevent: error\ndata:{event}", f"Oh no\n{event}\n"):
        error = failed(429, body.encode())
        assert error.cause is Cause.PERMISSION
        assert "answered 429: Boom. Check" in str(error)
    assert "answered 500: Oh no {}. Try" in str(failed(500, b"Oh no\n{}\n"))


def test_should_retry_false_prevents_a_retry() -> None:
    error = failed(429, {"error": {"message": "No extra usage."}}, **{"x-should-retry": "False"})
    assert (error.cause, error.status) == (Cause.REJECTED, 429)
    assert "No extra usage. Check the base URL and the account. The" in str(error)
    assert str(error).endswith("The provider says not to repeat the request as it is.")
    assert failed(429, {}, **{"x-should-retry": "true"}).cause is Cause.RATE_LIMITED
    assert failed(401, {}, **{"x-should-retry": "false"}).cause is Cause.AUTHENTICATION


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("boom", Cause.SERVER_ERROR),
        ({"code": 502, "message": "bad gateway"}, Cause.SERVER_ERROR),
        ({"code": "429"}, Cause.RATE_LIMITED),
        ({"status": 503}, Cause.OVERLOADED),
        ({"code": 400, "message": "x"}, Cause.BAD_REQUEST),
        ({"type": "rate_limit_error"}, Cause.RATE_LIMITED),
        ({"status": "RESOURCE_EXHAUSTED"}, Cause.RATE_LIMITED),
        ({"type": "overloaded_error"}, Cause.OVERLOADED),
        ({"message": "The engine is overloaded"}, Cause.OVERLOADED),
        ({"type": "invalid_request_error"}, Cause.BAD_REQUEST),
        ({"type": "invalid_request_error", "code": "invalid_api_key"}, Cause.AUTHENTICATION),
        ({"type": "timeout"}, Cause.TIMEOUT),
        ({"type": "throttlingException", "message": "Too many tokens, please wait"}, Cause.RATE_LIMITED),
        ({"type": "request_too_large"}, Cause.CONTEXT_OVERFLOW),
        ({"type": "billing_error"}, Cause.PERMISSION),
        ({"code": "tool_use_failed", "status_code": 400}, Cause.SERVER_ERROR),
        ({"type": "api_error"}, Cause.SERVER_ERROR),
        ({"code": 500, "message": "Context size has been exceeded."}, Cause.CONTEXT_OVERFLOW),
        ({"code": "content_filter"}, Cause.CONTENT_FILTER),
        ({"code": 200, "message": "odd"}, Cause.SERVER_ERROR),
        (None, Cause.SERVER_ERROR),
    ],
)
def test_an_error_inside_a_stream_is_understood_without_a_status(error: JsonValue, cause: Cause) -> None:
    partial = ModelResponse(text="a")
    failure = stream_failure({"error": error}, partial=partial)
    assert (failure.cause, failure.partial) == (cause, partial)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Words"}},
        {"error": "Words"},
        {"message": "Words"},
        {"detail": "Words"},
        {"detail": [{"loc": ["body"], "msg": "Words"}]},
        {"error": {"detail": {"message": "Words"}}},
        {"error": {"error": {"message": "Words"}}},
        {"message": {"detail": [{"type": "missing", "msg": "Words"}]}},
        {"message": {"error": "Words"}},
        {"error": None, "message": "Words"},
        [{"error": {"message": "Words"}}],
        b"Words",
        b"<html><style>p {}</style><body><h1>Words</h1></body>",
        b"\xef\xbb\xbf <p>Words</p>",
    ],
)
def test_provider_message_is_found_in_any_shape(body: JsonValue | bytes) -> None:
    assert str(failed(418, body)).startswith("http://host/v1 answered 418: Words. ")


def test_a_field_that_fastapi_refuses_is_named() -> None:
    """Mistral has its list inside the message."""
    reasons: JsonValue = [
        {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"},
        {"type": "missing", "loc": ["body", "messages", 0, "content"], "msg": "Field required"},
    ]
    bodies: list[JsonValue] = [{"detail": reasons}, {"object": "error", "message": {"detail": reasons}}]
    for body in bodies:
        words = "answered 422: seed: Extra inputs are not permitted; messages.0.content: Field required. "
        assert words in str(failed(422, body))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "messages.1.content.0: Invalid `signature` in `thinking` block"}, RefusedReasoningError),
        ({"message": "messages.1.content.0: Invalid signature in thinking block"}, RefusedReasoningError),
        ({"message": "messages.1.content.0: Invalid `data` in `redacted_thinking` block"}, RefusedReasoningError),
        ({"message": "messages.1.content.0.thinking.signature: Field required"}, RefusedReasoningError),
        (
            {"message": "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."},
            RefusedReasoningError,
        ),
        ({"message": "The encrypted content gAAA...Rg== could not be verified."}, RefusedReasoningError),
        ({"message": "No.", "code": "invalid_encrypted_content"}, RefusedReasoningError),
        ({"message": "The `reasoning_content` in the thinking mode must be passed back."}, MissingReasoningError),
        ({"message": "The `content[].thinking` in the thinking mode must be passed back."}, MissingReasoningError),
        ({"message": "reasoning_content is missing in assistant tool call message"}, MissingReasoningError),
        ({"message": "property 'reasoning_content' is unsupported"}, ModelError),
        ({"message": "Invalid signature."}, ModelError),
    ],
)
def test_trouble_with_reasoning_is_known_by_the_words(error: JsonValue, kind: type[ModelError]) -> None:
    for failure in (failed(400, {"error": error}), stream_failure({"error": error}, partial=ModelResponse())):
        assert type(failure) is kind


@pytest.mark.parametrize("error", [{"faultstring": "Wörds"}, {"type": "odd"}, {"reasons": ["Wörds", 7]}])
def test_an_error_in_an_unknown_form_is_quoted(error: JsonValue) -> None:
    for body in (error, {"error": error}, [error]):
        quoted = json.dumps(body, ensure_ascii=False)
        assert f"answered 418: {quoted}. " in str(failed(418, body))
    quoted = json.dumps({"error": error}, ensure_ascii=False)
    assert f"in its reply: {quoted}. " in str(stream_failure({"error": error}, partial=ModelResponse()))
    hidden = failed(418, {"odd": {"key": "sk-secret"}})
    assert '{"odd": {"key": "[hidden]"}}' in str(hidden)


@pytest.mark.parametrize("body", [b"", {}, [], None, {"error": {}}, {"error": {"message": 5}}, b"[" * 100_000])
def test_a_body_without_words_is_still_an_error(body: JsonValue | bytes) -> None:
    assert str(failed(500, body)).startswith("http://host/v1 answered 500")


def test_redirect_is_not_followed_and_the_target_named() -> None:
    error = failed(308, b"", location="https://elsewhere/sk-secret")
    assert error.cause is Cause.REJECTED
    assert "It redirects to https://elsewhere/[hidden]" in str(error)


@pytest.mark.parametrize("headers", [{}, {"location": ""}])
@pytest.mark.parametrize("status", [300, 302, 304, 399])
def test_redirect_without_a_target_is_reported_as_such(status: int, headers: dict[str, str]) -> None:
    error = failed(status, b"", **headers)
    assert error.cause is Cause.REJECTED
    assert str(error).startswith(f"http://host/v1 answered {status}. That is not a reply, and it names no other")


def test_status_304_never_counts_as_a_redirect() -> None:
    assert "redirects to" not in str(failed(304, b"", location="https://elsewhere"))


@pytest.mark.parametrize("form", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("body", ['{"error": {"message": "Words"}}', "Words", "<p>Words"])
def test_the_words_are_read_in_every_form_of_unicode(form: str, body: str) -> None:
    assert "answered 418: Words. " in str(failed(418, body.encode(form)))


@pytest.mark.parametrize("noise", [b"\0boom", b"\0\0\0\0boom", b"b\0oom", b"\xff\x01boom"])
def test_noise_does_not_turn_a_body_into_another_form_of_unicode(noise: bytes) -> None:
    assert "oom. " in str(failed(418, noise))


@pytest.mark.parametrize(
    "words",
    [
        "400 The plain HTTP request was sent to HTTPS port",
        "Client sent an HTTP request to an HTTPS server.",
        "You're speaking plain HTTP to an SSL-enabled server port.",
    ],
)
def test_tls_server_error_mentions_the_address(words: str) -> None:
    error = failed(400, words.encode())
    assert error.cause is Cause.REJECTED
    assert "base URL" in str(error)


class TestExcerpt:
    def test_control_characters_and_line_ends_become_spaces(self) -> None:
        assert excerpt("a\r\n\x1b[31mb\u202e\u2028 c\t") == "a [31mb c"

    def test_excerpt_is_shortened(self) -> None:
        assert excerpt("x" * 500) == "x" * (MAX_EXCERPT - 1) + "…"

    def test_secrets_are_hidden_before_the_cut(self) -> None:
        """Cutting first would leave the half of a key that no longer looks like one."""
        assert "sk-" not in excerpt("x" * (MAX_EXCERPT - 5) + "sk-secret", ["sk-secret"])

    def test_secret_containing_another_secret_is_hidden_whole(self) -> None:
        assert excerpt("got Basic abcd", ["abcd", "Basic abcd"]) == "got [hidden]"

    def test_a_placeholder_is_no_secret(self) -> None:
        assert excerpt("maximum", ["x"]) == "maximum"

    @given(st.text(st.characters(exclude_categories=())))
    def test_any_text_becomes_a_single_printable_line(self, text: str) -> None:
        assert excerpt(text).isprintable()


@pytest.mark.parametrize("status", [400, 401, 500])
@pytest.mark.parametrize(
    "template", [b'{"error": {"message": "bad key KEY"}}', b"<p>KEY", b"KEY", b'{"detail": ["KEY"]}']
)
def test_key_echoed_by_the_server_is_hidden(status: int, template: bytes) -> None:
    assert "sk-secret" not in str(failed(status, template.replace(b"KEY", b"sk-secret")))


@pytest.mark.parametrize(
    "between", ["\0", "\u200b", "\xad", "\n", "\x1b", "<wbr>", "<b class='x'></b>", "&#8203;", "&shy;", "é \t"]
)
@pytest.mark.parametrize("template", ["bad KEY", "<p>bad KEY</p>", '{"error": {"message": "bad KEY"}}'])
@pytest.mark.parametrize("form", ["utf-8", "utf-16"])
def test_key_interrupted_by_invisible_characters_is_hidden(between: str, template: str, form: str) -> None:
    for key in (f"sk-s{between}ecret", between.join("sk-secret")):
        message = str(failed(401, template.replace("KEY", key).encode(form)))
        assert "bad [hidden]" in message
        assert "ecret" not in message


def test_text_similar_to_a_secret_is_left() -> None:
    assert excerpt("sk-, sk-sec.ret, a < b > c", ["sk-secret"]) == "sk-, sk-sec.ret, a < b > c"


@pytest.mark.parametrize(
    ("status", "name", "cause"),
    [
        (400, "ServiceQuotaExceededException", Cause.RATE_LIMITED),
        (429, "ThrottlingException:http://internal.amazon.com/", Cause.RATE_LIMITED),
        (429, "ModelNotReadyException", Cause.OVERLOADED),
        (424, "ModelErrorException", Cause.SERVER_ERROR),
        (408, "ModelTimeoutException", Cause.TIMEOUT),
        (403, "ExpiredTokenException", Cause.AUTHENTICATION),
        (400, "ValidationException", Cause.BAD_REQUEST),
    ],
)
def test_aws_names_the_fault_in_a_header(status: int, name: str, cause: Cause) -> None:
    assert failed(status, {"message": "Words"}, **{"x-amzn-errortype": name}).cause is cause


class TestRetryAfter:
    def test_retry_after_header_gives_the_wait(self) -> None:
        assert failed(429, b"", **{"retry-after": "9"}).retry_after == 9

    def test_error_body_may_give_the_wait(self) -> None:
        assert failed(429, {"error": {"message": "Please try again in 20s."}}).retry_after == 20
        assert failed(503, {"error": "Model is loading", "estimated_time": 12.5}).retry_after == 12.5

    def test_a_gateways_body_may_hold_the_headers(self) -> None:
        headers: JsonValue = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1000000020000"}
        assert failed(429, {"error": {"metadata": {"headers": headers}}}).retry_after == 20

    def test_retry_date_is_counted_from_now(self) -> None:
        assert failed(429, b"", **{"retry-after": "Sun, 09 Sep 2001 01:46:50 GMT"}).retry_after == 10

    def test_error_inside_a_stream_may_give_the_wait(self) -> None:
        failure = stream_failure({"error": {"message": "Please try again in 1.5s."}}, partial=ModelResponse())
        assert failure.retry_after == 1.5


def test_an_error_inside_a_stream_names_no_variable() -> None:
    """Only the client knows the variable's name."""
    failure = stream_failure({"error": {"type": "authentication_error", "message": "no"}}, partial=ModelResponse())
    assert str(failure).endswith("no. Check the API key.")


@given(status=st.none() | st.integers(300, 999), words=st.text(), names=st.frozensets(st.text()))
def test_every_status_and_body_has_a_cause(status: int | None, words: str, names: frozenset[str]) -> None:
    assert isinstance(classify(status, ErrorBody(words, names)), Cause)
