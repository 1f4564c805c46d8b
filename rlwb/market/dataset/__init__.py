"""Bars that were imported once: sorted Parquet files, and what is known of their sources.

`importing.import_bars` writes a data set, `stored.Stored` reads it, `state.State` says what was imported and
`state.read_conflicts` which bars contradict each other.
"""
