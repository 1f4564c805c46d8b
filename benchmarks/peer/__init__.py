"""The peer's side; runs in the peer's environment and imports nothing of rlwb."""
