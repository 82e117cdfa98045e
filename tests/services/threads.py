"""How many threads Python's servers and pools have that are to have two."""

import concurrent.futures

import cheroot.server
import cheroot.workers.threadpool
import waitress.task

dispatcher = waitress.task.ThreadedTaskDispatcher()
dispatcher.set_thread_count(2)
print("waitress", len(dispatcher.threads))
dispatcher.shutdown()

print("cheroot", cheroot.workers.threadpool.ThreadPool(cheroot.server.HTTPServer(("127.0.0.1", 0), None), min=2).min)

with concurrent.futures.ThreadPoolExecutor(2) as pool:
    pool.submit(int).result()
    print("executor", pool._max_workers)
with concurrent.futures.ThreadPoolExecutor(1) as pool:
    pool.submit(int).result()
    print("one", pool._max_workers)
