"""Trackers: writers of a run's figures, configuration and files for TensorBoard, MLflow and others."""
