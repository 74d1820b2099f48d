"""The one exception a user may meet."""


class InputError(Exception):
    """Wrong input, told in one sentence: what is wrong, where, and what to do.

    The command line prints the sentence and exits with code 2; a notebook shows it as it is.
    """

    rank: int = 0  # of several processes, the one that alone knows of it
