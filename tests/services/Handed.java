import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Instant;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * What a request draws in threads that are not the one that reads it: java Handed.java PORT (pools | virtual). With pools, a thread reads others while a
 * request that it has read has no answer; with virtual, each connection has a thread of the machine's.
 */
public class Handed {
    /** Made after Java's as many are: it does not call what it overrides. */
    static class Pool extends ThreadPoolExecutor {
        Pool(int size) {
            super(size, size, 0, TimeUnit.SECONDS, new LinkedBlockingQueue<>());
        }

        @Override
        protected void beforeExecute(Thread thread, Runnable work) {}

        @Override
        protected void afterExecute(Runnable work, Throwable error) {}
    }

    /** False: somebody looked whether it listens. */
    static boolean reads(Socket client) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(client.getInputStream()));
        String line = reader.readLine();
        while (line != null && !line.isEmpty()) {
            line = reader.readLine();
        }
        return line != null;
    }

    static String drawn() {
        return UUID.randomUUID() + " " + Math.random() + " " + Instant.now();
    }

    static void answers(Socket client) throws Exception {
        // Others are read meanwhile.
        Thread.sleep(20);
        CompletableFuture<String> parts =
                CompletableFuture.supplyAsync(Handed::drawn).thenApplyAsync(drawn -> drawn + "\n" + drawn());
        String answer = parts.get() + "\n" + drawn() + "\n" + client.getInetAddress().getHostAddress();
        String head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + answer.length();
        client.getOutputStream().write((head + "\r\n\r\n" + answer).getBytes());
    }

    interface Step {
        void run() throws Exception;
    }

    static Runnable work(Step step) {
        return () -> {
            try {
                step.run();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        };
    }

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        boolean isVirtual = arguments[1].equals("virtual");
        ExecutorService readers =
                isVirtual
                        ? (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null)
                        : new Pool(2);
        ExecutorService workers = isVirtual ? readers : new Pool(8);
        while (true) {
            Socket client = server.accept();
            readers.execute(work(() -> {
                if (!reads(client)) {
                    client.close();
                    return;
                }
                workers.execute(work(() -> {
                    try (client) {
                        answers(client);
                    }
                }));
            }));
        }
    }
}
