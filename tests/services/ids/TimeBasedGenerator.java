package com.fasterxml.uuid.impl;

import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;

/** Makes ids of the time and a counter, as the library does. */
public class TimeBasedGenerator {
    private final AtomicLong counter = new AtomicLong();

    public UUID generate() {
        return new UUID(System.currentTimeMillis() << 16 | 0x1000, Long.MIN_VALUE | counter.incrementAndGet());
    }
}
