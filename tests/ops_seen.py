"""What `undertorch see` makes of a script that calls the ops, on an H200 that is not there."""

from undertorch import see


def seen(tmp_path_factory, script):
    """The step of a script, given as its text."""
    path = tmp_path_factory.mktemp("seen") / "train.py"
    path.write_text(script)
    return see(path, gpu="H200")


def kernels(step, name):
    """Those that an op launched, in their order."""
    return [launch.kernel for launch in step.launches if step.ops[launch.ops[0]].name == f"undertorch::{name}"]
