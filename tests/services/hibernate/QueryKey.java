package org.hibernate.cache.spi;

public record QueryKey(String text) {}
