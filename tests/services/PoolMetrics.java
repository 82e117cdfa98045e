package io.vertx.core.spi.metrics;

/** What work for Blocking.java is made with. */
public interface PoolMetrics {}
