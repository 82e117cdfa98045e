"""The generator of Python's module `random`: hindcast_turns.py has it made so.

It draws from the system, which is the same in a replay: one that is seeded once would give a request
what others have not drawn before it. Who seeds it, or asks for its state, gets the sequence that
belongs to that. Who seeds it with what the system has drawn (gunicorn does, in each of its
processes) has no sequence in mind.
"""

import os

# What was drawn from the system last.
drawn = None


def own(module):
    system = module.SystemRandom

    class Shared(module.Random):
        seeded = False

        def seed(self, a=None, *args, **kwargs):
            super().seed(a, *args, **kwargs)
            self.seeded = a is not None and (not a or a != drawn)

        def getstate(self):
            if not self.seeded:
                super().seed()
                self.seeded = True
            return super().getstate()

        def setstate(self, state):
            super().setstate(state)
            self.seeded = True

        def random(self):
            return super().random() if self.seeded else system().random()

        def getrandbits(self, k):
            return super().getrandbits(k) if self.seeded else system().getrandbits(k)

        def gauss(self, *args, **kwargs):
            # It keeps every second number for the next call.
            return (super() if self.seeded else system()).gauss(*args, **kwargs)

    real, shared = module._inst, Shared()
    for name, value in list(vars(module).items()):
        if getattr(value, "__self__", None) is real:
            setattr(module, name, getattr(shared, name))
    module._inst = shared
    os.register_at_fork(after_in_child=shared.seed)
