"""`turnwright annotate`: the tags, notes and scores of a turn."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from turnwright._base.ids import new_id
from turnwright._base.words import cut_line, local_time
from turnwright.errors import ConfigError
from turnwright.store import Annotation, AnnotationKind, Store
from turnwright.store.annotations import annotation_store

from .options import DEFAULT_STORE, JsonLinesOption, StoreOption, TurnArgument
from .process import echo, echo_json
from .screen import print_columns
from .stores import find_turn, use_store

_COLUMNS: Final = ("KIND", "NAME", "VALUE", "WHEN", "TEXT")


def annotate(
    turn: TurnArgument,
    *,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="NAME", help="A tag; may be repeated.")] = None,
    score: Annotated[
        list[str] | None,
        typer.Option("--score", metavar="NAME=NUMBER", help="A score, such as success=1; may be repeated."),
    ] = None,
    note: Annotated[list[str] | None, typer.Option("--note", metavar="TEXT", help="A note; may be repeated.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="NAME", help="Remove what has this name; may be repeated.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonLinesOption = False,
) -> None:
    """Tag, score or note a turn, and list what it has.

    They are kept beside the journal. `turnwright audit` reads the score `success`: the turn succeeded if it is above 0.
    """
    turn = find_turn(store, turn)
    annotations = [*_make_annotations(turn, tag or (), score or (), note or ())]
    all_annotations = use_store(store, partial(_annotate, turn=turn, annotations=annotations, remove=remove or ()))
    if as_json:
        for annotation in all_annotations:
            echo_json(_record(annotation))
    elif all_annotations:
        print_columns(_COLUMNS, [_cells(annotation) for annotation in all_annotations])
    else:
        echo("no tags, notes and scores", err=True)


def _make_annotations(
    turn: str, tags: Sequence[str], scores: Sequence[str], notes: Sequence[str]
) -> Iterator[Annotation]:
    now = time.time()
    for name in tags:
        yield Annotation(turn, AnnotationKind.TAG, name, at=now)
    for score in scores:
        name, equals, number = score.rpartition("=")
        try:
            value = float(number if equals else "")
        except ValueError:
            raise ConfigError(f"--score {score}: write it as NAME=NUMBER, such as success=1") from None
        yield Annotation(turn, AnnotationKind.SCORE, name, value=value, at=now)
    for text in notes:
        yield Annotation(turn, AnnotationKind.NOTE, new_id(), text=text, at=now)


async def _annotate(
    store: Store, *, turn: str, annotations: Sequence[Annotation], remove: Sequence[str]
) -> list[Annotation]:
    notes = annotation_store(store)
    await store.get(turn)
    before = await notes.annotations([turn])
    if unknown := set(remove).difference(annotation.name for annotation in before):
        raise ConfigError(f"--remove {min(unknown)}: turn {turn} has no tag, score or note of this name")
    for annotation in before:
        if annotation.name in remove:
            await notes.unannotate(turn, annotation.kind, annotation.name)
    await notes.annotate(*annotations)
    return await notes.annotations([turn])


def _record(annotation: Annotation) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {"turn": annotation.turn, "kind": annotation.kind.value, "name": annotation.name}
    return fields | {"value": annotation.value, "text": annotation.text, "at": annotation.at}


def _cells(annotation: Annotation) -> tuple[str, ...]:
    when = local_time(annotation.at, "%Y-%m-%d %H:%M:%S")
    value = "" if annotation.value is None else f"{annotation.value:g}"
    return (annotation.kind.value, cut_line(annotation.name), value, when, cut_line(annotation.text, 200))
