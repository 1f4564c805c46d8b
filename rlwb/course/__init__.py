"""The course: twelve notebooks with graded exercises, copied for students and graded with Otter."""

from rlwb.course.exercises import Case, Exercises, case, close, load_cases, outcome
from rlwb.course.lab import Lab
from rlwb.course.market import small_market

__all__ = ["Case", "Exercises", "Lab", "case", "close", "load_cases", "outcome", "small_market"]
