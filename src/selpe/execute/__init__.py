"""Records written and public texts encoded on many machines by Ray, opened by `run/session.py`."""
