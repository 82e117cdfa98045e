package io.netty.util.concurrent;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * One loop reads all requests and writes to the database, and goes on when that has answered: java Looped.java PORT. It says that it is a loop as Netty's does.
 * A request asks twice, and works in a thread of a pool, a little later, in between. Then it has a session made that others may take.
 */
public class Looped {
    static final ScheduledExecutorService LATER = Executors.newScheduledThreadPool(2);

    static CompletableFuture<String> answer(Loop loop, Sessions sessions) {
        return sessions.ask("SELECT count(*) FROM note, pg_sleep(0.01)")
                .thenCompose(count -> later(loop))
                .thenCompose(drawn -> {
                    sessions.makeSpare();
                    String values = "('" + UUID.randomUUID() + "', '" + drawn + "', '" + Instant.now() + "')";
                    return sessions.ask("INSERT INTO note VALUES " + values + " RETURNING id");
                });
    }

    /** Drawn in another thread. The loop goes on with it. */
    static CompletableFuture<String> later(Loop loop) {
        CompletableFuture<String> drawn = new CompletableFuture<>();
        LATER.schedule(
                () -> {
                    String value = UUID.randomUUID().toString();
                    loop.execute(() -> drawn.complete(value));
                },
                5,
                TimeUnit.MILLISECONDS);
        return drawn;
    }

    public static void main(String[] arguments) throws Exception {
        Loop loop = new Loop();
        Sessions sessions = new Sessions(loop);
        ServerSocketChannel server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[0])));
        loop.watch(server, SelectionKey.OP_ACCEPT, () -> {
            SocketChannel client = server.accept();
            StringBuilder read = new StringBuilder();
            loop.watch(client, SelectionKey.OP_READ, () -> {
                byte[] bytes = loop.read(client);
                read.append(new String(bytes));
                if (bytes.length > 0 && read.indexOf("\r\n\r\n") > 0) {
                    read.setLength(0);
                    answer(loop, sessions).thenAccept(answer -> loop.write(client, http(answer)));
                }
            });
        });
        loop.run();
    }

    static byte[] http(String answer) {
        return ("HTTP/1.1 200 OK\r\nContent-Length: " + answer.length() + "\r\n\r\n" + answer).getBytes();
    }
}

class AbstractEventExecutor {
    static void runTask(Runnable task) {
        task.run();
    }
}

/** What a loop of Netty's is called, as far as it is looked at. */
class SingleThreadEventExecutor extends AbstractEventExecutor {
    final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();

    public void execute(Runnable task) {
        tasks.add(task);
    }

    boolean runAllTasks() {
        Runnable task = tasks.poll();
        boolean any = task != null;
        while (task != null) {
            runTask(task);
            task = tasks.poll();
        }
        return any;
    }
}

class Loop extends SingleThreadEventExecutor {
    interface Step {
        void run() throws Exception;
    }

    final Selector selector;

    Loop() throws Exception {
        selector = Selector.open();
    }

    @Override
    public void execute(Runnable task) {
        super.execute(task);
        selector.wakeup();
    }

    void watch(SelectableChannel channel, int what, Step step) throws Exception {
        channel.configureBlocking(false);
        channel.register(selector, what, step);
    }

    /** Nothing where the other end has closed it. */
    byte[] read(SocketChannel channel) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        if (channel.read(buffer) < 0) {
            channel.close();
        }
        byte[] bytes = new byte[buffer.position()];
        buffer.flip().get(bytes);
        return bytes;
    }

    void write(SocketChannel channel, byte[] bytes) {
        try {
            channel.write(ByteBuffer.wrap(bytes));
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    void run() throws Exception {
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                ((Step) key.attachment()).run();
            }
            selector.selectedKeys().clear();
            runAllTasks();
        }
    }
}

/** Sessions with the database, without TLS and a password. Each is made when it is needed, and then kept. */
class Sessions {
    final Loop loop;
    final ArrayDeque<Session> idle = new ArrayDeque<>();

    Sessions(Loop loop) {
        this.loop = loop;
    }

    /** While the request that had it made goes on. */
    void makeSpare() {
        try {
            Session session = new Session(this);
            session.start().thenAccept(nothing -> idle.push(session));
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    CompletableFuture<String> ask(String statement) {
        try {
            boolean any = !idle.isEmpty();
            Session session = any ? idle.pop() : new Session(this);
            CompletableFuture<Void> ready = any ? CompletableFuture.completedFuture(null) : session.start();
            return ready.thenCompose(nothing -> session.send('Q', statement + "\0")).thenApply(value -> {
                idle.push(session);
                return value;
            });
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }
}

class Session {
    final Sessions all;
    final SocketChannel channel;
    final URI url = URI.create(System.getenv("DATABASE_URL"));
    final List<byte[]> read = new ArrayList<>();
    CompletableFuture<String> answer;

    Session(Sessions all) throws Exception {
        this.all = all;
        channel = SocketChannel.open(new InetSocketAddress(url.getHost(), url.getPort()));
        all.loop.watch(channel, SelectionKey.OP_READ, this::goOn);
    }

    CompletableFuture<Void> start() {
        String user = url.getUserInfo().split(":")[0];
        byte[] start = ("user\0" + user + "\0database\0" + url.getPath().substring(1) + "\0\0").getBytes();
        ByteBuffer message = ByteBuffer.allocate(8 + start.length);
        message.putInt(message.capacity()).putInt(3 << 16).put(start);
        answer = new CompletableFuture<>();
        all.loop.write(channel, message.array());
        return answer.thenApply(value -> null);
    }

    CompletableFuture<String> send(char kind, String text) {
        ByteBuffer message = ByteBuffer.allocate(5 + text.getBytes().length);
        message.put((byte) kind).putInt(message.capacity() - 1).put(text.getBytes());
        answer = new CompletableFuture<>();
        all.loop.write(channel, message.array());
        return answer;
    }

    /** What is read is an answer if it ends with the server being ready. */
    void goOn() throws Exception {
        read.add(all.loop.read(channel));
        ByteBuffer bytes = ByteBuffer.allocate(read.stream().mapToInt(part -> part.length).sum());
        read.forEach(bytes::put);
        bytes.flip();
        String value = "";
        while (bytes.remaining() >= 5 && bytes.remaining() > bytes.getInt(bytes.position() + 1)) {
            char kind = (char) bytes.get();
            byte[] body = new byte[bytes.getInt() - 4];
            bytes.get(body);
            if (kind == 'D') {
                value = new String(body, 6, body.length - 6);
            } else if (kind == 'E') {
                throw new Exception(new String(body));
            } else if (kind == 'Z') {
                read.clear();
                answer.complete(value);
                return;
            }
        }
    }
}
