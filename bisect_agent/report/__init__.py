"""What a run looks like to a person: terminal, Markdown, HTML."""
