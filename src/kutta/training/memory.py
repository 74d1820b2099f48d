"""Keeping the memory that training frees and takes again a thousand times a second."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Ask glibc not to give large freed blocks back to the system between updates.

    By default each large tensor is mapped anew, and its pages are faulted in and zeroed one by one
    in every update. Elsewhere than on glibc this does nothing.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, 1 << 30)
    mallopt(_TRIM_THRESHOLD, _LARGEST)
