package org.eclipse.persistence.internal.sessions;

/** Counts how often the database was asked. */
public class AbstractSession {
    public int asked;
    boolean transacts;

    public void beginTransaction() {
        transacts = true;
    }

    public void commitTransaction() {
        asked += transacts ? 1 : 0;
        transacts = false;
    }
}
