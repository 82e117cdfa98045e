package org.apache.pekko.actor;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Instant;
import java.util.UUID;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.pekko.dispatch.Envelope;

/**
 * One thread reads requests, and an actor answers them: java org.apache.pekko.actor.Acting PORT. It works off the latest first, and sends itself the second
 * half of each, so it is now at this request and now at that one.
 */
public class Acting {
    static final LinkedBlockingDeque<Envelope> MAILBOX = new LinkedBlockingDeque<>();

    static String drawn() {
        return UUID.randomUUID() + " " + ThreadLocalRandom.current().nextLong() + " " + Instant.now();
    }

    static void send(Runnable work) {
        MAILBOX.addFirst(new Envelope(work, new ActorRef()));
    }

    static boolean reads(Socket client) throws Exception {
        byte[] head = new byte[4096];
        return client.getInputStream().read(head) > 0;
    }

    static void answers(Socket client, String first) {
        String answer = first + "\n" + drawn();
        String head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + answer.length();
        try (client) {
            client.getOutputStream().write((head + "\r\n\r\n" + answer).getBytes());
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static void works() {
        ActorCell cell = new ActorCell();
        try {
            while (true) {
                // Several have been sent by then.
                Thread.sleep(5);
                cell.invoke(MAILBOX.take());
            }
        } catch (InterruptedException end) {
            return;
        }
    }

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        Thread actor = new Thread(Acting::works);
        actor.setDaemon(true);
        actor.start();
        while (true) {
            Socket client = server.accept();
            if (!reads(client)) {
                client.close();
                continue;
            }
            send(() -> {
                String first = drawn();
                send(() -> answers(client, first));
            });
        }
    }
}
