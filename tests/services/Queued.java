package io.vertx.core.http.impl;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Instant;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A request that comes while the one before on its connection is not over waits, and is begun by who ends that one: java Queued.java PORT. It says so as Vert.x
 * does. An answer is not over until the next request has come, or a little later.
 */
public class Queued {
    static final ExecutorService WORKERS = Executors.newFixedThreadPool(8);

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        while (true) {
            Http1xServerConnection connection = new Http1xServerConnection(server.accept());
            new Thread(connection::read).start();
        }
    }
}

class Http1xServerRequest {
    Http1xServerRequest next;

    void enqueue(Http1xServerRequest request) {
        next = request;
    }
}

class Http1xServerConnection {
    final Socket client;
    Http1xServerRequest responseInProgress;

    Http1xServerConnection(Socket client) {
        this.client = client;
    }

    void read() {
        try (client) {
            BufferedReader reader = new BufferedReader(new InputStreamReader(client.getInputStream()));
            String line = reader.readLine();
            while (line != null) {
                if (line.isEmpty()) {
                    handleMessage(new Http1xServerRequest());
                }
                line = reader.readLine();
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    synchronized void handleMessage(Http1xServerRequest request) {
        if (responseInProgress == null) {
            handleNext(request);
        } else {
            responseInProgress.enqueue(request);
            notifyAll();
        }
    }

    private void handleNext(Http1xServerRequest request) {
        responseInProgress = request;
        Queued.WORKERS.execute(() -> answer(request));
    }

    void answer(Http1xServerRequest request) {
        String answer = UUID.randomUUID() + " " + Instant.now();
        String head = "HTTP/1.1 200 OK\r\nContent-Length: " + answer.length();
        try {
            client.getOutputStream().write((head + "\r\n\r\n" + answer).getBytes());
            responseComplete(request);
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    synchronized void responseComplete(Http1xServerRequest request) throws Exception {
        if (request.next == null) {
            wait(200);
        }
        responseInProgress = null;
        if (request.next != null) {
            handleNext(request.next);
        }
    }
}
