package org.hibernate.cache.spi.access;

public interface SoftLock {}
