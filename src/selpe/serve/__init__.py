"""SelPE as a server: tables in, runs on them, releases out, over HTTP with a token.

    <root>/
      token         who may ask (readable by its owner alone), or
      clients.json  the clients of a team, with salted hashes of their tokens and their roles
      audit/        what clients asked for, what was spent and refused, in a sealed log
      tables/       uploaded private tables and their schemas; they leave this folder in no answer
      runs/         run folders, as `selpe run` writes them
      incoming/     uploads on their way

The server itself never parses a table: a child process with limits of its own reads it (`reader.py`), and every run is
a child process too (`worker.py`). Budgets are kept by the one ledger of a table; what accepted runs will still spend is
set aside (`admission.py`), so that submissions cannot overspend together.
"""
