"""The build of the site, where mkdocs.yml is not enough.

**Files of the repository.** Pages link to files outside docs/ as on a code host (`../examples/own_loop.py`). Each
linked file becomes a page below `repository/`: Markdown as a page, other files as their text. Their links follow.

**Pictures.** A code host draws Mermaid blocks. The site would need a script from another server, so a drawing replaces
each block.

**Commands.** The page about the command line gets the help of each command.

**Search.** Tutorials and guides rank above the reference, and decisions below. Files of the repository are left out.

**For programs.** Each page is also written as Markdown, for `llms.txt`. `llms-full.txt` holds all pages.

**Other servers.** The build fails if a page loads anything from one.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from reference_cli import commands_as_markdown

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
#: Where files of the repository have their pages.
FOLDER: Final = "repository"
MEDIA: Final = frozenset({".svg", ".png"})
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".md": "markdown", ".json": "json", ".yml": "yaml"}
#: What takes the place of a page's Mermaid blocks, in their order.
DRAWN: Final = {
    "diagrams/turn.md": (
        "[![The review drawing](turn.svg)](turn.svg)",
        "[![The full chart](turn-full.svg)](turn-full.svg)",
    ),
    "docs/first-turn.md": ("![The way of the first turn](assets/first-turn.svg)",),
}

#: The place for the help of the commands in docs/cli.md.
COMMANDS: Final = "<!-- commands: the site shows the help of each one here -->"

#: The pages whose Mermaid blocks stay texts: their pictures are for code hosts.
UNDRAWN: Final = ROOT / "examples" / "agents"

#: How search ranks the pages below a path: the first that fits. None leaves the pages out.
RANKS: Final[tuple[tuple[str, float | None], ...]] = (
    ("decisions/", 0.1),
    ("repository/CHANGELOG.md", 0.1),
    ("repository/CONTRIBUTING.md", 1),
    ("repository/SECURITY.md", 1),
    (f"{FOLDER}/", None),
    ("tutorials/", 4),
    ("from-a-loop.md", 4),
    ("how-to/", 4),
    ("api/", 0.1),
    ("cli.md", 0.3),
)

_FENCE: Final = re.compile(r"^ *(`{3,}|~{3,})")
_LINK: Final = re.compile(r"(?<=\]\()([^)\s]+)(?=[)\s])")
_MERMAID: Final = re.compile(r"^```mermaid\n.*?^```\n", re.DOTALL | re.MULTILINE)
_COMMENT: Final = re.compile(r"^<!--.*?-->\n?", re.DOTALL | re.MULTILINE)
_LOADED: Final = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*\brel=[\"']?"
    r"(?:stylesheet|preconnect|preload|icon)[^>]*\bhref=[\"']?(?:https?:)?//"
)

#: The texts of this build's pages, by their path in the site, as Markdown.
_texts: dict[str, str] = {}
#: The pages in the order of the navigation.
_order: list[str] = []


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Link to the repository that builds the site, if the build names it."""
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and repository and not config.repo_url:
        config.repo_url, config.repo_name = f"{server}/{repository}", repository
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that the pages link to, and their links in turn."""
    _texts.clear()
    _order.clear()
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    waiting += [ROOT / uri.removeprefix(f"{FOLDER}/") for uri in _uris(config.nav) if uri.startswith(f"{FOLDER}/")]
    linked_paths = set(waiting)
    for path in waiting:
        if path.is_dir() or (path.suffix == ".md" and path.is_file()):
            new_paths = {target for target, _ in _targets(path, _text_of(path)) if target not in linked_paths}
            linked_paths |= new_paths
            waiting += sorted(new_paths)
    for path in sorted(linked_paths):
        if not path.is_relative_to(DOCS) and path.exists():
            media = path.suffix in MEDIA
            source = {"abs_src_path": str(path)} if media else {"content": _text_of(path)}
            files.append(File.generated(config, _uri(path), **source))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 (so it is called)
    """Lead the links to where things are in the site."""
    path = _path(page.file.src_uri)
    rank = next((rank for below, rank in RANKS if page.file.src_uri.startswith(below)), 1)
    page.meta.setdefault("search", {"exclude": True} if rank is None else {"boost": rank})
    if page.file.src_uri == "cli.md":
        if COMMANDS not in markdown:
            raise PluginError(f"cli.md needs a place for the commands: {COMMANDS}")
        markdown = markdown.replace(COMMANDS, commands_as_markdown())
    markdown = _outside_fences(markdown, lambda text: _COMMENT.sub("", text))
    pictures = DRAWN.get(str(path.relative_to(ROOT)), ())
    if path.is_relative_to(UNDRAWN):
        pictures = tuple(block.replace("```mermaid", "```text") for block in _MERMAID.findall(markdown))
    if len(_MERMAID.findall(markdown)) > len(pictures) and not _is_source(path):
        raise PluginError(f"{page.file.src_uri}: a Mermaid block needs a drawing in {Path(__file__).name}")
    following = iter(pictures)
    markdown = _MERMAID.sub(lambda _: f"{next(following, '')}\n", markdown)

    def lead(match: re.Match[str]) -> str:
        target, anchor = _target(path, match[1])
        if target is None or not target.exists():
            return match[1]
        uri = _uri(target)
        return posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".") + anchor

    if not _is_source(path):
        markdown = _outside_fences(markdown, lambda text: _LINK.sub(lead, text))
    _texts[page.file.src_uri] = markdown
    return markdown


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 (so it is called)
    """Name the theme's search dialog, and keep the theme from asking the repository's server for its stars."""
    output = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    return output.replace(' data-md-component="source"', "")


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:  # noqa: ARG001 (so it is called)
    """Keep the order of the pages."""
    _order.extend(page.file.src_uri for page in nav.pages)
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write the files for programs, and report files that are loaded from elsewhere."""
    site = Path(config.site_dir)
    for uri, text in _texts.items():
        (site / uri).parent.mkdir(parents=True, exist_ok=True)
        (site / uri).write_text(text, encoding="utf-8")
    full = [_texts[uri] for uri in _order if not uri.startswith("api/")]
    (site / "llms-full.txt").write_text("\n\n".join(text.strip() for text in full) + "\n", encoding="utf-8")
    llms = site / "llms.txt"
    if llms.is_file():
        llms.write_text(llms.read_text(encoding="utf-8").replace("](../", f"]({FOLDER}/"), encoding="utf-8")
    loaded = [str(page.relative_to(site)) for page in site.rglob("*.html") if _LOADED.search(page.read_text("utf-8"))]
    if loaded:
        raise PluginError(f"these pages load something from another server: {', '.join(sorted(loaded))}")


