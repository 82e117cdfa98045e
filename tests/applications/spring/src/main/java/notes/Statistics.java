package notes;

import java.time.Instant;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.stereotype.Service;

/** What is counted seldom: each says when. */
@Service
@EnableCaching
public class Statistics {
    public record Counted(long notes, Instant at) {}

    private final Notes notes;

    Statistics(Notes notes) {
        this.notes = notes;
    }

    @Cacheable("counted")
    public Counted count() {
        return new Counted(notes.count(), Instant.now());
    }
}
