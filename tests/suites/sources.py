"""Where the suites come from: Debian's source packages and the registries, by their own clients.

Everything is kept in one folder outside the tree and is made once. A name that ends in `.part` is
unfinished; what has its full name is complete.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

from stage import Failed


class Sources:
    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "prepare.log"

    def run(self, *arguments, cwd=None, **environment):
        """Runs a tool. What it prints goes to the log, and into the error if it fails."""
        with open(self.log, "a") as log:
            log.write(f"$ {' '.join(map(str, arguments))}\n")
        try:
            done = subprocess.run(
                list(map(str, arguments)), cwd=cwd, env=os.environ | environment, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except FileNotFoundError:
            raise Failed(f"{arguments[0]} is not installed", "scripts/setup suites") from None
        with open(self.log, "a") as log:
            log.write(done.stdout)
        if done.returncode != 0:
            end = "\n".join(done.stdout.splitlines()[-8:])
            raise Failed(f"{arguments[0]} failed: {end}", f"all of it is in {self.log}")
        return done.stdout

    @contextlib.contextmanager
    def once(self, name):
        """Gives the folder to fill, or nothing where it was filled before.

        with sources.once("x") as new:
            if new: …fill new…
        """
        complete = self.folder / name
        if complete.exists():
            yield None
            return
        part = self.folder / f"{name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
        part.rename(complete)

    def debian(self, package, version):
        """The unpacked and patched source package, in the version that is installed.

        The system's own lists have no sources as a rule, and are left as they are: apt runs with a
        configuration of its own, in which each list of binaries is one of sources.
        """
        name = f"{package}-{version}"
        with self.once(name) as new:
            if new:
                apt = {"APT_CONFIG": str(self.private_apt())}
                self.run("apt-get", "-q", "update", **apt)
                source = ["apt-get", "-q", "source", "--download-only", f"{package}={version}"]
                self.run(*source, cwd=new, **apt)
                described = next(new.glob("*.dsc"))
                self.run("dpkg-source", "--extract", described.name, "source", cwd=new)
        return self.folder / name / "source"

    def private_apt(self):
        folder = self.folder / "apt"
        parts = folder / "parts"
        for made in (parts, folder / "lists" / "partial", folder / "cache"):
            made.mkdir(parents=True, exist_ok=True)
        system = pathlib.Path("/etc/apt")
        for listed in [system / "sources.list", *(system / "sources.list.d").glob("*.*")]:
            if listed.exists() and listed.suffix in (".list", ".sources"):
                (parts / listed.name).write_text(with_sources(listed.read_text()))
        configuration = folder / "apt.conf"
        configuration.write_text(
            f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{parts}";\n'
            f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n'
            # Else apt warns that its user _apt cannot write into our folder.
            'APT::Sandbox::User "root";\n'
        )
        return configuration

    def python(self, name, *packages):
        """The interpreter of a virtual environment with these packages."""
        digest = hashlib.sha256(repr(packages).encode()).hexdigest()[:8]
        # A venv's programs name its path, so it is made where it stays.
        venv = self.folder / f"{name}-venv-{digest}.made"
        with self.once(f"{name}-venv-{digest}") as new:
            if new:
                self.run(sys.executable, "-m", "venv", "--clear", venv)
                self.run(venv / "bin" / "pip", "install", "-q", *packages)
        return venv / "bin" / "python"

    def sdist(self, package, version):
        """The unpacked source distribution, which has tests where the wheel has none."""
        name = f"{package}-{version}"
        with self.once(name) as new:
            if new:
                pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
                # Only itself: tools that it is built with come as wheels, or are compiled for an hour.
                self.run(*pip, "--no-binary", package, "-d", new, f"{package}=={version}")
                archive = next(new.glob("*.tar.gz"))
                self.run("tar", "-xzf", archive.name, "--strip-components=1", cwd=new)
        return self.folder / name

    def go_module(self, module, version):
        """A copy of the module, tests included, in which its own tests can run."""
        name = f"{module.replace('/', '-')}-{version}"
        with self.once(name) as new:
            if new:
                answer = self.run("go", "mod", "download", "-json", f"{module}@{version}", cwd=new)
                kept = re.search(r'"Dir": "(.*)"', answer)[1]
                shutil.copytree(kept, new, dirs_exist_ok=True)
                # The module cache is read-only, and so would be the copy.
                self.run("chmod", "-R", "u+w", ".", cwd=new)
        return self.folder / name

    def maven_archive(self, artifact, version, archive):
        """An unpacked archive of Maven Central. `archive`: group:name:version:type:classifier."""
        name = f"{artifact}-{version}"
        with self.once(name) as new:
            if new:
                coordinates = ["-Dtransitive=false", f"-Dartifact={archive}"]
                self.run("mvn", "-q", "-B", "dependency:get", *coordinates, cwd=new)
                into = [f"-DoutputDirectory={new}", "-Dmdep.useBaseVersion=true"]
                self.run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={archive}", *into, cwd=new)
                packed = next(new.glob("*.tar.gz"))
                self.run("tar", "-xzf", packed.name, "--strip-components=1", cwd=new)
        return self.folder / name


def with_sources(text):
    """An apt list of binaries as one of sources, in the one-line format or in deb822's."""
    text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", text)
    return re.sub(r"(?m)^deb ", "deb-src ", text)
