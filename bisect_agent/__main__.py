"""`python -m bisect_agent`."""

from bisect_agent.cli import main

main()
