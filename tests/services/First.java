import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.rmi.server.UID;
import java.time.Instant;
import java.util.Date;
import java.util.UUID;
import java.util.concurrent.Executors;

/**
 * Each answer says an id and the time: java First.java PORT [filled]. The first request fills a cache, for which it draws and reads the clock, too; with
 * filled, it is full from the beginning.
 */
public class First {
    static String answer() {
        // A class of the runtime, which reads the clock when it is first used.
        new UID();
        String now = Instant.now() + " " + new Date().getTime();
        Cache.get();
        return UUID.randomUUID() + " " + now + " " + System.currentTimeMillis() + " " + Cache.get().length();
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        if (arguments.length > 1) {
            new UID();
            Cache.get();
        }
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            byte[] answer = answer().getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
    }
}

class Cache {
    static String kept;
    static long until;

    /** Looks each time whether what it has is too old. */
    static synchronized String get() {
        if (kept == null || until < System.currentTimeMillis()) {
            fill();
        }
        return kept;
    }

    static void fill() {
        kept = UUID.randomUUID().toString();
        until = Math.max(System.currentTimeMillis(), Instant.now().toEpochMilli()) + 3_600_000;
    }
}
