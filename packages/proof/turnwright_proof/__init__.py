"""Shows that a turn ends: the walk, the lint, SMT, drawings of the chart, and certificates of agents."""

from .certificates.certificate import Certificate, certificate
from .certificates.explain import explain

__all__ = ["Certificate", "certificate", "explain"]
