package com.zaxxer.hikari;

import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.util.ArrayDeque;

/**
 * A pool that asks for its limit where HikariCP does: java Pooled.java PORT. Its one connection goes back to the pool between transactions. LATE says which
 * request pauses before it takes it: "first" before its second transaction, or "second".
 */
public class Pooled {
    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        Service service = new Service();
        while (true) {
            Socket client = server.accept();
            new Thread(() -> service.serve(client)).start();
        }
    }
}

class HikariConfig {
    private final int maxPoolSize = 1;

    public int getMaximumPoolSize() {
        return maxPoolSize;
    }
}

/** A session without TLS and a password, that asks one thing at a time. */
class Session {
    final DataInputStream in;
    final DataOutputStream out;

    Session(URI url) throws Exception {
        Socket socket = new Socket(url.getHost(), url.getPort());
        in = new DataInputStream(socket.getInputStream());
        out = new DataOutputStream(socket.getOutputStream());
        String database = url.getPath().substring(1);
        String user = url.getUserInfo().split(":")[0];
        byte[] start = ("user\0" + user + "\0database\0" + database + "\0\0").getBytes();
        byte[] message = new byte[8 + start.length];
        java.nio.ByteBuffer.wrap(message).putInt(message.length).putInt(3 << 16).put(start);
        out.write(message);
        answer();
    }

    /** The first value, if there is one. */
    String ask(String statement) throws Exception {
        byte[] text = (statement + "\0").getBytes();
        byte[] message = new byte[5 + text.length];
        java.nio.ByteBuffer.wrap(message).put((byte) 'Q').putInt(4 + text.length).put(text);
        out.write(message);
        return answer();
    }

    private String answer() throws Exception {
        String value = "";
        while (true) {
            char kind = (char) in.readByte();
            byte[] body = new byte[in.readInt() - 4];
            in.readFully(body);
            if (kind == 'D') {
                value = new String(body, 6, body.length - 6);
            } else if (kind == 'E') {
                throw new Exception(new String(body));
            } else if (kind == 'Z') {
                return value;
            }
        }
    }
}

class Pool {
    final HikariConfig config = new HikariConfig();
    final ArrayDeque<Session> idle = new ArrayDeque<>();
    final URI url = URI.create(System.getenv("DATABASE_URL"));
    int open;

    synchronized Session take() throws Exception {
        while (idle.isEmpty()) {
            if (open < config.getMaximumPoolSize()) {
                open++;
                return new Session(url);
            }
            wait();
        }
        return idle.pop();
    }

    synchronized void giveBack(Session session) {
        idle.push(session);
        notify();
    }

    String ask(String statement) throws Exception {
        Session session = take();
        String value = session.ask(statement);
        giveBack(session);
        return value;
    }
}

class Service {
    final Pool pool = new Pool();

    void pauses(String which) throws Exception {
        if (which.equals(System.getenv("LATE"))) {
            Thread.sleep(1000);
        }
    }

    String answer(String target) throws Exception {
        if (target.equals("/first")) {
            pool.ask("INSERT INTO written VALUES ('first')");
            pauses("first");
        } else {
            pauses("second");
            pool.ask("INSERT INTO written VALUES ('second')");
        }
        return pool.ask("SELECT count(*) FROM written");
    }

    void serve(Socket client) {
        try (client) {
            BufferedReader reader = new BufferedReader(new InputStreamReader(client.getInputStream()));
            String line = reader.readLine();
            if (line == null) {
                return;
            }
            String answer = answer(line.split(" ")[1]);
            String head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + answer.length();
            client.getOutputStream().write((head + "\r\n\r\n" + answer).getBytes());
        } catch (Exception error) {
            error.printStackTrace();
        }
    }
}
