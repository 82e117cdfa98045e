package notes;

import java.security.Principal;
import java.time.Instant;
import java.util.UUID;
import org.springframework.stereotype.Controller;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.ui.Model;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.ResponseBody;

@Controller
public class Pages {
    private final People people;
    private final Notes notes;
    private final Statistics statistics;

    Pages(People people, Notes notes, Statistics statistics) {
        this.people = people;
        this.notes = notes;
        this.statistics = statistics;
    }

    @GetMapping("/login")
    String login() {
        return "login";
    }

    @GetMapping("/notes")
    String list(Model model) {
        model.addAttribute("notes", notes.findTop20ByOrderByIdDesc());
        model.addAttribute("counted", notes.counted());
        // The change that a retroaction is tried with: lists show when a note was written.
        model.addAttribute("dated", System.getenv("CHANGED") != null);
        return "list";
    }

    @GetMapping("/statistics")
    @ResponseBody
    Statistics.Counted statistics() {
        return statistics.count();
    }

    @GetMapping("/notes/add")
    String form(Model model) {
        model.addAttribute("note", new Note());
        return "form";
    }

    @PostMapping("/notes/add")
    @Transactional
    public String add(@RequestParam("text") String text, Principal user) {
        Person owner = people.findByName(user.getName()).orElseThrow();
        write(owner, text);
        // Another change: each is written twice.
        if (System.getenv("TWICE") != null) {
            write(owner, "again: " + text);
        }
        owner.notes++;
        notes.countOne();
        return "redirect:/notes";
    }

    private void write(Person owner, String text) {
        Note note = new Note();
        note.owner = owner;
        note.token = UUID.randomUUID();
        note.text = text;
        note.written = Instant.now();
        notes.save(note);
    }

    @GetMapping("/notes/{id}")
    String show(@PathVariable("id") long id, Model model) {
        model.addAttribute("note", notes.findById(id).orElseThrow());
        return "form";
    }

    @PostMapping("/notes/{id}")
    @Transactional
    public String change(@PathVariable("id") long id, @RequestParam("text") String text) {
        Note note = notes.findById(id).orElseThrow();
        note.text = text;
        note.written = Instant.now();
        return "redirect:/notes";
    }
}
