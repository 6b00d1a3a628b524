"""The three answers of a verdict: useful, faithful, private; each graded by its figures, with what to do about it."""
