package com.github.benmanes.caffeine.cache;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import serving.Serving;

/**
 * What is found in caches, which are called as Caffeine's, as far as they are looked at: java Found.java PORT MS [virtual]. A request for /CACHE/WAY looks, one for
 * /CACHE/WAY/late a little later: after so many milliseconds, and one for /CACHE/clear has it forget all.
 */
public class Found {
    static String drawn() {
        try {
            Thread.sleep(200);
        } catch (InterruptedException error) {
            throw new RuntimeException(error);
        }
        return UUID.randomUUID().toString();
    }

    static String look(LocalCache<String, Object> cache, String way) throws Exception {
        LocalManualCache<String, Object> manual = () -> cache;
        LocalAsyncCache<String, Object> later = () -> cache;
        switch (way) {
            case "computed":
                return (String) manual.get(way, key -> drawn());
            case "absent": {
                CompletableFuture<String> own = new CompletableFuture<>();
                Object before = cache.putIfAbsent(way, own);
                return before == null ? complete(own) : ((CompletableFuture<?>) before).get().toString();
            }
            case "future": {
                CompletableFuture<Object> before = later.getIfPresent(way);
                if (before != null) {
                    return before.get().toString();
                }
                CompletableFuture<String> own = new CompletableFuture<>();
                later.put(way, own);
                return complete(own);
            }
            case "present": {
                Object before = manual.getIfPresent(way);
                if (before != null) {
                    return (String) before;
                }
                String own = UUID.randomUUID().toString();
                manual.put(way, own);
                return own;
            }
            default:
                cache.clear();
                return "";
        }
    }

    static String complete(CompletableFuture<String> own) {
        own.complete(drawn());
        return own.join();
    }

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        LocalCache<String, Object> bounded = new BoundedLocalCache<>(new Caffeine(), null, false);
        LocalCache<String, Object> unbounded = new UnboundedLocalCache<>(new Caffeine(), false);
        int pause = Integer.parseInt(arguments[1]);
        ExecutorService workers = Executors.newFixedThreadPool(4);
        if (arguments.length > 2) {
            // Older versions have none.
            workers = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        }
        Serving.run(server, workers, path -> {
            String[] parts = path.split("/");
            if (parts.length > 3) {
                Thread.sleep(pause);
            }
            return look(parts[1].equals("bounded") ? bounded : unbounded, parts[2]);
        });
    }
}

class Caffeine {}

class AsyncCacheLoader {}

interface LocalCache<K, V> {
    V getIfPresent(Object key, boolean counts);

    V put(K key, V value);

    V putIfAbsent(K key, V value);

    V computeIfAbsent(K key, Function<? super K, ? extends V> source, boolean counts, boolean countsLoads);

    void clear();
}

interface LocalManualCache<K, V> {
    LocalCache<K, V> cache();

    default V getIfPresent(Object key) {
        return cache().getIfPresent(key, true);
    }

    default V get(K key, Function<? super K, ? extends V> source) {
        return cache().computeIfAbsent(key, source, true, true);
    }

    default void put(K key, V value) {
        cache().put(key, value);
    }
}

interface LocalAsyncCache<K, V> {
    LocalCache<K, V> cache();

    @SuppressWarnings("unchecked")
    default CompletableFuture<V> getIfPresent(Object key) {
        return (CompletableFuture<V>) cache().getIfPresent(key, true);
    }

    @SuppressWarnings("unchecked")
    default void put(K key, CompletableFuture<? extends V> value) {
        if (value.isCompletedExceptionally()) {
            return;
        }
        cache().put(key, (V) value);
    }
}

class BoundedLocalCache<K, V> implements LocalCache<K, V> {
    final ConcurrentHashMap<Object, V> data = new ConcurrentHashMap<>();

    BoundedLocalCache(Caffeine caffeine, AsyncCacheLoader loader, boolean isAsync) {}

    @Override
    public V getIfPresent(Object key, boolean counts) {
        return data.get(key);
    }

    @Override
    public V put(K key, V value) {
        return data.put(key, value);
    }

    @Override
    public V putIfAbsent(K key, V value) {
        return data.putIfAbsent(key, value);
    }

    @Override
    public V computeIfAbsent(K key, Function<? super K, ? extends V> source, boolean counts, boolean countsLoads) {
        V value = data.get(key);
        return value != null ? value : data.computeIfAbsent(key, mine -> source.apply(key));
    }

    @Override
    public void clear() {
        data.clear();
    }
}

class UnboundedLocalCache<K, V> implements LocalCache<K, V> {
    final ConcurrentHashMap<K, V> data = new ConcurrentHashMap<>();

    UnboundedLocalCache(Caffeine caffeine, boolean isAsync) {}

    @Override
    public V getIfPresent(Object key, boolean counts) {
        return data.get(key);
    }

    @Override
    public V put(K key, V value) {
        return data.put(key, value);
    }

    @Override
    public V putIfAbsent(K key, V value) {
        return data.putIfAbsent(key, value);
    }

    @Override
    public V computeIfAbsent(K key, Function<? super K, ? extends V> source, boolean counts, boolean countsLoads) {
        return data.computeIfAbsent(key, source);
    }

    @Override
    public void clear() {
        data.clear();
    }
}
