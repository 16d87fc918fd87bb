"""Drawings of the chart: Mermaid, DOT, SVG and Markdown, extracted from the chart alone."""

from .dot import to_dot
from .files import stale, write
from .mermaid import to_mermaid
from .model import Arrow, Kind, Line, Node, Picture, extract
from .svg import to_svg
from .table import to_page, to_table

__all__ = [
    "Arrow",
    "Kind",
    "Line",
    "Node",
    "Picture",
    "extract",
    "stale",
    "to_dot",
    "to_mermaid",
    "to_page",
    "to_svg",
    "to_table",
    "write",
]
