"""`make check-deploy`: the image of deploy/Dockerfile, built and run with podman, and the unit of systemd.

There is no registry here to take a base image from, so debootstrap makes one. Where pip and apt need settings to
reach their indexes, the machine's own are shown to the build.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from whet.client import Client
from whet.client.models import RolloutRequest

ROOT = Path(__file__).parent.parent
BASE, IMAGE, NAME = "localhost/whet-check-base:1", "localhost/whet-check:1", "whet-check-deploy"
PORT = 8765
# Machines without systemd or with few rights need these; see the engine's own messages.
ENGINE = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--no-healthcheck"]
MAY_MAKE_BOXES = ["--security-opt", "seccomp=unconfined", "--security-opt", "unmask=ALL"]
CONFIG = '[models.none]\nurl = "http://127.0.0.1:9"\n'
START_SEC = 60.0


def main() -> int:
    for program in ("podman", "debootstrap", "systemd-analyze"):
        if shutil.which(program) is None:
            print(f"{program} is missing; install it: apt-get install podman runc debootstrap systemd", file=sys.stderr)
            return 1
    check_unit()
    with tempfile.TemporaryDirectory() as scratch:
        make_base(Path(scratch))
        build_image(Path(scratch))
    try:
        run_image()
    finally:
        subprocess.run([*ENGINE, "rm", "--force", "--ignore", NAME], check=True, stdout=subprocess.DEVNULL)
    print("the unit is right; the image builds, its boxes work, and it drains")
    return 0


def check_unit() -> None:
    """systemd reads the unit, and refuses one with a wrong key."""
    text = (ROOT / "deploy/whet-serve.service").read_text()
    # The program of the unit need not be installed where this runs.
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE)
    for content, is_right in ((text, True), (text.replace("KillMode=mixed", "KillMode=gently"), False)):
        with tempfile.TemporaryDirectory() as scratch:
            unit = Path(scratch, "whet-serve.service")
            unit.write_text(content)
            done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
            said = [line for line in done.stderr.splitlines() if "whet-serve.service" in line]
            assert (done.returncode == 0 and not said) == is_right, done.stderr


def make_base(scratch: Path) -> None:
    """A plain Debian as an image, once."""
    if subprocess.run([*ENGINE, "image", "exists", BASE], check=False).returncode == 0:
        return
    root = scratch / "root"
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], check=True, stdout=subprocess.DEVNULL)
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run([*ENGINE, "import", "-", BASE], stdin=packed.stdout, check=True, stdout=subprocess.DEVNULL)


def build_image(scratch: Path) -> None:
    argv = [*ENGINE, "build", "--isolation", "chroot", "--format", "docker", "--pull=never", "--network", "host"]
    argv += ["--build-arg", f"BASE={BASE}", "--build-arg", "AGENTS="]
    subprocess.run(
        [*argv, *_show_pip_settings(scratch), "-t", IMAGE, "-f", "deploy/Dockerfile", "."], cwd=ROOT, check=True
    )


def _show_pip_settings(scratch: Path) -> list[str]:
    """The options that show the machine's settings of pip, with its certificates, to a build."""
    certificate, options = os.environ.get("PIP_CERT"), ["-v", f"{scratch}:/pip:ro"]
    settings = {"PIP_CONFIG_FILE": Path.home() / ".config/pip/pip.conf", "": Path("/etc/pip.conf")}
    for variable, path in settings.items():
        if path.is_file():
            text, name = path.read_text(), f"{variable or 'global'}.conf"
            (scratch / name).write_text(text.replace(certificate, "/pip/bundle.crt") if certificate else text)
            shown = ["--env", f"{variable}=/pip/{name}"] if variable else ["-v", f"{scratch / name}:/etc/pip.conf:ro"]
            options += shown
    if certificate:
        shutil.copy(certificate, scratch / "bundle.crt")
        options += ["--env", "PIP_CERT=/pip/bundle.crt"]
    return options


def run_image() -> None:
    """Start the server of the image, let it do a rollout, and stop it."""
    token = secrets.token_urlsafe(32)
    options = [*LIMITS, *MAY_MAKE_BOXES, "--network", "host", "--env", "WHET_SERVE_TOKEN", "--name", NAME]
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch, "whet.toml")
        config.write_text(CONFIG)
        config.chmod(0o644)
        Path(scratch).chmod(0o755)
        argv = [*ENGINE, "run", "--detach", *options, "-v", f"{config}:/var/lib/whet/whet.toml:ro", IMAGE]
        argv += ["--port", str(PORT), "--agent", "command:cp /bin/true answer", "--model", "none"]
        environment = {**os.environ, "WHET_SERVE_TOKEN": token}
        subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
        with Client(f"http://127.0.0.1:{PORT}", token=token, retry_sec=START_SEC) as client:
            (done,) = client.run(RolloutRequest(instruction="Answer.", verify=("test -s answer",))).rollouts
        assert done.reward == 1, done
        began = time.monotonic()
        subprocess.run([*ENGINE, "stop", "--time", "30", NAME], check=True, stdout=subprocess.DEVNULL)
        ended = subprocess.check_output([*ENGINE, "inspect", "--format", "{{.State.ExitCode}}", NAME], text=True)
        assert ended.strip() == "0", f"the server ended with code {ended.strip()}"
        print(f"a rollout in the image: reward {done.reward:g}; stopped in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
