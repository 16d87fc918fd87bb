"""The web side of waits: one ASGI application for links, by which people answer, and for callbacks with results.

It needs no framework: mount it below the address of the engine's `Links`. See docs/how-to/answer-by-link.md.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from html import escape
from http import HTTPStatus
from typing import Any, Final, NamedTuple, cast

from pydantic import JsonValue

from turnwright._base.frozen import strict_json
from turnwright._base.words import explain_json_error
from turnwright_states import Decision
from turnwright_states.facts import Answered

from .context import DepsT
from .errors import AlreadySettledError, ConfigError, InvalidAnswerError, PicklableError, StoreError, TurnNotFoundError
from .errors import TurnAlreadyEndedError as EndedError
from .journal.answers import Answer, Signature, answer_item
from .journal.inbox import read_answer
from .journal.links import Grant, Links, digest_of
from .journal.questions import describe_approvals, words
from .journal.turn_journal import JournalFold
from .runtime.engine import Engine
from .transcript.interrupt import Interrupt

ASGIApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Mapping[str, Any]], Awaitable[None]]],
    Awaitable[None],
]
#: An engine of any dependencies: links need none.
AnyEngine = Engine[None]

#: Bytes of the body of a callback, at most.
MOST_BYTES: Final = 512 * 1024
#: How much of a body is read that is too large, as a multiple of the limit.
_DROPPED: Final = 4
_LOG: Final = logging.getLogger(__name__)
_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-robots-tag", b"noindex"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
)
_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>body{{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0"
    " 1rem}}pre{{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid;padding:1rem}}button{{font:inherit;"
    "padding:.5rem 1.5rem}}</style><h1>{title}</h1>{body}</html>\n"
)
_NOT_FOUND: Final = "This link is not valid."
_EXPIRED: Final = "The question has expired."
_VERBS: Final = {
    Decision.APPROVE: "Approve",
    Decision.REJECT: "Reject",
    Decision.RERUN: "Run it again",
    Decision.UNKNOWN: "Report the outcome as unknown",
    Decision.GO_ON: "Go on",
    Decision.ALWAYS: "Go on, and do not ask again for this",
    Decision.STOP: "Stop",
}


class Response(NamedTuple):
    """An answer to a request."""

    status: HTTPStatus
    kind: str
    body: str
    allow: str = ""


class _RefusedRequestError(PicklableError, Exception):
    """A request that is refused, with the reason in words, and details."""

    def __init__(self, status: HTTPStatus, why: str, details: str = "", *, allow: str = "") -> None:
        super().__init__(why)
        self.status, self.details, self.allow = status, details, allow


def answer_app(engine: Engine[DepsT]) -> ASGIApp:
    """Return the ASGI application for the links and callbacks of an engine.

    A link shows its question (`GET`), and a button answers it (`POST`). A callback takes JSON (`POST`): `result`,
    `error`, or `progress` with `total` and `message`. The engine's workers drive the turns. Raises `ConfigError` for an
    engine without `links`.
    """
    links = engine.setup.links
    if links is None:
        raise ConfigError("answer_app: give the engine links=Links(base, keys=[...])")

    async def app(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        response = await _respond(cast("AnyEngine", engine), links, scope, receive)
        body = response.body.encode(errors="replace")
        headers = [(b"content-type", response.kind.encode()), (b"content-length", b"%d" % len(body)), *_HEADERS]
        headers += [(b"allow", response.allow.encode())] if response.allow else []
        await send({"type": "http.response.start", "status": int(response.status), "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return app


async def _live(receive: Callable[[], Awaitable[Any]], send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _respond(
    engine: AnyEngine, links: Links, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]]
) -> Response:
    """Answer a request. A forged token, and one for a turn that is gone, get the same answer."""
    grant = links.read(str(scope["path"]).rpartition("/")[2])
    say = _data if grant is not None and grant.purpose == "settle" else _page
    try:
        fold = await _read_turn(engine, grant, scope["method"])
        if fold is None or grant is None:
            return _page(HTTPStatus.NOT_FOUND, _NOT_FOUND)
        if grant.purpose == "settle":
            return _data(HTTPStatus.OK, stored=await _settle(engine, grant, await _read_body(scope, receive)))
        return await _answer(engine, grant, fold, is_post=scope["method"] == "POST")
    except _RefusedRequestError as error:
        return say(error.status, str(error), error.details)._replace(allow=error.allow)
    except StoreError:
        _LOG.exception("an answer by a link could not be stored")
        return say(HTTPStatus.SERVICE_UNAVAILABLE, "The answer could not be stored. Try again.")


async def _read_turn(engine: AnyEngine, grant: Grant | None, method: str) -> JournalFold | None:
    """Return the journal of the turn of a token, or None if there is none. Raises `_RefusedRequestError`."""
    try:
        fold = None if grant is None else await JournalFold.read(engine.store, grant.turn, keep_facts=True)
    except TurnNotFoundError:
        return None
    if fold is None or grant is None or fold.transcript.started_at != grant.started_at:
        return None
    methods = ("GET", "HEAD", "POST") if grant.purpose == "answer" else ("POST",)
    if method not in methods:
        why = "This address takes another method."
        raise _RefusedRequestError(HTTPStatus.METHOD_NOT_ALLOWED, why, allow=", ".join(methods))
    if grant.expires_at <= engine.setup.now():
        raise _RefusedRequestError(HTTPStatus.GONE, "This link has expired.")
    return fold


async def _answer(engine: AnyEngine, grant: Grant, fold: JournalFold, *, is_post: bool) -> Response:
    """Show the question of a link, or store its answer."""
    transcript, decision = fold.transcript, Decision(grant.decision)
    interrupts = Interrupt.all_of(grant.turn, fold.machine.turn, transcript.started_at, transcript.asked_at)
    interrupt = next((question for question in interrupts if question.id == grant.subject), None)
    is_shown = interrupt is not None and digest_of(interrupt) == grant.digest
    if interrupt is None or not is_shown or (interrupt.is_shared and grant.by in interrupt.approved_by):
        decisions = _decisions_in(fold, grant)
        if interrupt is not None and not is_shown and not decisions:
            raise _RefusedRequestError(HTTPStatus.NOT_FOUND, _NOT_FOUND)
    else:
        if interrupt.expires_at is not None and interrupt.expires_at <= engine.setup.now():
            raise _RefusedRequestError(HTTPStatus.GONE, _EXPIRED)
        signature = Signature(by=grant.by)
        item = answer_item(grant.turn, interrupt.id, Answer(decision), signature, shared=interrupt.is_shared)
        inbox = await engine.store.inbox(grant.turn)
        decisions = [read_answer(waiting).get("decision") for waiting in inbox if waiting.id == item.id]
    if decisions:
        if decision not in decisions:
            raise _RefusedRequestError(HTTPStatus.CONFLICT, "Another answer came first.")
        return _page(HTTPStatus.OK, "Already answered.")
    if interrupt is None:
        raise _RefusedRequestError(HTTPStatus.CONFLICT, "The question is closed.")
    if is_post:
        await _store_answer(engine, grant, decision)
        return _page(HTTPStatus.OK, "Thank you: your answer is stored.")
    return _question(interrupt, decision, grant.by)


async def _store_answer(engine: AnyEngine, grant: Grant, decision: Decision) -> None:
    """Store the answer of a link. Raises `_RefusedRequestError`."""
    try:
        await engine.answer(grant.turn, {grant.subject: Answer(decision)}, by=grant.by, via="link")
    except InvalidAnswerError as error:
        status, why = HTTPStatus.CONFLICT, "This answer is not accepted."
        if error.is_refused:
            status, why = HTTPStatus.FORBIDDEN, "You may not answer this."
        raise _RefusedRequestError(status, why, str(error)) from error
    except EndedError as error:
        raise _RefusedRequestError(HTTPStatus.CONFLICT, "The turn has ended.") from error


def _decisions_in(fold: JournalFold, grant: Grant) -> list[object]:
    """Return the decisions in the journal about the interrupt of a link: of several people, those of its own."""
    answers = [fact for _, fact in fold.facts if isinstance(fact, Answered) and fact.interrupt == grant.subject]
    if any(fact.via == "expiry" for fact in answers):
        raise _RefusedRequestError(HTTPStatus.GONE, _EXPIRED)
    own_answers = [fact for fact in answers if fact.by == grant.by]
    return [fact.decision for fact in own_answers or answers]


async def _settle(engine: AnyEngine, grant: Grant, body: Mapping[str, JsonValue]) -> bool:
    """Store what a callback brings: the result of its call, the error, or the progress. Return whether it is new.

    Raises `_RefusedRequestError`.
    """
    try:
        if "progress" in body:
            report = cast("dict[str, Any]", {"total": None, "message": "", **body})
            await engine.progress(grant.subject, report["progress"], report["total"], report["message"])
            return True
        if "error" in body:
            return await engine.settle(grant.subject, error=str(body["error"]), via="callback")
        return await engine.settle(grant.subject, body["result"], via="callback")
    except ConfigError as error:
        raise _RefusedRequestError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
    except InvalidAnswerError as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY if error.is_unfit else HTTPStatus.CONFLICT
        raise _RefusedRequestError(HTTPStatus.FORBIDDEN if error.is_refused else status, str(error)) from error
    except (AlreadySettledError, EndedError) as error:
        raise _RefusedRequestError(HTTPStatus.CONFLICT, str(error)) from error


async def _read_body(scope: Mapping[str, Any], receive: Callable[[], Awaitable[Any]]) -> Mapping[str, JsonValue]:
    """Return the JSON object of a callback. Raises `_RefusedRequestError`."""
    too_large = _RefusedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MOST_BYTES:,} bytes")
    lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    is_too_large = any(
        not length.isdigit() or len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES for length in lengths
    )
    body, size, has_more = b"", 0, True
    # Some clients read no refusal before they have sent the body: its rest is read and dropped.
    while has_more and size <= _DROPPED * MOST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _RefusedRequestError(HTTPStatus.BAD_REQUEST, "the request was not complete")
        piece, has_more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        is_too_large = is_too_large or size > MOST_BYTES
        body = b"" if is_too_large else body + piece
    if is_too_large:
        raise too_large
    return _parse(body)


def _parse(body: bytes) -> Mapping[str, JsonValue]:
    """Return the JSON object of a callback. Raises `_RefusedRequestError`."""
    try:
        fields = strict_json(body)
    except (ValueError, RecursionError) as error:
        why = explain_json_error(error)
        raise _RefusedRequestError(HTTPStatus.UNPROCESSABLE_ENTITY, f"the body is not JSON: {why}") from None
    keys = set(fields) if isinstance(fields, dict) else set()
    if not isinstance(fields, dict) or len(keys & {"result", "error", "progress"}) != 1:
        form = 'the body must be {"result": ...}, {"error": "..."} or {"progress": 0.5}'
        raise _RefusedRequestError(HTTPStatus.UNPROCESSABLE_ENTITY, form)
    extra = sorted(keys - {"result", "error", "progress"} - ({"total", "message"} if "progress" in keys else set()))
    if extra:
        why = f"{extra[0]!r:.80} is not a field of a callback"
        raise _RefusedRequestError(HTTPStatus.UNPROCESSABLE_ENTITY, why)
    if "error" in fields and not isinstance(fields["error"], str):
        raise _RefusedRequestError(HTTPStatus.UNPROCESSABLE_ENTITY, "error must be text")
    return fields


def _question(interrupt: Interrupt, decision: Decision, by: str) -> Response:
    """Return the page with the question and the button."""
    approvals = f"<p>Approved by {escape(describe_approvals(interrupt))}.</p>" if interrupt.is_shared else ""
    person = f"<p>You answer as {escape(by)}.</p>" if by else ""
    form = f'<form method="post"><button>{_VERBS.get(decision, str(decision))}</button></form>'
    body = f"<pre>{escape(words(interrupt, choices=False))}</pre>{approvals}{person}{form}"
    return Response(HTTPStatus.OK, _HTML, _PAGE.format(title="Your answer is needed", body=body))


def _page(status: HTTPStatus, text: str, details: str = "") -> Response:
    body = f"<p>{escape(details)}</p>" if details else ""
    return Response(status, _HTML, _PAGE.format(title=escape(text), body=body))


def _data(status: HTTPStatus, error: str = "", _: str = "", *, stored: bool | None = None) -> Response:
    fields = {"error": error} if stored is None else {"stored": stored}
    return Response(status, _JSON, f"{json.dumps(fields)}\n")


__all__ = ["ASGIApp", "answer_app"]
