"""The usage of one run's model calls. A turn that paused is several runs, and each reports its own."""

from ag_ui.core import TokenUsage

from turnwright_protocols.segment_usage import SegmentUsage


class RunUsage(SegmentUsage):
    """The usage of a run."""

    def told(self) -> list[TokenUsage] | None:
        """Return one entry for the turn's model and one for its sub-agents; None if no provider reported usage."""
        own, entries = self.own, list[TokenUsage]()
        if not self.is_known:
            return None
        if own.tokens:
            entries.append(
                TokenUsage(
                    model=self.model or None,
                    input_tokens=own.input_tokens,
                    output_tokens=own.output_tokens,
                    reasoning_tokens=own.reasoning_tokens or None,
                    cached_input_tokens=own.cached_tokens or None,
                    total_tokens=own.tokens,
                )
            )
        if self.delegated:
            entries.append(TokenUsage(total_tokens=self.delegated))
        return entries or None
