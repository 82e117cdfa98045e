package org.eclipse.persistence.sequencing;

import java.util.Vector;
import org.eclipse.persistence.internal.databaseaccess.Accessor;
import org.eclipse.persistence.internal.sessions.AbstractSession;

public abstract class Sequence {
    public String getName() {
        return "numbers";
    }

    public boolean shouldUsePreallocation() {
        return true;
    }

    public boolean shouldUseTransaction() {
        return true;
    }

    public Vector<?> getGeneratedVector(Accessor accessor, AbstractSession session) {
        return getGeneratedVector(accessor, session, getName(), 5);
    }

    public abstract Vector<?> getGeneratedVector(Accessor accessor, AbstractSession session, String name, int size);
}
