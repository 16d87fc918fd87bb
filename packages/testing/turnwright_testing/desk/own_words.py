"""The words that a case made up: what its model and its people say, nobody read.

Values of the domain are drawn as arguments, also those that a model cannot know. A tool may repeat them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from turnwright.model.protocol import ModelRequest, ModelResponse

T = TypeVar("T")

#: The characters of the shortest word that is taken out: shorter ones are in many texts by chance.
_SHORTEST: Final = 4
_BLANK: Final = "..."


class OwnWords:
    """Collects the words of a case, and takes them out of requests."""

    def __init__(self) -> None:
        self._words: dict[str, None] = {}

    def add(self, value: object, request: ModelRequest | None = None) -> None:
        """Note a reply of the model to a request, or an answer of a person."""
        messages, tools = ((), ()) if request is None else (request.messages, request.tools)
        earlier_request = ([message for message in messages if message.role != "assistant"], tools)
        # A tool repeats a word of the model: the parts of that word are not the tool's.
        known_text = str(_blank(earlier_request, self._longest_first()))
        value = (value.text, [call.arguments for call in value.calls]) if isinstance(value, ModelResponse) else value
        self._words |= dict.fromkeys(
            word for word in _leaves(value) if len(word) >= _SHORTEST and word not in known_text
        )

    def take_out_of(self, requests: Sequence[ModelRequest]) -> list[ModelRequest]:
        """Return the requests without these words."""
        return [_blank(request, self._longest_first()) for request in requests]

    def _longest_first(self) -> list[str]:
        return sorted(self._words, key=len, reverse=True)


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str | int | float):
        yield str(value)


def _blank(value: T, words: Sequence[str]) -> T:
    """Return a copy of a value in whose texts these words are blank."""
    new_value: object = value
    if isinstance(value, str):
        text: str = value
        for word in words:
            text = text.replace(word, _BLANK)
        new_value = text
    elif isinstance(value, ModelRequest):
        new_value = msgspec.structs.replace(value, messages=_blank(value.messages, words))
    elif isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        new_value = msgspec.structs.replace(value, **{name: _blank(item, words) for name, item in fields.items()})
    elif isinstance(value, Mapping):
        new_value = {key: _blank(item, words) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        new_value = type(value)([_blank(item, words) for item in value])
    return new_value  # type: ignore[return-value]  # of the same type
