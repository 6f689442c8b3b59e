"""`python -m aotpack`: the program `aotpack`, where its script is not on the path."""

from aotpack.cli.app import main

if __name__ == "__main__":
    main()
