"""``python -m dadagrad``: the same as the command ``dadagrad``."""

from dadagrad.cli import main

if __name__ == "__main__":
    main()
