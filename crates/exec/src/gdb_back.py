"""Going back in a replay: what gdb reads beside its commands.

A replay does not run backwards. But it can begin again at a checkpoint, and then comes to the same stops. So the way to the
stop before this one is: once through all stops since the checkpoint, to see which is the last before this one, and once more
to that.

A stop has a place: its thread, how many events that had replayed, and how many of its stops there were since the last of these.
"""

import re
import struct
import subprocess

import gdb


def words(address, count, letter="Q"):
    memory = gdb.selected_inferior().read_memory(address, count * struct.calcsize(letter))
    return struct.unpack(f"{count}{letter}", bytes(memory))


def position():
    """The number of the selected thread, and its events."""
    layout = int(gdb.parse_and_eval("(unsigned long)&hindcast_layout"))
    threads, count, number, kernel_id, events = words(layout, 5)
    own = gdb.selected_thread().ptid[1]
    for state in words(threads, words(count, 1, "I")[0]):
        if state and words(state + kernel_id, 1, "I")[0] == own:
            return words(state + number, 1, "I")[0], words(state + events, 1)[0]
    raise gdb.GdbError("this thread is none of the replayed program's")


def is_over():
    return not gdb.selected_inferior().pid


def is_ours():
    """Whether the stop is none that the user wanted."""
    return gdb.selected_frame().name() in ("hindcast_breakpoint", "hindcast_restored")


class Places:
    """Where each thread has stopped last, since the program was begun."""

    def __init__(self):
        self.last = {}
        gdb.events.stop.connect(self.stopped)
        gdb.events.exited.connect(lambda _: self.last.clear())

    def stopped(self, event):
        if not isinstance(event, gdb.BreakpointEvent) or is_ours():
            return
        thread, event = position()
        before, stops = self.last.get(thread, (None, 0))
        self.last[thread] = (event, stops + 1 if before == event else 1)

    def here(self):
        thread, event = position()
        before, stops = self.last.get(thread, (None, 0))
        return thread, event, stops if before == event else 0


class Back(gdb.Command):
    """Go back to the stop before this one, from a checkpoint before it."""

    def __init__(self, hindcast):
        super().__init__("hindcast-back", gdb.COMMAND_RUNNING)
        self.hindcast = hindcast
        self.places = Places()

    def invoke(self, _argument, _from_tty):
        if is_over():
            raise gdb.GdbError("nothing is being replayed")
        here = self.places.here()
        gdb.execute("set confirm off")
        # Each stop on the way would be told.
        gdb.execute("set suppress-cli-notifications on")
        try:
            passed_over, last = self.last_before(here)
            self.begin(here, passed_over)
            while not is_over() and self.places.here() != (last or here):
                self.go_on()
        finally:
            gdb.execute("set suppress-cli-notifications off")
            gdb.execute("set confirm on")
        if last is None:
            raise gdb.GdbError("there is no stop before this one")
        gdb.execute("frame")

    def last_before(self, here):
        """The last stop before this place, and from which checkpoint it is come to."""
        passed_over = 0
        while True:
            there_are = self.begin(here, passed_over)
            last = None
            while not is_over() and not self.is_end() and self.places.here() != here:
                if not is_ours():
                    last = self.places.here()
                self.go_on()
            if last is not None:
                return passed_over, last
            if passed_over == there_are:
                return 0, None
            passed_over = min(2 * passed_over + 1, there_are)

    def is_end(self):
        return gdb.selected_frame().name() == "hindcast_breakpoint"

    def begin(self, here, passed_over):
        """Begins again, with a stop behind this place. How many checkpoints there are before it."""
        thread, event, _ = here
        command = [self.hindcast, "exec", f"--aim={thread}:{event}", f"--pass-over={passed_over}"]
        # The launcher's page is among what gdb has inherited.
        said = subprocess.run(command, close_fds=False, check=True, capture_output=True, text=True).stdout
        self.places.last.clear()
        gdb.execute("run", to_string=True)
        return int(re.search(r"\d+", said).group())

    def go_on(self):
        gdb.execute("continue", to_string=True)
