package org.hibernate.cache.spi.support;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReentrantLock;
import org.hibernate.cache.internal.QueryResultsCacheImpl;
import org.hibernate.cache.spi.DomainDataRegion;
import org.hibernate.cache.spi.QueryKey;
import org.hibernate.cache.spi.access.SoftLock;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import serving.Serving;

/**
 * What is found in a second-level cache, which is called as Hibernate's, as far as it is looked at: java Entities.java PORT MS. A request for /KIND/WAY looks, one
 * for /KIND/WAY/late a little later: after so many milliseconds, and one for /KIND/clear has it forget all.
 */
public class Entities {
    static Map<String, AbstractCachedDomainDataAccess> kinds;
    static QueryResultsCacheImpl queries;

    static String drawn() {
        return UUID.randomUUID().toString();
    }

    static String look(String kind, String way) throws Exception {
        if (kind.equals("queries")) {
            return look(way);
        }
        AbstractCachedDomainDataAccess entities = kinds.get(kind);
        if (way.equals("clear")) {
            entities.kept.clear();
            return "";
        }
        Object before = entities.get(null, way);
        if (before != null) {
            return (String) before;
        }
        String own = drawn();
        switch (way) {
            case "made":
                ((Made) entities).afterInsert(null, way, own, null);
                break;
            case "changed":
                if (entities instanceof EntityReadWriteAccess written) {
                    written.afterUpdate(null, way, own, null, null, null);
                    break;
                }
            default:
                entities.putFromLoad(null, way, own, null);
        }
        return own;
    }

    static String look(String way) {
        if (way.equals("clear")) {
            queries.clear();
            return "";
        }
        QueryKey key = new QueryKey(way);
        List<?> before = way.equals("made") ? queries.get(key, new String[] {"t"}, null) : queries.get(key, Set.of("t"), null);
        if (before != null) {
            return (String) before.get(0);
        }
        String own = drawn();
        queries.put(key, List.of(own), null);
        return own;
    }

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        kinds = Map.of("locked", new EntityReadWriteAccess(), "plain", new EntityReadOnlyAccess());
        queries = new QueryResultsCacheImpl();
        int pause = Integer.parseInt(arguments[1]);
        ExecutorService workers = Executors.newFixedThreadPool(4);
        Serving.run(server, workers, path -> {
            String[] parts = path.split("/");
            if (parts.length > 3) {
                Thread.sleep(pause);
            }
            String answer = look(parts[1], parts[2]);
            // What was put there is seen before this is answered.
            Thread.sleep(200);
            return answer;
        });
    }
}

interface Made {
    boolean afterInsert(SharedSessionContractImplementor session, Object key, Object value, Object version);
}

abstract class AbstractCachedDomainDataAccess {
    final Map<Object, Object> kept = new ConcurrentHashMap<>();

    public DomainDataRegion getRegion() {
        return () -> "entities";
    }

    public Object get(SharedSessionContractImplementor session, Object key) {
        return kept.get(key);
    }

    public boolean putFromLoad(SharedSessionContractImplementor session, Object key, Object value, Object version) {
        kept.put(key, value);
        return true;
    }
}

/** It keeps copies. */
abstract class AbstractReadWriteAccess extends AbstractCachedDomainDataAccess {
    final ReentrantLock lock = new ReentrantLock();

    @Override
    public Object get(SharedSessionContractImplementor session, Object key) {
        lock.lock();
        try {
            Object found = kept.get(key);
            if (found == null) {
                return null;
            }
            if (found instanceof SoftLock) {
                return null;
            }
            return new String((String) found);
        } finally {
            lock.unlock();
        }
    }

    @Override
    public boolean putFromLoad(SharedSessionContractImplementor session, Object key, Object value, Object version) {
        lock.lock();
        try {
            if (kept.get(key) instanceof SoftLock) {
                return false;
            }
            kept.put(key, new String((String) value));
            return true;
        } finally {
            lock.unlock();
        }
    }
}

class EntityReadWriteAccess extends AbstractReadWriteAccess implements Made {
    @Override
    public boolean afterInsert(SharedSessionContractImplementor session, Object key, Object value, Object version) {
        lock.lock();
        try {
            kept.put(key, new String((String) value));
            return true;
        } finally {
            lock.unlock();
        }
    }

    public boolean afterUpdate(
        SharedSessionContractImplementor session, Object key, Object value, Object version, Object before, SoftLock held) {
        lock.lock();
        try {
            kept.put(key, new String((String) value));
            return held == null;
        } finally {
            lock.unlock();
        }
    }
}

class EntityReadOnlyAccess extends AbstractCachedDomainDataAccess implements Made {
    @Override
    public boolean afterInsert(SharedSessionContractImplementor session, Object key, Object value, Object version) {
        kept.put(key, value);
        return true;
    }
}
