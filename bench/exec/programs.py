"""The programs that are measured."""

import random

from .runs import Program, free_port, need

# How much work, so that a run without recording takes about a second on two cores.
LOCK_PAIRS = 4_000_000
LOCK_KINDS = {"private": "private locks", "hot": "one hot lock", "random": "64 random locks", "mixed": "95 % private"}


def locks(bench, scale):
    pairs = int(LOCK_PAIRS * scale)
    return [Program(name, [bench["locks"], kind, 2, pairs], marks=True, units=pairs) for kind, name in LOCK_KINDS.items()]


def text(path, size):
    """Words that compress about as well as prose does."""
    if not path.exists():
        chance = random.Random(1)
        words = ["".join(chance.choices("etaoinshrdlucmfwyp", k=chance.randint(2, 9))) for _ in range(4000)]
        weights = [1 / (rank + 10) for rank in range(len(words))]
        with open(path, "w") as file:
            while file.tell() < size:
                file.write(" ".join(chance.choices(words, weights, k=20_000)) + "\n")
    return path


def databases(bench, scale):
    return [
        Program("sqlite, two private databases", [bench["databases"], "private", int(90_000 * scale)], marks=True),
        Program("sqlite, one shared connection", [bench["databases"], "shared", int(45_000 * scale)], marks=True),
    ]


def compressors(bench, scale):
    # Compressed a few times over: of a file that is larger, the log would be mostly its content.
    small, large = text(bench.folder / "small.txt", int(6e6 * scale)), text(bench.folder / "large.txt", int(24e6 * scale))
    return [
        Program("pigz -p2", [need("pigz"), "-p2", "-c", large]),
        Program("xz -T2", [need("xz"), "-T2", "-2", "--block-size=1MiB", "-k", "-c", small]),
    ]


def memcached(bench, scale):
    port, requests = free_port(), int(400_000 * scale)
    command = [need("memcached"), "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", 0, "-t", 4, "-o", "no_lru_maintainer,no_lru_crawler"]
    return Program("memcached, 4 threads", command, [bench["memload"], port, 8, requests], port, units=requests)


def redis(bench, scale):
    port, requests = free_port(), int(60_000 * scale)
    folder = bench.folder / "redis"
    folder.mkdir(exist_ok=True)
    command = [need("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
    load = [need("redis-benchmark"), "-p", port, "-t", "set,get", "-n", requests, "-c", 50, "-q"]
    return Program("redis", command, load, port, units=2 * requests, expect="GET:")


def lighttpd(bench, scale):
    """R2's Table 5: 50 clients, files of 64 KB."""
    port, requests = free_port(), int(15_000 * scale)
    folder = bench.folder / "www"
    folder.mkdir(exist_ok=True)
    (folder / "file.bin").write_bytes(random.Random(1).randbytes(64 * 1024))
    conf = bench.folder / "lighttpd.conf"
    conf.write_text(f'server.document-root = "{folder}"\nserver.port = {port}\nserver.bind = "127.0.0.1"\n')
    load = [need("ab"), "-q", "-n", requests, "-c", 50, f"http://127.0.0.1:{port}/file.bin"]
    return Program("lighttpd, 64 KB files", [need("lighttpd"), "-D", "-f", conf], load, port, units=requests, expect="Failed requests:        0")


def everything(bench, scale):
    return [*databases(bench, scale), memcached(bench, scale), *compressors(bench, scale), redis(bench, scale), lighttpd(bench, scale)]


def query(bench, temporary, interface=()):
    """R2's section 8.4."""
    database = bench.folder / "edges.db"
    return Program(f"temporary tables in {temporary}", [bench["query"], database, temporary, 10], marks=True, record=interface)


# By block size: how many blocks, so that it takes long enough without and not too much disk with recording.
BLOCKS = {1: 400_000, 512: 400_000, 8192: 30_000, 16384: 15_000}


def content(bench):
    """A file that is as large as what is copied."""
    path = bench.folder / "content"
    if not path.exists():
        with open(path, "wb") as file:
            for seed in range(250):
                file.write(random.Random(seed).randbytes(1 << 20))
    return path


def dd(size, source, scale):
    blocks = int(BLOCKS[size] * scale)
    return Program(f"dd bs={size}", [need("dd"), f"if={source}", "of=/dev/null", f"bs={size}", f"count={blocks}"], units=blocks, net=True)
