"""Where Python's caches and sessions have their files in a replay: hindcast_turns.py has them made there.

What the recorded service has put into them is still there, and an earlier replay's: a request would
find what came later. So a replay has folders of its own, with copies of what was there before.
"""

import glob
import hashlib
import os
import shutil
import tempfile

# A folder of the replay's, a colon, and when the replayed period begins, in microseconds since 1970.
FOLDER, _, UNTIL = os.environ.get("HINDCAST_FILES", "").rpartition(":")


def own_folder(path, pattern):
    """The replay's in the place of a folder of files that are named so."""
    own = own_path(path)
    if not os.path.isdir(own):
        # Several processes may come at a time: one has it.
        made = tempfile.mkdtemp(dir=FOLDER)
        for name in glob.glob(pattern, root_dir=path):
            copy(os.path.join(path, name), os.path.join(made, name))
        try:
            os.rename(made, own)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
    return own


def own_file(path):
    own = own_path(path)
    if not os.path.exists(own):
        copy(path, own)
    return own


def own_path(path):
    known_by = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()
    return os.path.join(FOLDER, known_by)


def copy(path, own):
    """If it was there before the replayed period."""
    try:
        if os.stat(path).st_mtime * 1e6 < int(UNTIL):
            shutil.copy2(path, own)
    except OSError:
        pass


def django_cache(real):
    def init(self, *args, **kwargs):
        real(self, *args, **kwargs)
        self._dir = own_folder(self._dir, f"*{self.cache_suffix}")

    return init


def django_session(real):
    def key_to_file(self, *args, **kwargs):
        return own_file(real(self, *args, **kwargs))

    return key_to_file


def cachelib_cache(real):
    def init(self, cache_dir, *args, **kwargs):
        real(self, own_folder(cache_dir, "*"), *args, **kwargs)

    return init


def begin(hooks, replace):
    """If this is a replay."""
    if not FOLDER:
        return
    hooks["django.core.cache.backends.filebased"] = lambda module: replace(
        module.FileBasedCache, "__init__", django_cache
    )
    hooks["django.contrib.sessions.backends.file"] = lambda module: replace(
        module.SessionStore, "_key_to_file", django_session
    )
    hooks["cachelib.file"] = lambda module: replace(
        module.FileSystemCache, "__init__", cachelib_cache
    )
