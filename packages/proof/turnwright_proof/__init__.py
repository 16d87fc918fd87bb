"""Shows that a turn ends: the walk, the lint, SMT, drawings of the chart, and certificates of agents."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# A certificate needs the engine, and the commands that draw or verify the chart do not.
if TYPE_CHECKING:
    from .certificates.certificate import Certificate, certificate
    from .certificates.explain import explain
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "Certificate": ".certificates.certificate",
            "certificate": ".certificates.certificate",
            "explain": ".certificates.explain",
        },
    )

__all__ = ["Certificate", "certificate", "explain"]
