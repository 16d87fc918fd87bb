"""Drawings of the chart: Mermaid, DOT, SVG and Markdown."""

from .dot import to_dot
from .files import stale, write
from .mermaid import to_mermaid
from .model import Arrow, FoldedRows, Node, NodeKind, Picture, TextLine, extract, main_way
from .overlay import Overlay, OverlayKind, coverage_overlay
from .recorded import turn_overlay
from .rows import RowCounts
from .svg import to_svg
from .table import to_page, to_table

__all__ = [
    "Arrow",
    "FoldedRows",
    "Node",
    "NodeKind",
    "Overlay",
    "OverlayKind",
    "Picture",
    "RowCounts",
    "TextLine",
    "coverage_overlay",
    "extract",
    "main_way",
    "stale",
    "to_dot",
    "to_mermaid",
    "to_page",
    "to_svg",
    "to_table",
    "turn_overlay",
    "write",
]
