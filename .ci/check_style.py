"""Check that pages, docstrings, comments, messages and names keep to the style that `.ci/style.toml` describes.

With paths, only those are checked. Without, everything is, and the sizes of README.md and docs/ too.
"""

import ast
import fnmatch
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent
STYLE = tomllib.loads((ROOT / ".ci" / "style.toml").read_text(encoding="utf-8"))
LIMITS = STYLE["pages"]
WORDS = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in STYLE["words"].items()]
NAMES = STYLE["names"]
REFUSED_NAMES, REFUSED_IN_PRODUCTS = (
    [(re.compile(f"_*({pattern})_*"), instead) for pattern, instead in NAMES[kind].items()]
    for kind in ("refused", "refused_in_products")
)
PRODUCTS = ["engine/*", "states/*", "packages/*"]
RIDDLE = re.compile(STYLE["docstrings"]["riddle"])
SOURCES = ("engine", "states", "packages", "examples", "tests", "bench", ".ci")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples", "tests", "bench")
REST = (*SOURCES, *(path.name for path in ROOT.iterdir() if path.suffix in {".toml", ".yml"}), "Makefile", ".github")
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
#: The words in other files, by suffix: comments, strings of TOML, and templates without their code.
_HASH, _SLASHES = r"(?:^|(?<=\s))#[^\n]*", r"/\*.*?\*/|(?:^|(?<=\s))//[^\n]*"
_QUOTED = r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
OTHERS = {
    suffix: re.compile(pattern, re.DOTALL | re.MULTILINE)
    for suffix, pattern in {
        ".js": _SLASHES,
        ".css": _SLASHES,
        ".html": ".+",
        ".toml": f"{_QUOTED}|{_HASH}",
        ".yml": _HASH,
        ".yaml": _HASH,
        "": _HASH,
    }.items()
}
TEMPLATE_CODE = re.compile(r"\{[{%].*?(?:%|\})\}", re.DOTALL)
FENCE = re.compile(r"^\s*(```|~~~)")


def problems_of_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line within `text`, and the complaint, for each word that has a plainer one."""
    plain = CODE_SPAN.sub(_blank, text)
    for pattern, instead in WORDS:
        for match in pattern.finditer(plain):
            yield plain.count("\n", 0, match.start()), f'"{match[0]}": write {instead}'


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def problems_of_source(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the complaints about a Python file's docstrings, messages, comments and names."""
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = dict(docstrings_of(nodes))
    for line, docstring in docstrings.items():
        if RIDDLE.match(docstring.lstrip()):
            yield line, f'a docstring begins with "{docstring.split()[0]}": write an imperative or a noun phrase'
    comments = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    messages = {} if _matches(path, STYLE["texts"]["exempt"]) else dict(messages_of(nodes, docstrings))
    for line, passage in [*docstrings.items(), *comments.items(), *messages.items()]:
        for offset, problem in problems_of_words(passage):
            yield line + offset, problem
    allowed = [name for name, places in NAMES["exceptions"].items() if _matches(path, places)]
    refused = REFUSED_NAMES + (REFUSED_IN_PRODUCTS if _matches(path, PRODUCTS) else [])
    yield from problems_of_names(nodes, allowed, refused)
    yield from problems_of_test_names(nodes)


def problems_of_names(
    nodes: Iterable[ast.AST],
    allowed: Container[str] = (),
    refused: Iterable[tuple[re.Pattern[str], str]] = REFUSED_NAMES,
) -> Iterator[tuple[int, str]]:
    """Yield a complaint for each bound name that is `refused`, since its reader has to guess its meaning.

    Those `allowed` stay.
    """
    for line, name in bound_names(nodes):
        for pattern, instead in refused:
            if pattern.fullmatch(name) and name not in allowed:
                yield line, f'the name "{name}": write {instead}'


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield each variable, parameter, attribute and loop target with its line, each time that code binds it."""
    for node in nodes:
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield node.lineno, name


def problems_of_test_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield a complaint for each test whose name is too long, or has a pronoun in place of its subject."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            if len(node.name) > NAMES["test_characters"]:
                yield node.lineno, f"{node.name} has {len(node.name)} characters; at most {NAMES['test_characters']}"
            for word in sorted(set(node.name.split("_")) & set(NAMES["test_words"])):
                yield node.lineno, f'the test\'s name has "{word}": write test_<subject>_<behavior>, with the noun'


def docstrings_of(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield each docstring with its line, those below attributes too."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for before, statement in pairwise([None, *node.body]):
                match statement:
                    case ast.Expr(ast.Constant(str(text))) if before is None or isinstance(
                        before, ast.Assign | ast.AnnAssign
                    ):
                        yield statement.lineno, text


def messages_of(nodes: Iterable[ast.AST], docstrings: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yield the texts of each line that has some: those with a space, since others are names."""
    texts: dict[int, str] = {}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            texts[node.lineno] = f"{texts.get(node.lineno, '')} {node.value}".replace("\n", " ")
    yield from ((line, text) for line, text in texts.items() if line not in docstrings)


