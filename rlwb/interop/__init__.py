"""Bridges to Gymnasium and to other libraries: their environments, their trainers, their policies."""
