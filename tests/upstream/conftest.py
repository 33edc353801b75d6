"""The same site as the launcher's tests have."""

from tests.run.conftest import site

__all__ = ["site"]
