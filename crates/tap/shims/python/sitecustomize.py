# Python loads this first: it is in front of PYTHONPATH. It loads the shim, and then what would have
# been loaded without it.
import os
import sys


def begin():
    ours = os.path.dirname(os.path.abspath(__file__))
    if sys.version_info >= (3, 7):
        try:
            import hindcast_turns  # noqa: F401
        except Exception:
            # Then nothing is told. The service is to run all the same.
            pass
    sys.path[:] = [path for path in sys.path if path == "" or os.path.abspath(path) != ours]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if this is not None:
            sys.modules.setdefault("sitecustomize", this)


begin()