def _uris(nav: Any) -> Iterator[str]:  # noqa: ANN401 (what YAML holds)
    if isinstance(nav, str):
        yield nav
    elif nav:
        for below in nav.values() if isinstance(nav, dict) else nav:
            yield from _uris(below)


def _uri(path: Path) -> str:
    """Return the place of a repository's file in the site's sources."""
    if path.is_relative_to(DOCS):
        return str(path.relative_to(DOCS))
    own = path.suffix in MEDIA or path.suffix == ".md"
    return f"{FOLDER}/{path.relative_to(ROOT)}" + ("" if own else "/index.md" if path.is_dir() else ".md")


def _path(uri: str) -> Path:
    """The file of the repository that a page of the site is made from."""
    if not uri.startswith(f"{FOLDER}/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix(f"{FOLDER}/")
    return path if path.is_file() else path.parent if path.name == "index.md" else path.with_suffix("")


def _is_source(path: Path) -> bool:
    """Whether a file is shown as source: code, and agents in Markdown, because of their front matter."""
    outside = path.is_file() and not path.is_relative_to(DOCS)
    return outside and (path.suffix != ".md" or "\n---\n" in path.read_text(encoding="utf-8"))


def _text_of(path: Path) -> str:
    """The Markdown of a file's page."""
    name = path.relative_to(ROOT)
    if path.is_dir():
        lines = [f"- [`{file.name}`]({file.name})" for file in sorted(path.iterdir()) if _listed(file)]
        return f"# `{name}`\n\nA folder of the repository.\n\n" + "\n".join(lines) + "\n"
    text = path.read_text(encoding="utf-8")
    if not _is_source(path):
        return text
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"# `{name}`\n\nA file of the repository.\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"


def _listed(path: Path) -> bool:
    return path.suffix in LANGUAGES and not path.name.startswith((".", "_"))


def _targets(path: Path, text: str) -> Iterator[tuple[Path, str]]:
    """The files that a page links to, each with the anchor."""
    targets: list[tuple[Path, str]] = []

    def keep(text: str) -> str:
        for link in _LINK.findall(text):
            target, anchor = _target(path, link)
            if target is not None:
                targets.append((target, anchor))
        return text

    if not _is_source(path):
        _outside_fences(text, keep)
    return iter(targets)


def _target(path: Path, link: str) -> tuple[Path | None, str]:
    """The file of the repository that a link means, and its anchor; None for an address, or a place on the page."""
    name, hash_sign, anchor = link.partition("#")
    if not name or re.match(r"[a-z]+:", name):
        return None, ""
    target = Path(posixpath.normpath(posixpath.join(path if path.is_dir() else path.parent, name)))
    if not target.is_relative_to(ROOT):
        return None, ""
    if target.is_dir() and (target / "README.md").is_file():
        target /= "README.md"
    return target, hash_sign + anchor


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Return the text with all but its code blocks changed, block by block."""
    parts: list[list[str]] = [[]]
    fence = ""
    for line in text.splitlines(keepends=True):
        opened = _FENCE.match(line)
        if fence:
            parts[-1].append(line)
            if opened and opened[1].startswith(fence) and not line.strip().strip("`~"):
                fence = ""
                parts.append([])
        elif opened:
            fence = opened[1]
            parts.append([line])
        else:
            parts[-1].append(line)
    return "".join("".join(part) if part and _FENCE.match(part[0]) else change("".join(part)) for part in parts)
