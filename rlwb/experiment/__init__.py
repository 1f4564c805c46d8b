"""Experiments: configuration, run directories, stages, the notebook pipeline, the report."""
