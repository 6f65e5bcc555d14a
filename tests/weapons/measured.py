"""The command, which at its end writes how much memory it had at most: `measured.py FILE WORD...`.

The kernel's count for a child that was waited for begins with the memory of whoever started it; the one in
/proc begins with the program.
"""

import atexit
import re
import sys
from pathlib import Path

from bisect_agent.cli import main

sys.argv = sys.argv[1:]
PEAK = Path(sys.argv[0])


@atexit.register
def note() -> None:
    """The high-water mark of this process, in kB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    PEAK.write_text(re.findall(r"VmHWM:\s+(\d+) kB", status)[0], encoding="ascii")


main()
