"""`python -m autoscaler`, and the console script."""

from autoscaler.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
