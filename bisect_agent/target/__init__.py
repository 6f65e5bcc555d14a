"""The one file put on the target, and the controller's side of it."""
