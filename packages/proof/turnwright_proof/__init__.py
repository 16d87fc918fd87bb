"""Shows that a turn ends: the walk, the lint, SMT, drawings of the chart, and certificates of agents."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# A certificate needs the engine, and the commands that draw or verify the chart do not.
if TYPE_CHECKING:
    from .certificates.certificate import Certificate, certificate
    from .certificates.explain import explain
    from .verify.rule_findings import RuleFinding, check_rules
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".certificates.certificate": "Certificate certificate",
            ".certificates.explain": "explain",
            ".verify.rule_findings": "RuleFinding check_rules",
        },
    )

__all__ = ["Certificate", "RuleFinding", "certificate", "check_rules", "explain"]
