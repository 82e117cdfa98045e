package reactor.core.publisher;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import reactor.core.CoreSubscriber;

/**
 * A cache that asks a source and forgets what that gave a little later, as Reactor's does: java Cached PORT MS. A request of /clear has it forget at once. MS: so
 * long a request of /late pauses before it looks, in milliseconds.
 */
public class Cached {
    static MonoCacheTime<String> cache;

    static String answer(String target, int pause) throws Exception {
        if (target.equals("/clear")) {
            cache.run();
            return "";
        }
        if (target.equals("/late")) {
            Thread.sleep(pause);
        }
        java.util.concurrent.CompletableFuture<String> value = new java.util.concurrent.CompletableFuture<>();
        CoreSubscriber<? super String> rest = cache.subscribeOrReturn(value::complete);
        return rest == null ? value.get() : "";
    }

    static void serve(Socket client, int pause) {
        try (client) {
            BufferedReader reader = new BufferedReader(new InputStreamReader(client.getInputStream()));
            String line = reader.readLine();
            if (line == null) {
                return;
            }
            String answer = answer(line.split(" ")[1], pause);
            String head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + answer.length();
            client.getOutputStream().write((head + "\r\n\r\n" + answer).getBytes());
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        // Classes that were loaded before something listens need not be known.
        cache = new MonoCacheTime<>(new Drawn());
        int pause = Integer.parseInt(arguments[1]);
        ExecutorService workers = Executors.newFixedThreadPool(4);
        while (true) {
            Socket client = server.accept();
            workers.execute(() -> serve(client, pause));
        }
    }
}

abstract class Mono<T> {
    public abstract void subscribe(CoreSubscriber<? super T> to);
}

/** Gives an id a little later, from a thread of its own. */
class Drawn extends Mono<String> {
    static final ScheduledExecutorService LATER = Executors.newScheduledThreadPool(1);

    @Override
    public void subscribe(CoreSubscriber<? super String> to) {
        LATER.schedule(() -> to.onNext(UUID.randomUUID().toString()), 200, TimeUnit.MILLISECONDS);
    }
}

class Operators {
    interface MonoSubscriber<I, O> extends CoreSubscriber<I> {
    }
}

interface Signal<T> {
    T get();
}

class MonoCacheTime<T> extends Mono<T> implements Runnable {
    static final Signal<?> EMPTY = () -> null;
    final Mono<? extends T> source;
    volatile Signal<T> state;

    @SuppressWarnings("unchecked")
    MonoCacheTime(Mono<? extends T> source) {
        this.source = source;
        state = (Signal<T>) EMPTY;
    }

    @Override
    @SuppressWarnings("unchecked")
    public void run() {
        state = (Signal<T>) EMPTY;
    }

    @Override
    public void subscribe(CoreSubscriber<? super T> to) {
        subscribeOrReturn(to);
    }

    @SuppressWarnings("unchecked")
    public CoreSubscriber<? super T> subscribeOrReturn(CoreSubscriber<? super T> to) {
        Operators.MonoSubscriber<T, T> inner = to::onNext;
        while (true) {
            Signal<T> now = state;
            CoordinatorSubscriber<T> asked = null;
            if (now == EMPTY) {
                synchronized (this) {
                    if (state != EMPTY) {
                        continue;
                    }
                    asked = new CoordinatorSubscriber<>(this);
                    state = asked;
                }
                asked.add(inner);
                source.subscribe(asked);
                break;
            }
            if (now instanceof CoordinatorSubscriber) {
                if (((CoordinatorSubscriber<T>) now).add(inner)) {
                    break;
                }
            } else {
                to.onNext(now.get());
                break;
            }
        }
        return null;
    }

    static final class CoordinatorSubscriber<T> implements CoreSubscriber<T>, Signal<T> {
        final MonoCacheTime<T> main;
        final List<Operators.MonoSubscriber<T, T>> waiting = new ArrayList<>();
        boolean isOver;

        CoordinatorSubscriber(MonoCacheTime<T> main) {
            this.main = main;
        }

        @Override
        public T get() {
            throw new UnsupportedOperationException();
        }

        synchronized boolean add(Operators.MonoSubscriber<T, T> to) {
            return !isOver && waiting.add(to);
        }

        @Override
        public void onNext(T value) {
            signalCached(() -> value);
        }

        private void signalCached(Signal<T> signal) {
            synchronized (main) {
                if (main.state == this) {
                    main.state = signal;
                }
            }
            List<Operators.MonoSubscriber<T, T>> all;
            synchronized (this) {
                isOver = true;
                all = new ArrayList<>(waiting);
            }
            for (Operators.MonoSubscriber<T, T> to : all) {
                to.onNext(signal.get());
            }
        }
    }
}
