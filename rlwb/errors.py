"""The errors rlwb raises at its users: one sentence that says what, where and what to do."""


class RlwbError(Exception):
    """Base of every error that a user can cause and a user can mend."""


class DataError(RlwbError):
    """Bars, sessions or features that are not what they must be."""


class OrderError(RlwbError):
    """An order, or a table of orders, that cannot be executed as it stands."""


class ConfigError(RlwbError, ValueError):
    """A parameter with an unknown name, a wrong type or an impossible value."""


class CheckpointError(RlwbError):
    """A checkpoint that is missing, damaged or made for another policy."""


class FileError(RlwbError):
    """A file that rlwb wrote and that is damaged now, or has another shape than it was written in."""


class InterpreterError(RlwbError):
    """A user's interpreter or reward returned something outside its contract."""


class StopRequested(KeyboardInterrupt):
    """The end of work that was asked to stop from elsewhere; as after Ctrl-C, what is done is kept."""


class WorkerError(RlwbError):
    """An environment worker died; the message carries its own traceback."""


class BundleError(RlwbError):
    """A bundle that is damaged, of another version, or answers otherwise than when it was written."""


class ServingError(RlwbError):
    """A request that a policy in service cannot answer: an unknown order, bars that are not there yet, a full queue.

    Parameters
    ----------
    message
        The sentence.
    reason
        The kind of refusal in a word, for clients and for counts, such as ``unknown_order`` or ``late_bars``.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
