"""The private room: the only place where private rows are held, and the only step that looks at them.

`PROOF.md` beside this file is the argument; each of its steps names the test that checks it.
"""
