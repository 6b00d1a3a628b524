"""A local page, and the same questions in a terminal, by which a person turns a draft into a schema and a run."""
