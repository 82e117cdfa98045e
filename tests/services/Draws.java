import com.sun.net.httpserver.HttpServer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.SecureRandom;
import java.time.Instant;
import java.util.Date;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Answers with what a way to draw, or to read the clock, gives: java Draws.java PORT [loop]. GET / lists the ways.
 * With loop, one thread reads all requests, and hands each to a pool.
 */
public class Draws {
    static final SecureRandom SHARED = new SecureRandom();
    /** As a server gives itself a name, which its answers have. */
    static final String NAME = Math.random() + "-" + ThreadLocalRandom.current().nextLong(1 << 16)
            + "-" + UUID.randomUUID();
    static final TreeMap<String, Callable<Object>> WAYS = new TreeMap<>();

    /** Programs compute keys so: it gives what its seed says. */
    static int seeded() throws Exception {
        SecureRandom generator = SecureRandom.getInstance("SHA1PRNG");
        generator.setSeed(7);
        return generator.nextInt();
    }

    static {
        WAYS.put("secure", () -> SHARED.nextLong());
        WAYS.put("own", () -> new SecureRandom().nextLong());
        WAYS.put("strong", () -> SecureRandom.getInstanceStrong().nextLong());
        WAYS.put("seed", () -> new java.math.BigInteger(SHARED.generateSeed(16)));
        WAYS.put("sha1", () -> SecureRandom.getInstance("SHA1PRNG").nextLong());
        WAYS.put("drbg", () -> SecureRandom.getInstance("DRBG").nextLong());
        WAYS.put("uuid", () -> UUID.randomUUID());
        WAYS.put("random", () -> new Random().nextLong());
        WAYS.put("splittable", () -> new SplittableRandom().nextLong());
        WAYS.put("local", () -> ThreadLocalRandom.current().nextLong());
        WAYS.put("math", () -> Math.random() + StrictMath.random());
        WAYS.put("name", () -> NAME + " " + UUID.randomUUID());
        WAYS.put("instant", () -> Instant.now());
        WAYS.put("date", () -> new Date().getTime() + " " + System.nanoTime() * 0);
        // As many as there are, since a service may say them in any order.
        WAYS.put("order", () -> Map.of("a", 1, "b", 2, "c", 3, "d", 4) + "" + Set.of(5, 6) + UUID.randomUUID());
    }

    static String answer(String way) {
        try {
            return way.isEmpty()
                    ? "[\"" + String.join("\",\"", WAYS.keySet()) + "\"]"
                    : "\"" + WAYS.get(way).call() + "\"";
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    /** One request of a connection, whose answer is the work of another thread. */
    static void hand(Socket client, ExecutorService pool) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(client.getInputStream()));
        String line = reader.readLine();
        if (line == null) {
            // Somebody looked whether it listens.
            client.close();
            return;
        }
        String way = line.split(" ")[1].substring(1);
        while (!reader.readLine().isEmpty()) {}
        pool.execute(() -> {
            String answer = answer(way);
            String head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + answer.length();
            try (client) {
                client.getOutputStream().write((head + "\r\n\r\n" + answer).getBytes());
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        ExecutorService pool = Executors.newFixedThreadPool(4);
        if (arguments.length > 1) {
            ServerSocket server = new ServerSocket(port, 50, InetAddress.getLoopbackAddress());
            while (true) {
                hand(server.accept(), pool);
            }
        }
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
        server.setExecutor(pool);
        int seeded = seeded();
        server.createContext("/", exchange -> {
            String answer = answer(exchange.getRequestURI().getPath().substring(1));
            int status;
            try {
                status = seeded() == seeded ? 200 : 500;
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
            exchange.sendResponseHeaders(status, answer.length());
            exchange.getResponseBody().write(answer.getBytes());
            exchange.close();
        });
        server.start();
    }
}
