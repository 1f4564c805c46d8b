"""Speed and scale, measured. What is compared with what stands in README.md beside this file."""
