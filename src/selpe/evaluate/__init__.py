"""Judging synthetic records: validity of raw model output, fidelity, utility and privacy attacks."""
