"""What makes the wheel one of a platform: the `hindcast` binary among its scripts, and the tag of the oldest glibc it runs on."""

import os
import pathlib
import re
import subprocess

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What every Linux with glibc has (PEP 600): a wheel that needed more would not run everywhere its tag says.
EVERYWHERE = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


class Binary(BuildHookInterface):
    def initialize(self, version, build_data):
        if version == "editable":
            return
        binary = pathlib.Path(os.environ.get("HINDCAST_BINARY", "../../target/release/hindcast")).resolve()
        if not binary.is_file():
            raise SystemExit(f"Error: there is no {binary}\nHint: make dist, or set HINDCAST_BINARY")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform(binary)}"
        build_data["shared_scripts"][str(binary)] = "hindcast"


def platform(binary):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", binary)))
    if needed - EVERYWHERE:
        raise SystemExit(f"Error: {binary} needs {needed - EVERYWHERE}, which not every Linux has")
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", readelf("-V", binary))
    major, minor = max((int(major), int(minor)) for major, minor in versions)
    return f"manylinux_{major}_{minor}_{os.uname().machine}"


def readelf(flag, binary):
    return subprocess.run(["readelf", "-W", flag, binary], check=True, capture_output=True, text=True).stdout
