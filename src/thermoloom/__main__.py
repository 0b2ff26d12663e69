"""``python -m thermoloom``: the command line."""

from thermoloom.cli import main

main()
