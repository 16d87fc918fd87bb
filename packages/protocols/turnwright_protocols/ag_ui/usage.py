"""The usage of one run's model calls. A turn that paused is several runs, and each reports its own."""

from ag_ui.core import TokenUsage

from turnwright_states import Usage
from turnwright_states import facts as f


class RunUsage:
    """The usage of a turn's facts, summed for each run."""

    def __init__(self) -> None:
        self._model = ""
        #: Whether all facts from the first one on were added; otherwise the usage of this run is unknown.
        self._is_known = False
        #: Of the whole turn so far, sub-agents included.
        self._turn = Usage()
        #: Of this run: the turn's own model calls, and the tokens of its sub-agents, of whatever model.
        self._own = Usage()
        self._delegated = 0

    def begin(self) -> None:
        """Begin a run."""
        self._own, self._delegated = Usage(), 0

    def add(self, fact: f.Fact) -> None:
        """Add a fact."""
        match fact:
            case f.TurnStarted(model=model):
                self._model, self._is_known = model, True
            case f.CallSettled(spent=spent) if spent is not None:
                self._delegated += spent.tokens
                self._turn += Usage(input_tokens=spent.tokens)
            case _ if fact.new_usage is not None:
                self._own += fact.new_usage
                self._turn += fact.new_usage
            case _:
                pass

    def end(self, turn: Usage) -> None:
        """Add the last model call of this run: the difference to the turn's usage at its end."""
        self._own += Usage(
            input_tokens=max(turn.input_tokens - self._turn.input_tokens, 0),
            output_tokens=max(turn.output_tokens - self._turn.output_tokens, 0),
            cached_tokens=max(turn.cached_tokens - self._turn.cached_tokens, 0),
            reasoning_tokens=max(turn.reasoning_tokens - self._turn.reasoning_tokens, 0),
        )
        self._turn = turn

    def told(self) -> list[TokenUsage] | None:
        """Return one entry for the turn's model and one for its sub-agents; None if no provider reported usage."""
        own, entries = self._own, list[TokenUsage]()
        if not self._is_known:
            return None
        if own.tokens:
            entries.append(
                TokenUsage(
                    model=self._model or None,
                    input_tokens=own.input_tokens,
                    output_tokens=own.output_tokens,
                    reasoning_tokens=own.reasoning_tokens or None,
                    cached_input_tokens=own.cached_tokens or None,
                    total_tokens=own.tokens,
                )
            )
        if self._delegated:
            entries.append(TokenUsage(total_tokens=self._delegated))
        return entries or None
