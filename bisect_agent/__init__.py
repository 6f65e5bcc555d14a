"""An automated diagnostic bisection agent for LLM inference stacks."""
