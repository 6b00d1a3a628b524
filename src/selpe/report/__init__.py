"""Reports for people: first plain data (summarize.py), then one self-contained HTML page (render.py)."""
