"""A command line for jobs: python code as its words."""

import sys

if __name__ == "__main__":
    for word in sys.argv[1:]:
        exec(word)
