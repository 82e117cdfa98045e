// What C++ programs use: std::thread, mutexes of each kind, condition variables, futures, statics, exceptions across threads.
#include "see.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <numeric>
#include <queue>
#include <random>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

struct Queue {
    std::mutex mutex;
    std::condition_variable ready;
    std::queue<int> items;
    bool closed = false;

    bool take(int &item) {
        std::unique_lock lock(mutex);
        ready.wait(lock, [&] { return closed || !items.empty(); });
        if (items.empty())
            return false;
        item = items.front();
        items.pop();
        return true;
    }
};

static std::map<std::string, int> &registry() {
    static std::map<std::string, int> made = [] {
        std::ostringstream who;
        who << std::this_thread::get_id();
        seen("the registry is made by %s", who.str().c_str());
        return std::map<std::string, int>();
    }();
    return made;
}

int main() {
    Queue queue;
    std::vector<std::thread> workers;
    std::vector<std::vector<int>> taken(3);
    std::shared_mutex table;
    std::recursive_mutex nested;
    std::timed_mutex patient;
    std::once_flag once;
    for (int w = 0; w < 3; w++)
        workers.emplace_back([&, w] {
            std::call_once(once, [&] { seen("once, by worker %d", w); });
            for (int item; queue.take(item);) {
                taken[w].push_back(item);
                {
                    std::shared_lock reading(table);
                    if (patient.try_lock_for(std::chrono::milliseconds(1))) {
                        std::this_thread::yield();
                        patient.unlock();
                    } else
                        taken[w].push_back(-1);
                }
                std::lock_guard outer(nested), inner(nested);
                std::unique_lock writing(table);
                registry()["worker " + std::to_string(w)]++;
            }
        });
    for (int i = 0; i < 300; i++) {
        std::lock_guard lock(queue.mutex);
        queue.items.push(i);
        queue.ready.notify_one();
    }
    {
        std::lock_guard lock(queue.mutex);
        queue.closed = true;
    }
    queue.ready.notify_all();
    for (auto &worker : workers)
        worker.join();
    int all = 0;
    for (int w = 0; w < 3; w++)
        for (int item : taken[w]) {
            seen("worker %d took %d", w, item);
            all += item >= 0 ? item : 0;
        }
    same("all items: %d", all);

    auto future = std::async(std::launch::async, [&] { return std::accumulate(taken.begin(), taken.end(), 0, [](int sum, const auto &items) { return sum + (int)items.size() * 0 + 7; }); });
    same("future %d", future.get());
    std::promise<int> promise;
    std::thread thrower([&] {
        try {
            throw std::runtime_error("from the other thread");
        } catch (...) {
            promise.set_exception(std::current_exception());
        }
    });
    try {
        promise.get_future().get();
    } catch (const std::exception &error) {
        same("caught %s", error.what());
    }
    thrower.join();

    std::random_device device;
    std::mt19937 engine(device());
    seen("random_device %u, mt19937 %lu", device(), (unsigned long)engine());
    seen("system clock %ld", (long)std::chrono::system_clock::now().time_since_epoch().count());
    seen("steady clock %ld", (long)std::chrono::steady_clock::now().time_since_epoch().count());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    seen("may run on %u", std::thread::hardware_concurrency());
    std::ofstream("written.txt") << "by a stream " << 42 << "\n";
    std::string line;
    std::getline(std::ifstream("written.txt"), line);
    same("%s", line.c_str());
    fflush(stdout);
    std::cout << "through cout, " << std::boolalpha << true << std::endl;
    auto object = std::make_shared<std::string>(1000, 'x');
    seen("shared at %p", (void *)object.get());
    return 0;
}
