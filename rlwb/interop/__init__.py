"""Other libraries on rlwb's environments, and rlwb's trainer on theirs.

Importing this package registers ``rlwb/OrderExecution-v0`` with gymnasium: after it, or with
``gymnasium.make("rlwb.interop:rlwb/OrderExecution-v0")``, the environment is made by its name.
"""

from rlwb.interop.ids import ORDER_EXECUTION, register_ids

register_ids()

__all__ = ["ORDER_EXECUTION"]
