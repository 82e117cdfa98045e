// What C++ makes of pthread functions: mutexes of each kind, call_once, statics that threads make, exceptions out of both.
#include "see.h"
#include <chrono>
#include <condition_variable>
#include <future>
#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static std::mutex order_lock;
static uint64_t order;

static void note(int what) {
    std::lock_guard held(order_lock);
    order = (order ^ static_cast<uint64_t>(what)) * 0x100000001b3u;
}

struct Made {
    int by;
    explicit Made(int who) : by(who) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        note(1000 + who);
    }
};

template <int N> static int made_by(int me) {
    static Made made(me);
    return made.by;
}

static int attempts;
static int with_patience(int me) {
    struct Fussy {
        int by;
        explicit Fussy(int who) : by(who) {
            note(2000 + who);
            if (++attempts < 3)
                throw std::runtime_error("not yet");
        }
    };
    for (;;) {
        try {
            static Fussy fussy(me);
            return fussy.by;
        } catch (const std::runtime_error &) {
            note(3000 + me);
        }
    }
}

int main() {
    std::timed_mutex patient;
    std::recursive_mutex nested;
    std::shared_mutex table;
    std::once_flag flags[4];
    int calls[4] = {};
    std::condition_variable_any any;
    int turn = 0;
    std::vector<std::thread> threads;
    for (int me = 0; me < 4; me++)
        threads.emplace_back([&, me] {
            for (int i = 0; i < 4; i++) {
                for (;;) {
                    try {
                        std::call_once(flags[i], [&] {
                            note(4000 + i * 10 + me);
                            if (i == 3 && calls[i]++ < 2)
                                throw std::runtime_error("again");
                        });
                        break;
                    } catch (const std::runtime_error &) {
                        note(5000 + me);
                    }
                }
            }
            seen("thread %d: statics by %d %d %d", me, made_by<0>(me), made_by<1>(me), made_by<2>(me));
            seen("thread %d: at last by %d", me, with_patience(me));
            int late = 0, refused = 0;
            for (int i = 0; i < 500; i++) {
                {
                    std::unique_lock lock(patient, std::chrono::microseconds(5));
                    if (lock)
                        note(me);
                    else
                        late++;
                }
                {
                    std::scoped_lock both(nested, order_lock);
                    std::lock_guard again(nested);
                }
                if (i % 4)
                    std::shared_lock{table}, note(10 + me);
                else if (table.try_lock()) {
                    note(20 + me);
                    table.unlock();
                } else
                    refused++;
            }
            std::unique_lock lock(order_lock);
            any.wait(lock, [&] { return turn == me; });
            turn++;
            any.notify_all();
            seen("thread %d: late %d, refused %d", me, late, refused);
        });
    for (auto &thread : threads)
        thread.join();
    std::promise<int> promise;
    std::thread giver([&] { promise.set_value(42); });
    same("promised %d", promise.get_future().get());
    giver.join();
    auto task = std::async(std::launch::async, [] {
        note(7);
        throw std::runtime_error("thrown across threads");
        return 0;
    });
    try {
        task.get();
    } catch (const std::runtime_error &error) {
        same("%s", error.what());
    }
    std::cout << "turn " << turn << std::endl;
    seen("order %016lx", order);
    return 0;
}
