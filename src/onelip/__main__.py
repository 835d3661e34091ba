"""`python -m onelip` is the command `onelip`."""

from onelip.command import main

main()
