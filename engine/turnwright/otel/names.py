"""The names of attributes and metrics: those of the conventions for generative AI, and ours under `turnwright.`.

Source: the GenAI conventions of OpenTelemetry (github.com/open-telemetry/semantic-conventions-genai), version 0.1.0.
They are in development.
"""

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
CONVERSATION: Final = "gen_ai.conversation.id"
MODEL: Final = "gen_ai.request.model"
STREAM: Final = "gen_ai.request.stream"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
#: The attributes of model settings, by their names in `ModelSettings`.
SETTINGS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "seed": "gen_ai.request.seed",
    "stop_sequences": "gen_ai.request.stop_sequences",
}
FINISH: Final = "gen_ai.response.finish_reasons"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
#: As it has been called since August 2026; up to version 1.41 of the general conventions `cache_creation`.
CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
MODALITY: Final = "gen_ai.token.modality"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
CALL: Final = "gen_ai.tool.call.id"
ERROR: Final = "error.type"
SERVER: Final = "server.address"
PORT: Final = "server.port"

# The texts of people and models: recorded only if enabled.
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
INSTRUCTIONS: Final = "gen_ai.system_instructions"
DEFINITIONS: Final = "gen_ai.tool.definitions"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"

TURN: Final = "turnwright.turn.id"
PARENT: Final = "turnwright.turn.parent"
CONTINUES: Final = "turnwright.turn.continues"
FORKED_FROM: Final = "turnwright.turn.forked_from"
EPOCH: Final = "turnwright.segment.epoch"
STATE: Final = "turnwright.state"
STEP: Final = "turnwright.step"
STEPS: Final = "turnwright.steps"
TOOL_CALLS: Final = "turnwright.tool_calls"
ATTEMPT: Final = "turnwright.attempt"
OUTCOME: Final = "turnwright.outcome"
REASON: Final = "turnwright.reason"
ALSO_REACHED: Final = "turnwright.also_reached"
RELEASED: Final = "turnwright.released"
STATUS: Final = "turnwright.call.status"
CHILD: Final = "turnwright.call.turn"
ANSWER_VIA: Final = "turnwright.answer.via"
WAIT: Final = "turnwright.wait.seconds"
RULE: Final = "turnwright.rule.name"
RULE_EFFECT: Final = "turnwright.rule.effect"
COST: Final = "turnwright.usage.cost"
INTERRUPTED: Final = "turnwright.interrupted"

BROKEN: Final = "turnwright.rule.broken"
MOVED: Final = "turnwright.transition"
FROM: Final = "turnwright.transition.from"
TO: Final = "turnwright.transition.to"
FACT: Final = "turnwright.transition.fact"
