package notes;

import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Version;
import java.time.Instant;
import java.util.UUID;

@Entity
public class Note {
    /** From a sequence, of which Hibernate takes 50 numbers at a time. */
    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE)
    public Long id;
    @ManyToOne
    @JoinColumn(name = "owner")
    public Person owner;
    public UUID token;
    public String text;
    public Instant written;
    @Version
    public int version;
}
