"""Agents: their name, instructions, model, tools and limits. `turnwright` exports the public names."""

from .agent import AGENTS_FILE as AGENTS_FILE
from .agent import DEPS as DEPS
from .agent import Agent as Agent
from .agent import MisfitLimitError as MisfitLimitError
from .agent import needs_of as needs_of
from .fields import BUDGET_FIELDS as BUDGET_FIELDS
from .fields import OUTPUT_TOOL as OUTPUT_TOOL
from .fields import Compact as Compact
from .fields import OutputMode as OutputMode
from .fields import ToolsFunction as ToolsFunction
