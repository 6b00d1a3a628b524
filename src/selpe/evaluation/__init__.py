"""Evaluation of synthetic records: validity of raw model output, fidelity, utility and privacy attacks.

Each part can be used alone and gives plain data. `selpe.evaluate(run, test=…)` does all of it (report/evaluate.py).
"""
