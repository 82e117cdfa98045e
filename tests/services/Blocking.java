package io.vertx.core.impl;

import io.vertx.core.spi.metrics.PoolMetrics;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Requests have their answers from a queue, which one thread of a pool works off as long as there is something in it: java Blocking.java PORT. It is said as
 * Vert.x does.
 */
public class Blocking {
    static final ExecutorService WORKERS = Executors.newFixedThreadPool(8);
    static final Queue<Runnable> QUEUE = new ArrayDeque<>();
    static boolean isWorkedOff;

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        while (true) {
            Socket client = server.accept();
            new Thread(() -> read(client)).start();
        }
    }

    static void read(Socket client) {
        try {
            BufferedReader reader = new BufferedReader(new InputStreamReader(client.getInputStream()));
            String line = reader.readLine();
            while (line != null && !line.isEmpty()) {
                line = reader.readLine();
            }
            if (line == null) {
                // Nothing is asked: a request that was sent twice has been taken by another thread.
                client.close();
                return;
            }
            execute(new WorkerTask(null, null) {
                @Override
                protected void execute() throws Exception {
                    answer(client);
                }
            });
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    static synchronized void execute(Runnable task) {
        QUEUE.add(task);
        if (!isWorkedOff) {
            isWorkedOff = true;
            WORKERS.execute(Blocking::workOff);
        }
    }

    static void workOff() {
        while (true) {
            Runnable task;
            synchronized (Blocking.class) {
                task = QUEUE.poll();
                if (task == null) {
                    isWorkedOff = false;
                    return;
                }
            }
            task.run();
        }
    }

    static void answer(Socket client) throws Exception {
        // Others come meanwhile.
        Thread.sleep(20);
        String answer = UUID.randomUUID() + " " + Instant.now();
        String head = "HTTP/1.1 200 OK\r\nContent-Length: " + answer.length();
        client.getOutputStream().write((head + "\r\n\r\n" + answer).getBytes());
        client.close();
    }
}

abstract class WorkerTask extends AtomicInteger implements Runnable {
    WorkerTask(PoolMetrics metrics, Object metric) {}

    @Override
    public void run() {
        try {
            execute();
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    protected abstract void execute() throws Exception;
}
