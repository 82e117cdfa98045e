package ids;

import cn.hutool.core.lang.Snowflake;
import com.fasterxml.uuid.impl.TimeBasedGenerator;
import io.hypersistence.tsid.TSID;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import serving.Serving;

/**
 * Ids that are made of the time, by what is called as libraries' generators: java Ids.java PORT MS. A request for / gets one of each, twice; one for /late a little
 * later: after so many milliseconds.
 */
public class Ids {
    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 50, InetAddress.getLoopbackAddress());
        int pause = Integer.parseInt(arguments[1]);
        TimeBasedGenerator uuids = new TimeBasedGenerator();
        Snowflake snowflakes = new Snowflake();
        TSID.Factory tsids = new TSID.Factory();
        ExecutorService workers = Executors.newFixedThreadPool(4);
        Serving.run(server, workers, path -> {
            if (path.equals("/late")) {
                Thread.sleep(pause);
            }
            StringBuilder made = new StringBuilder();
            for (int round = 0; round < 2; round += 1) {
                made.append(uuids.generate()).append(' ').append(snowflakes.nextId()).append(' ').append(tsids.generate().toLong()).append('\n');
            }
            // The next one comes before this is answered.
            Thread.sleep(200);
            return made.toString();
        });
    }
}
