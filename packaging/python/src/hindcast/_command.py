"""The command itself: where it is, how options are written, what its errors say."""

import os
import pathlib
import re
import shutil
import subprocess
import sysconfig


class HindcastError(Exception):
    """Something could not be done: what, why, and what to do next."""

    def __init__(self, message, causes=(), hint=None, exit_code=None):
        super().__init__(message)
        self.message, self.causes, self.hint, self.exit_code = message, tuple(causes), hint, exit_code

    def __str__(self):
        lines = [self.message, *(f"Cause: {cause}" for cause in self.causes)]
        return "\n".join(lines + ([f"Hint: {self.hint}"] if self.hint else []))

    @classmethod
    def of(cls, said, exit_code):
        """From what the command wrote: `Error: …`, `Cause: …` any number of times, `Hint: …`, each of one or more lines."""
        parts = re.split(r"^(Error|error|Cause|Hint): ", said, flags=re.MULTILINE)
        pairs = [(kind.lower(), text.strip()) for kind, text in zip(parts[1::2], parts[2::2])]
        messages = [text for kind, text in pairs if kind == "error"]
        hints = [text for kind, text in pairs if kind == "hint"]
        message = messages[-1] if messages else said.strip() or f"hindcast ended with {exit_code}"
        causes = [text for kind, text in pairs if kind == "cause"]
        return cls(message, causes, hints[-1] if hints else None, exit_code)


def program():
    """The binary of this installation, or the one on the PATH."""
    beside = pathlib.Path(sysconfig.get_path("scripts")) / "hindcast"
    user = pathlib.Path(sysconfig.get_path("scripts", f"{os.name}_user")) / "hindcast"
    found = next((str(path) for path in (beside, user) if path.exists()), None) or shutil.which("hindcast")
    if found is None:
        raise HindcastError("there is no hindcast command", hint="install the wheel of this machine, or put it on the PATH")
    return found


def options(given):
    """`keep_going=True, from_=10, ignore=["a", "b"]` as the command line has it. None and False say nothing."""
    words = []
    for name, value in given.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            several = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{flag}={one}" for one in several]
    return words


def run(*words, allowed=(0,)):
    """What it prints, run to its end. Any other exit code than those allowed is an error."""
    return run_to_end(*words, allowed=allowed)[0]


def run_to_end(*words, allowed):
    """What it prints, and its exit code, one of those allowed."""
    done = subprocess.run([program(), *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode not in allowed:
        raise HindcastError.of(done.stderr, done.returncode)
    return done.stdout, done.returncode


def version():
    """Of the command: `0.1.0`."""
    return run("--version").split()[-1]
