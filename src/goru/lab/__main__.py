"""`python -m goru.lab run copying ...`: the same commands as `goru`, for launchers that want a module."""

import sys

from goru.lab.cli import main

sys.exit(main(sys.argv[1:]))
