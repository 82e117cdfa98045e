package notes;

import java.util.List;
import org.springframework.data.jpa.repository.JpaRepository;
import org.springframework.data.jpa.repository.Modifying;
import org.springframework.data.jpa.repository.Query;

public interface Notes extends JpaRepository<Note, Long> {
    List<Note> findTop20ByOrderByIdDesc();

    /** All notes of all, counted in one row: who writes waits for whoever writes. */
    @Modifying
    @Query(value = "UPDATE board SET notes = notes + 1 WHERE id = 1", nativeQuery = true)
    void countOne();

    @Query(value = "SELECT notes FROM board WHERE id = 1", nativeQuery = true)
    int counted();
}
