"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A shared machine makes any example slow now and then; how long a test may take is pytest-timeout's to say.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
