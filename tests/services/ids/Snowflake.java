package cn.hutool.core.lang;

/** Makes ids of the time and a counter, and refuses where its clock went back, as the library does. */
public class Snowflake {
    private long last;
    private long counter;

    public synchronized long nextId() {
        long now = System.currentTimeMillis();
        if (now < last) {
            throw new IllegalStateException("Clock moved backwards.");
        }
        last = now;
        counter += 1;
        return now << 22 | counter & 0xfff;
    }
}
