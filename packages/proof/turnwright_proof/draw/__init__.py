"""Drawings of the chart: Mermaid, DOT, SVG and Markdown."""

from .dot import to_dot
from .files import stale, write
from .mermaid import to_mermaid
from .model import Arrow, FoldedRows, Node, NodeKind, Picture, TextLine, extract, fold_common_rows
from .overlay import Overlay, OverlayKind, coverage_overlay, turn_overlay
from .overview import Overview, extract_overview
from .overview_svg import overview_to_svg
from .row_counts_file import read_row_counts
from .svg import to_svg
from .table import overview_to_table, to_page, to_table

__all__ = [
    "Arrow",
    "FoldedRows",
    "Node",
    "NodeKind",
    "Overlay",
    "OverlayKind",
    "Overview",
    "Picture",
    "TextLine",
    "coverage_overlay",
    "extract",
    "extract_overview",
    "fold_common_rows",
    "overview_to_svg",
    "overview_to_table",
    "read_row_counts",
    "stale",
    "to_dot",
    "to_mermaid",
    "to_page",
    "to_svg",
    "to_table",
    "turn_overlay",
    "write",
]
