"""Bars that were imported once: partitioned Parquet by instrument and month, and what is known of its sources.

`importing.import_bars` writes a data set, `reading.Selection` reads it, `state.State` says what was imported and
`conflicts.read_conflicts` which bars contradict each other.
"""
