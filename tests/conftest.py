"""What holds for every test, and what all may use: golden files, and a way to write them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A shared machine makes any example slow now and then; how long a test may take is for pytest-timeout to say.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")

GOLDEN = Path(__file__).parent / "golden"

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update`; whoever uses it reads the difference."""
    parser.addoption("--update", action="store_true", help="write the golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with a file of `tests/golden`: `golden("verdict.md", text)`."""

    def compare(name: str, found: str) -> None:
        if request.config.getoption("--update"):
            (GOLDEN / name).write_text(found, encoding="utf-8")
        assert (GOLDEN / name).read_text(encoding="utf-8") == found

    return compare
