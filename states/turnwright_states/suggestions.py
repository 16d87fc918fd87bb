"""Suggestions for unknown names: a similar name, or ours for a name of another framework."""

from collections.abc import Collection, Mapping
from typing import Final

#: Our names for those of other frameworks. The first one that exists at the place of the mistake is suggested.
_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    word: own_names
    for own_names, words in {
        ("steps",): "max_turns max_steps max_iterations max_iter max_rounds max_loops recursion_limit request_limit",
        ("tool_calls",): "max_tool_calls tool_calls_limit tool_call_limit",
        ("tokens", "model_settings"): "max_tokens token_limit total_tokens_limit",
        ("model_settings",): "settings temperature top_p top_k seed model_kwargs generation_config extra_body",
        ("thinking", "model_settings"): "thinking reasoning reasoning_effort effort thinking_budget budget_tokens",
        ("stop_sequences", "model_settings"): "stop stop_sequences",
        ("max_tokens", "model_settings"): "max_output_tokens max_completion_tokens",
        ("cache",): "cache_control prompt_caching",
        ("cost",): "max_cost max_budget max_budget_usd",
        ("seconds", "timeout"): "timeout timeout_seconds max_seconds max_execution_time time_limit",
        ("max_retries",): "retries num_retries retry_limit",
        ("instructions", "description"): "system system_prompt system_message instruction prompt backstory",
        ("model",): "llm client model_name model_id",
        ("tools",): "functions toolset toolsets",
        ("store",): "storage checkpointer saver database db memory session_store",
        ("on_event",): "observers callbacks hooks listeners",
        ("history_processor",): "prepare history_processors prepare_messages",
        ("synthesize",): "synthesise synthesizer synthesis",
        ("limits", "budget"): "usage_limits limits budget",
        ("max_parallel_tools", "concurrency"): "max_concurrency parallel parallel_tool_calls",
        ("telemetry",): "tracer tracing instrument",
        ("needs_approval",): "approval requires_approval require_approval confirm requires_confirmation",
        ("name",): "name_override tool_name",
        ("description",): "description_override goal",
        ("rate",): "rate_limit",
        ("session",): "session_id thread_id conversation_id chat_id",
        ("message_history",): "history messages chat_history",
        ("metadata",): "context",
        ("continue_from",): "continues",
        ("files",): "attachments images",
        ("read_only",): "readonly",
    }.items()
    for word in words.split()
}
#: No limit, option or field has a longer name.
_LONGEST: Final = 40


def find_similar_name(name: str, names: Collection[str]) -> str | None:
    """Return the name among `names` that `name` probably means, or None."""
    import difflib  # noqa: PLC0415 (needed only after a mistake)

    word = name.lower()[:_LONGEST]
    own_name = next((alias for alias in _ELSEWHERE.get(word, ()) if alias in names), None)
    return own_name or next(iter(difflib.get_close_matches(word, names, n=1)), None)


def explain_unknown(name: str, names: Collection[str]) -> str:
    """Return a message that a name is unknown, with a suggestion or the known names."""
    suggestion = find_similar_name(name, names)
    return f"is unknown: did you mean `{suggestion}`?" if suggestion else f"is unknown: use one of {', '.join(names)}"
