"""The one exception that is meant for the user."""


class InputError(Exception):
    """Wrong input. The message is one sentence: what is wrong, where, and what to do.

    The command line prints the message and exits with code 2.
    """

    rank: int = 0  # the rank that reports it, where it is not an error of all ranks
