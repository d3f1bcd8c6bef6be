"""`python -m fedbench`: the command line of one of several Pythons."""

from fedbench.cli import main

if __name__ == "__main__":
    main(prog_name="fedbench")
