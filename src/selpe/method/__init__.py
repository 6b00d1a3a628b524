"""The paper: Algorithm 1 and its parts, and nothing else. README.md maps every equation to its function."""
