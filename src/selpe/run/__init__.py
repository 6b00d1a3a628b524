"""A run from its settings to its release: its folder, its plan, its models, its end."""
