"""`python -m undertorch`: the same as the `undertorch` command."""

from undertorch.cli.main import main

main()
