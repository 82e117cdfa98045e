package notes;

import java.util.Optional;
import org.springframework.data.jpa.repository.JpaRepository;

public interface People extends JpaRepository<Person, Long> {
    Optional<Person> findByName(String name);
}
