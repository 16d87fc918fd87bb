"""The usage of one segment of a turn, from its start or an answer to its next pause or end."""

from turnwright_states import Usage
from turnwright_states import facts as f


class SegmentUsage:
    """The usage of a turn's facts, summed for each segment."""

    def __init__(self) -> None:
        self.model = ""
        #: Whether all facts from the first one on were added; otherwise the usage of this segment is unknown.
        self.is_known = False
        #: Of the whole turn so far, sub-agents included.
        self._turn = Usage()
        #: Of this segment: the turn's own model calls, and the tokens of its sub-agents, of whatever model.
        self.own = Usage()
        self.delegated = 0

    @property
    def input_tokens(self) -> int:
        """The input tokens of this segment, with all tokens of its sub-agents."""
        return self.own.input_tokens + self.delegated

    def begin(self) -> None:
        """Begin a segment."""
        self.own, self.delegated = Usage(), 0

    def add(self, fact: f.Fact) -> None:
        """Add a fact."""
        match fact:
            case f.TurnStarted(model=model):
                self.model, self.is_known = model, True
            case f.CallSettled(spent=spending) if spending is not None:
                self.delegated += spending.tokens
                self._turn += Usage(input_tokens=spending.tokens)
            case _ if fact.new_usage is not None:
                self.own += fact.new_usage
                self._turn += fact.new_usage
            case _:
                pass

    def end(self, turn: Usage) -> None:
        """Add the last model call of this segment: the difference to the turn's usage at its end."""
        self.own += Usage(
            input_tokens=max(turn.input_tokens - self._turn.input_tokens, 0),
            output_tokens=max(turn.output_tokens - self._turn.output_tokens, 0),
            cached_tokens=max(turn.cached_tokens - self._turn.cached_tokens, 0),
            reasoning_tokens=max(turn.reasoning_tokens - self._turn.reasoning_tokens, 0),
        )
        self._turn = turn
