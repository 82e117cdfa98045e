package io.hypersistence.tsid;

/** An id of the time and a counter, as the library's. */
public class TSID {
    private final long number;

    public TSID(long number) {
        this.number = number;
    }

    public long toLong() {
        return number;
    }

    public static class Factory {
        private int counter;

        public synchronized TSID generate() {
            counter += 1;
            return new TSID(System.currentTimeMillis() << 22 | counter);
        }
    }
}
