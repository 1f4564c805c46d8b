"""Jobs that run inside another package, in an environment that has both it and rlwb."""
