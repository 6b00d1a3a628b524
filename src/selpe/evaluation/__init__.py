"""Judging synthetic records: validity of raw model output, fidelity, utility and privacy attacks.

Each part stands by itself and gives plain data. `selpe.evaluate(run, test=…)` does all of it (report/evaluate.py).
"""
