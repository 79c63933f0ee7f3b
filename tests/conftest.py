"""What every test may count on."""

import signal

# A shell without job control starts what it puts into the background with Ctrl-C ignored, and that is inherited: the
# tests that send it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
