"""Read a prompt of ACP: its text, with links and resources, and its files."""

from collections.abc import Sequence

from acp import RequestError, schema

from turnwright.message import FilePart

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)


def read_prompt(blocks: Sequence[Block]) -> tuple[str, tuple[FilePart, ...]]:
    """Return the text and the files of a prompt. Raises `RequestError`."""
    texts: list[str] = []
    files: list[FilePart] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock(text=text):
                texts.append(text)
            case schema.ResourceContentBlock(name=name, uri=uri):
                texts.append(f"[{name}]({uri})")
            case (
                schema.ImageContentBlock(data=data, mime_type=kind)
                | schema.AudioContentBlock(data=data, mime_type=kind)
            ):
                files.append(_file(kind, data, ""))
            case schema.EmbeddedResourceContentBlock(resource=resource):
                if isinstance(resource, schema.TextResourceContents):
                    texts.append(f"{resource.uri}:\n{resource.text}")
                else:
                    name = str(resource.uri).rpartition("/")[2]
                    files.append(_file(resource.mime_type or "application/octet-stream", resource.blob, name))
    text = "\n".join(texts)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError.invalid_params({"why": "the prompt is not valid Unicode"}) from None
    if not text.strip() and not files:
        raise RequestError.invalid_params({"why": "the prompt is empty"})
    return text, tuple(files)


def _file(media_type: str, data: str, name: str) -> FilePart:
    try:
        return FilePart(media_type=media_type, data=data, name=name)
    except ValueError as error:
        raise RequestError.invalid_params({"why": f"a file: {error}"}) from None
