"""Many runs: sweeps over seeds and settings, searches, and tables across runs."""
