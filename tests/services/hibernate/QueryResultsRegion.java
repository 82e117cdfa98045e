package org.hibernate.cache.spi;

public interface QueryResultsRegion {
    String getName();
}
