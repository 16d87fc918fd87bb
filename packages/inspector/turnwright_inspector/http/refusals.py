"""The pages of requests that are not let in, or that fail.

Such a page has no other file, because the browser would not receive it, and no template, which may be what failed. Its
style is in it, and its policy allows that style alone.
"""

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Final

from starlette.responses import HTMLResponse

from turnwright.errors import ConfigError, StoreError

_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{margin:0;font:16px/1.5 system-ui,sans-serif;color:light-dark(#161b26,#e7eaf0);"
    "background:light-dark(#f6f7f9,#0b0e13)}"
    "main{max-width:30rem;margin:12vh auto 0;padding:0 1.25rem}"
    "svg{display:block;width:2.5rem;height:2.5rem;margin-bottom:1rem}"
    "h1{margin:0 0 .5rem;font-size:1.4rem}p{margin:0 0 1rem;color:light-dark(#475063,#b3bbc9)}"
    "form{display:grid;grid-template-columns:1fr auto;gap:.35rem .5rem;margin-bottom:1.5rem}"
    "label{grid-column:1/-1;font-weight:600}"
    "input,button{min-width:0;min-height:2.5rem;padding:0 .75rem;font:inherit;border-radius:6px;"
    "border:1px solid light-dark(#7b8595,#66728a)}"
    "input{color:inherit;background:light-dark(#fff,#12161d)}"
    "button{color:#fff;background:#4f46e5;border-color:#4f46e5;cursor:pointer}"
    ":focus-visible{outline:2px solid light-dark(#4f46e5,#98a6ff);outline-offset:2px}"
    "[role=alert]{color:light-dark(#a81d17,#ff9a92)}code{font-size:.9em;overflow-wrap:anywhere}"
)
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_MARK: Final = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><rect width="24" height="24" rx="6" fill="#4f46e5"/>'
    '<path d="M17 12a5 5 0 1 1-2-4m0-3v3h-3" fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round"/></svg>'
)
_UNAUTHORIZED: Final = 401
#: Errors of a store that cannot be read, or that another release has migrated.
UNREADABLE: Final = (StoreError, ConfigError)


def refusal(status: int, title: str, text: str, *, head: str = "", form: str = "") -> HTMLResponse:
    """Return a page. `text`, `head` and `form` are HTML."""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{head}'
        f"<title>{title} · Turnwright</title><style>{_STYLE}</style></head>"
        f"<body><main>{_MARK}<h1>{title}</h1>{form}<p>{text}</p></main></body></html>"
    )
    headers = {"Content-Security-Policy": _POLICY}
    return HTMLResponse(page, status, headers | ({"WWW-Authenticate": "Bearer"} if status == _UNAUTHORIZED else {}))


def failure() -> HTMLResponse:
    """Return the page of a request that ended in an error of the inspector. The error is for the log alone."""
    return refusal(
        500,
        "The inspector failed",
        "This is an error of the inspector, not of a turn: turns go on. Load the page again. If it fails again, the"
        " terminal or the log of the server says why: please report that.",
    )


def token_required(address: str, *, linked: bool, wrong: bool) -> HTMLResponse:
    """Return the page that asks for the token, and sends it to `address`. `wrong`: another token was given.

    A browser keeps a strict cookie back when another site's link brought it here (`linked`): loading the page again
    brings the cookie.
    """
    trouble = '<p role="alert">That is not the token of this inspector.</p>' if wrong else ""
    return refusal(
        _UNAUTHORIZED,
        "Token required",
        "The inspector printed its address when it was started: the address ends in <code>/?token=...</code>, and the"
        " token is what follows. A program sends the header <code>Authorization: Bearer TOKEN</code>.",
        head='<meta http-equiv="refresh" content="0">' if linked else "",
        form=f'{trouble}<form method="post" action="{escape(address)}"><label for="token">Token</label>'
        '<input id="token" name="token" type="password" required autocomplete="current-password">'
        "<button>Open</button></form>",
    )
