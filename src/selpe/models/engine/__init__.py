"""The embedded engine: OpenVINO with paged attention, a batching loop of ours, and LLGuidance grammars."""
