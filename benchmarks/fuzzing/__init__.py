"""A coverage-guided fuzzer of the readers: seeds, mutations, slow plain readers to compare with, and the loop."""
