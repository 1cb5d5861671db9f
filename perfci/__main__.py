"""`python -m perfci`."""

from perfci.cli.main import main

main()
