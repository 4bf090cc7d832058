"""``python -m dgcf`` is ``dgcf``."""

from dgcf.cli import main

main()
