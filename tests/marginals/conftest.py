"""These tests need the extra [marginals]; `make test-marginals` runs them. Elsewhere they are not collected at all."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("mbi") else ["test_*.py"]
