"""`python -m selpe`."""

from selpe.cli import main

if __name__ == "__main__":
    main()
