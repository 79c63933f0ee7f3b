"""What every test may count on."""

import os
import signal

from hypothesis import HealthCheck, settings

# A shell without job control starts what it puts into the background with Ctrl-C ignored, and that is inherited: the
# tests that send it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# With `-n 2` each worker has one core of two: threads of torch's would wait for one another and for the other worker's,
# spinning. Processes that a test starts inherit it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says nothing of what is tested: a machine that does something else meanwhile takes longer.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
