"""Releases of any size: what private choices do not need is written chunk by chunk, kept in parts, and forgotten.

Above `core` records a run chooses on a core of that size (rounds, guides, candidate releases), and writes the others
as the core's released records were written: with their guides and their exemplars, and fresh seeds. That looks at no
private row, so it costs no ε. Memory holds one chunk, and 8 bytes for every record; resuming reads the list of parts.

| module | what |
|---|---|
| `composition` | how the released records of the core were asked for, and how further ones are |
| `known` | which records there are already, by 64-bit hashes |
| `parts` | finished chunks on disk: Parquet files and their journal |
| `answers` | the answers of the chunk that is being written |
| `further` | the loop over the chunks |
| `whole` | core and parts as one release, in its order |
"""
