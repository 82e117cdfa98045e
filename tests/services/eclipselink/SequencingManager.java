package org.eclipse.persistence.internal.sequencing;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.Executors;
import org.eclipse.persistence.internal.sessions.AbstractSession;
import org.eclipse.persistence.sequencing.Sequence;
import org.eclipse.persistence.sequencing.StandardSequence;
import serving.Serving;

/**
 * Ids of a sequence, given as EclipseLink gives them, as far as that is looked at: java SequencingManager PORT MS. A request is given three, and told how often the
 * database was asked for them; one for /late begins so many milliseconds later.
 */
public class SequencingManager {
    private final Sequence sequence = new StandardSequence();
    private final Queue<Object> stock = new ArrayDeque<>();

    protected Sequence getSequence(Class<?> of) {
        return sequence;
    }

    public Object getNextValue(AbstractSession session, Class<?> of) {
        synchronized (stock) {
            if (stock.isEmpty()) {
                session.beginTransaction();
                stock.addAll(getSequence(of).getGeneratedVector(null, session));
                session.commitTransaction();
            }
            return stock.remove();
        }
    }

    public static void main(String[] args) throws Exception {
        SequencingManager ids = new SequencingManager();
        ServerSocket server = new ServerSocket(Integer.parseInt(args[0]), 50, InetAddress.getLoopbackAddress());
        Serving.run(server, Executors.newFixedThreadPool(4), path -> {
            Thread.sleep(path.equals("/late") ? Integer.parseInt(args[1]) : 0);
            AbstractSession session = new AbstractSession();
            StringBuilder given = new StringBuilder();
            for (Class<?> of : new Class<?>[] {String.class, Integer.class, String.class}) {
                given.append(ids.getNextValue(session, of)).append('\n');
            }
            return given.append(session.asked).append('\n').toString();
        });
    }
}
