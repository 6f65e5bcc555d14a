"""A stand-in with the name, the command line and the log of a stack, for tests of its profile."""
