package org.hibernate.cache.internal;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.hibernate.cache.spi.QueryKey;
import org.hibernate.cache.spi.QueryResultsRegion;
import org.hibernate.engine.spi.SharedSessionContractImplementor;

/** Results of queries, of which it keeps copies. */
public class QueryResultsCacheImpl {
    private final Map<QueryKey, List<?>> kept = new ConcurrentHashMap<>();

    public QueryResultsRegion getRegion() {
        return () -> "queries";
    }

    public List<?> get(QueryKey key, Set<String> spaces, SharedSessionContractImplementor session) {
        List<?> found = kept.get(key);
        if (found == null) {
            return null;
        }
        return new ArrayList<>(found);
    }

    public List<?> get(QueryKey key, String[] spaces, SharedSessionContractImplementor session) {
        return get(key, Set.of(spaces), session);
    }

    public boolean put(QueryKey key, List<?> results, SharedSessionContractImplementor session) {
        for (Object result : results) {
            if (result == null) {
                return false;
            }
        }
        kept.put(key, new ArrayList<>(results));
        return true;
    }

    public void clear() {
        kept.clear();
    }
}
