"""Programs that a script starts: they run, in the same copy of the disk."""

import os
import signal
import subprocess
import sys
import time

STARTS = """
    import os, subprocess, sys
    def exists(name):
        return os.path.exists(name)
    open("from_script", "w").write("written")
"""


def test_a_program_sees_what_the_script_wrote_and_the_script_what_the_program_wrote(unchanged):
    unchanged(
        STARTS
        + """
    done = subprocess.run(["cat", "from_script"], capture_output=True, text=True, check=True)
    assert done.stdout == "written"
    subprocess.run("mkdir made; echo text > made/by_shell; rm from_script", shell=True, check=True)
    assert open("made/by_shell").read() == "text\\n" and not exists("from_script")
    subprocess.run(["cp", "-r", "made", "copied"], check=True)
    assert open("copied/by_shell").read() == "text\\n"
    assert subprocess.check_output(["ls", "copied"], text=True) == "by_shell\\n"
    """
    )


def test_every_way_to_start_a_program_stays_in_the_copy(unchanged):
    unchanged(
        STARTS
        + """
    os.system("echo 1 > one")
    os.popen("echo 2 > two").read()
    subprocess.run(["sh", "-c", "echo 3 > three"], env={})
    subprocess.run(["sh", "-c", "echo 4 > four"], preexec_fn=lambda: None, cwd="/", env={"PWD": "/"})
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "echo 5 > five"], {}), 0)
    os.waitpid(os.posix_spawnp("sh", ["sh", "-c", "echo 6 > six"], {}), 0)
    os.spawnlp(os.P_WAIT, "sh", "sh", "-c", "echo 7 > seven")
    child = os.fork()
    if not child:
        open("eight", "w").write("8\\n")
        os.execvpe("sh", ["sh", "-c", "echo 9 > nine"], {})
    os.waitpid(child, 0)
    names = ("one", "two", "three", "five", "six", "seven", "eight", "nine")
    assert [open(name).read() for name in names] == ["1\\n", "2\\n", "3\\n", "5\\n", "6\\n", "7\\n", "8\\n", "9\\n"]
    """
    )
    assert not os.path.exists("/four")  # noqa: PTH110


def test_a_program_that_the_script_wrote_is_run(unchanged):
    ran = unchanged(
        STARTS
        + """
    open("tool", "w").write(f"#!{sys.executable}\\nprint('a tool')")
    os.chmod("tool", 0o755)
    print(subprocess.check_output(["./tool"], text=True), end="")
    """
    )
    assert ran.out == "a tool\n"


def test_the_recorder_does_not_become_another_program(unchanged):
    """Scripts that set a variable and start themselves anew would escape the recorder."""
    unchanged(
        STARTS
        + """
    try:
        os.execv(sys.executable, [sys.executable, "-c", "print('escaped')"])
    except PermissionError:
        pass
    assert told()[-1][0] == "NOT_REPLACED"
    """
    )


def test_processes_outside_get_no_signals_and_ones_own_do(unchanged):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as outside:
        unchanged(
            STARTS
            + """
    import signal, time
    for send in (lambda: os.kill(int(sys.argv[1]), signal.SIGTERM), lambda: os.killpg(0, signal.SIGTERM)):
        try:
            send()
        except PermissionError:
            continue
        raise AssertionError
    os.kill(int(sys.argv[1]), 0)  # a question
    own = subprocess.Popen(["sleep", "60"])
    own.terminate()
    assert own.wait() == -signal.SIGTERM
    """,
            str(outside.pid),
        )
        assert outside.poll() is None
        outside.kill()


def test_a_program_left_behind_ends_with_the_run(watched, tmp_path):
    """A monitor that the script starts and forgets, in a session of its own."""
    ran = watched(
        """
        import subprocess
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        print(subprocess.Popen(["sleep", "600"], start_new_session=True, **nowhere).pid)
        """,
        tmp_path,
    )
    process = int(ran.out)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    raise AssertionError("it lives on")
