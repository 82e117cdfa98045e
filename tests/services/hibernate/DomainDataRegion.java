package org.hibernate.cache.spi;

public interface DomainDataRegion {
    String getName();
}
