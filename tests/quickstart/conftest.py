"""Lets the tests import the playbook's own modules as `playbooks.quickstart…`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
