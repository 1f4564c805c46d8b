"""Serving: a trained policy as a bundle of files, in a process of one's own, and behind HTTP."""
