"""The methods that SelPE is compared with, on the same interface (run/methods.py).

| name | method | needs |
|---|---|---|
| `augpe` | private evolution of texts by histogram votes | |
| `wasp` | contrastive prompts from near and far votes, several models | |
| `ctcl` | topic histogram, and a small generator trained with DP-SGD | extra `[train]` |
| `dpgen` | a language model trained with DP-SGD | extra `[train]` |
| `dpds` | a classifier trained with DP-SGD; releases no records | extra `[train]` |
| `aim`, `mst` | noisy marginals of structured fields, and a graphical model | extra `[marginals]` |
| `prior` | the model alone: reads no private row | |

Each has a module here with a `RECIPE`; config/methods.py lists them.
"""
