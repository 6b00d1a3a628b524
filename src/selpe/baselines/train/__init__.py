"""Training with DP-SGD, for the baselines that tune a model (extra `[train]`).

| module | what it does |
|---|---|
| `weights` | models from GGUF files, folders and the hub, with LoRA adapters or whole |
| `learner` | per-record gradients and Adam on what the private table lets out; checkpoints |
| `texts`, `causal` | records as text, and the loss of a language model on them |
| `classify` | a classifier on records, its loss, and its predictions |
| `course` | a training in stretches, each charged, saved and never drawn twice |
| `tuned` | texts from a tuned model |

No module here imports torch before it is used.
"""
