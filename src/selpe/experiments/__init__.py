"""The paper's experiments, each one command: data loaders, a grid of cells, tables, charts.

`loaders/` turns files as their publishers ship them into table, schema and splits. `designs.py` says which cells an
experiment has, `conduct.py` does them and keeps each by the hash of its settings, `tables.py` and `charts.py` show what
came of it beside the figures that the paper prints (`paper.py`).
"""