def problems_of_page(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the complaints about a Markdown page: its words, its sentences and its code blocks.

    A picture in Mermaid is not code: nobody reads its lines.
    """
    prose, in_code, is_picture = [], False, False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if fence:
            in_code, is_picture = not in_code, "mermaid" in line
        elif in_code and not is_picture and len(line) > LIMITS["code_columns"]:
            yield number, f"a code block has {len(line)} columns; at most {LIMITS['code_columns']}"
        prose.append("" if fence or in_code else line)
    for offset, problem in problems_of_words("\n".join(prose)):
        yield offset + 1, problem
    yield from problems_of_sentences(prose)


def problems_of_sentences(prose: list[str]) -> Iterator[tuple[int, str]]:
    """Yield a complaint for each sentence that is too long. Tables, lists of links and headings are left out."""
    begin, paragraph = 0, ""
    for number, line in enumerate([*prose, ""], 1):
        if line.strip() and not re.match(r"\s*([|#<!]|- \[)", line):
            if not paragraph or re.match(r"\s*([-*]|\d+\.) ", line):
                yield from _long_sentences(begin, paragraph)
                begin, paragraph = number, ""
            paragraph += f" {line.strip()}"
        else:
            yield from _long_sentences(begin, paragraph)
            paragraph = ""


def _long_sentences(line: int, paragraph: str) -> Iterator[tuple[int, str]]:
    for sentence in re.split(r"(?<=[.!?:;])\s+", paragraph):
        if (count := len(sentence.split())) > LIMITS["sentence_words"]:
            yield line, f"a sentence has {count} words, at most {LIMITS['sentence_words']}: {sentence[:50]}..."


def problems_of_other(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the complaints about the words in a file that is neither Python nor Markdown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        text = TEMPLATE_CODE.sub(_blank, text)
    for match in OTHERS[path.suffix].finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        for offset, problem in problems_of_words(match[0]):
            yield line + offset, problem


def count_words(path: Path) -> int:
    """Return the words of a page as `wc -w` counts them."""
    return len(path.read_text(encoding="utf-8").split())


def is_generated(path: Path) -> bool:
    """Whether the page is made from the code, or by a measurement."""
    return _matches(path, LIMITS["generated"])


def _matches(path: Path, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(shown(path), pattern) for pattern in patterns)


def problems_of_sizes() -> Iterator[str]:
    """Yield the complaints about pages that became too long."""
    if (count := count_words(ROOT / "README.md")) > LIMITS["readme_words"]:
        yield f"README.md: {count} words; at most {LIMITS['readme_words']}"
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "api"]
    if (count := sum(map(count_words, pages))) > LIMITS["docs_words"]:
        yield f"docs: {count} words without docs/api; at most {LIMITS['docs_words']}"
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        if (lines := len(page.read_text(encoding="utf-8").splitlines())) > LIMITS["guide_lines"]:
            yield f"{shown(page)}: {lines} lines; a how-to guide has at most {LIMITS['guide_lines']}"


def shown(path: Path) -> str:
    """Return the path from the repository's root; unchanged if it is elsewhere."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def files(names: list[str], suffix: str) -> Iterator[Path]:
    """Yield the files with `suffix` among `names`, and, if `suffix` is not empty, in the folders among them."""
    for path in (ROOT / name for name in names):
        if path.is_dir():
            yield from sorted(path.rglob(f"*{suffix}")) if suffix else ()
        elif path.suffix == suffix:
            yield path


def main(names: list[str]) -> int:
    """Print each complaint with its place, and return 1 when there is one."""
    problems = [
        f"{shown(path)}:{line}: {problem}"
        for path in files(names or list(SOURCES), ".py")
        for line, problem in problems_of_source(path)
    ]
    problems += [
        f"{shown(path)}:{line}: {problem}"
        for path in files(names or list(PAGES), ".md")
        if not is_generated(path)
        for line, problem in problems_of_page(path)
    ]
    problems += [
        f"{shown(path)}:{line}: {problem}"
        for suffix in OTHERS
        for path in files(names or list(REST), suffix)
        if not _matches(path, STYLE["texts"]["others_exempt"])
        for line, problem in problems_of_other(path)
    ]
    if not names:
        problems += problems_of_sizes()
    print("\n".join(problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
