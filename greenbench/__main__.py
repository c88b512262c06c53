"""`python -m greenbench`: the command line, for where the entry point is not on the PATH."""

from greenbench.cli.main import main

if __name__ == "__main__":
    main()
