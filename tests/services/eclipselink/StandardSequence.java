package org.eclipse.persistence.sequencing;

import java.util.Vector;
import org.eclipse.persistence.internal.databaseaccess.Accessor;
import org.eclipse.persistence.internal.sessions.AbstractSession;

public class StandardSequence extends Sequence {
    private long last;

    @Override
    public synchronized Vector<?> getGeneratedVector(Accessor accessor, AbstractSession session, String name, int size) {
        Vector<Long> numbers = new Vector<>();
        for (int i = 0; i < size; i++) {
            numbers.add(++last);
        }
        return numbers;
    }
}
