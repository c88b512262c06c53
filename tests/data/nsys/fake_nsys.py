"""A stand-in for nsys: it takes the line that the real one takes and does what FAKE_NSYS says.

records: runs the program, then leaves the export FAKE_EXPORT as its report     leaves: the same without running the program
nothing: succeeds and leaves no report     empty: a report of no bytes     refuses: knows an option not, exit 1
code N: runs nothing and exits with N     waits (and ignores no signal), hangs, crashes: all with a process in
a session of its own left behind
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def option(name: str) -> str:
    """Return the value of a flag of this line."""
    return next(word.partition("=")[2] for word in sys.argv if word.startswith(f"--{name}="))


def stray_daemon() -> None:
    """Start a process as the agent of nsys is started: in a session of its own, with nobody as its parent."""
    daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(os.environ["FAKE_PIDS"]).write_text(f"{os.getpid()} {daemon.pid}", encoding="utf-8")


def profile(behaviour: str) -> int:
    """Do as told."""
    print("Collecting data...", flush=True)
    code, program = 0, sys.argv[sys.argv.index("-m") - 2 :]
    if behaviour == "records":
        environment = {**os.environ, "NSYS_PROFILING_SESSION_ID": "1", **dict([option("env-var").split("=")])}
        code = subprocess.run(program, env=environment, check=False).returncode
    if behaviour in ("records", "leaves"):
        shutil.copyfile(os.environ["FAKE_EXPORT"], option("output") + ".nsys-rep")
    elif behaviour == "empty":
        Path(option("output") + ".nsys-rep").touch()
    elif behaviour in ("hangs", "crashes", "waits"):
        stray_daemon()
        if behaviour == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if behaviour == "hangs":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(600)
    elif behaviour == "refuses":
        print("unrecognised option '--cuda-graph-trace=node'", flush=True)
        return 1
    elif behaviour == "nothing":
        print("No reports were generated", flush=True)
    return int(os.environ.get("FAKE_CODE", code))


def main() -> int:
    """Run one verb."""
    if sys.argv[1] == "--version":
        print(f"NVIDIA Nsight Systems version {os.environ.get('FAKE_VERSION', '2025.3.2.474-253236389321v0')}")
        return 0
    if sys.argv[1] == "profile":
        return profile(os.environ["FAKE_NSYS"])
    if os.environ.get("FAKE_CLOSED"):
        print("file was created in a newer version")
        return 1
    shutil.copyfile(sys.argv[-1], sys.argv[-2])
    return 0


sys.exit(main())
