package serving;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.ExecutorService;

/** Answers each request in a thread of a pool. */
public class Serving {
    /** What a request for this path is answered. */
    public interface Answers {
        String answer(String path) throws Exception;
    }

    public static void run(ServerSocket server, ExecutorService workers, Answers answers) throws Exception {
        while (true) {
            Socket client = server.accept();
            workers.execute(() -> {
                try (client) {
                    BufferedReader reader = new BufferedReader(new InputStreamReader(client.getInputStream()));
                    String line = reader.readLine();
                    if (line == null) {
                        return;
                    }
                    String answer = answers.answer(line.split(" ")[1]);
                    String head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + answer.length();
                    client.getOutputStream().write((head + "\r\n\r\n" + answer).getBytes());
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
        }
    }
}
