import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.Executors;
import serving.Serving;

/**
 * Answers with a set of what has no hash of its own: classes, and the constants of an enum: java Hashed.java PORT OBJECTS. Before it makes the set it asks so many other
 * objects for theirs.
 */
public class Hashed {
    enum Kind { NEW, PAID, SENT, LOST, FOUND, BACK }

    static class One {}

    static class Other {}

    interface Third {}

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        int others = Integer.parseInt(arguments[1]);
        Serving.run(server, Executors.newFixedThreadPool(4), path -> {
            for (int other = 0; other < others; other += 1) {
                new Object().hashCode();
            }
            Set<Object> all = new HashSet<>(Arrays.asList((Object[]) Kind.values()));
            all.addAll(Arrays.asList(One.class, Other.class, Third.class, Hashed.class, Math.class));
            return all.toString();
        });
    }
}
