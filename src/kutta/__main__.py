"""`python -m kutta` is `kutta`."""

from kutta.cli import main

main()
