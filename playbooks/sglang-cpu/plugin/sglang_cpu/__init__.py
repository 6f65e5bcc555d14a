"""The parts of the plug-in: what is done to which module of the server's environment."""
