// Notes of several users: forms with logins and tokens against forged ones, and an API for who has
// a token. What it uses is as it comes from its authors.
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"html/template"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/justinas/nosurf"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"golang.org/x/crypto/bcrypt"
)

type note struct {
	ID      uuid.UUID `json:"id"`
	Text    string    `json:"text"`
	Number  int       `json:"number"`
	Changed time.Time `json:"changed"`
}

type server struct {
	db       *pgxpool.Pool
	sessions *scs.SessionManager
	title    string
}

var pages = template.Must(template.New("").Parse(`
{{define "head"}}<!doctype html><meta name="csrf-token" content="{{.Token}}"><title>Notes</title>{{end}}
{{define "csrf"}}<input type="hidden" name="csrf_token" value="{{.Token}}">{{end}}
{{define "login"}}{{template "head" .}}<form method="post">{{template "csrf" .}}<input name="name"><input name="password" type="password"></form>{{end}}
{{define "list"}}{{template "head" .}}<h1>{{.Title}}{{.Person}}</h1><ul>{{range .Notes}}
<li><a href="/notes/{{.ID}}">{{.Number}}: {{.Text}}</a> {{.Changed.UTC.Format "2006-01-02 15:04:05"}}</li>{{end}}</ul>{{end}}
{{define "form"}}{{template "head" .}}<form method="post">{{template "csrf" .}}<input name="text" value="{{.Note.Text}}"></form>{{end}}
`))

func (s *server) page(w http.ResponseWriter, r *http.Request, name string, values map[string]any) {
	values["Token"] = nosurf.Token(r)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := pages.ExecuteTemplate(w, name, values); err != nil {
		log.Print(err)
	}
}

func fail(w http.ResponseWriter, err error) {
	if errors.Is(err, pgx.ErrNoRows) {
		http.Error(w, "there is no such thing", http.StatusNotFound)
		return
	}
	log.Print(err)
	http.Error(w, "that failed", http.StatusInternalServerError)
}

// Who has this name and password; 0: nobody.
func (s *server) person(ctx context.Context, name, password string) (id int64, err error) {
	var hash []byte
	err = s.db.QueryRow(ctx, "SELECT id, password_hash FROM person WHERE name = $1", name).Scan(&id, &hash)
	if err == nil && bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil {
		return 0, nil
	}
	return id, err
}

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	id, err := s.person(r.Context(), r.FormValue("name"), r.FormValue("password"))
	if err == nil && id == 0 {
		http.Error(w, "that is not the password", http.StatusForbidden)
		return
	}
	if err == nil {
		err = s.sessions.RenewToken(r.Context())
	}
	if err != nil {
		fail(w, err)
		return
	}
	s.sessions.Put(r.Context(), "person", id)
	s.sessions.Put(r.Context(), "name", r.FormValue("name"))
	http.Redirect(w, r, "/notes", http.StatusSeeOther)
}

func (s *server) loggedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.sessions.GetInt64(r.Context(), "person") == 0 {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) latest(ctx context.Context, person int64) ([]note, error) {
	rows, err := s.db.Query(ctx, "SELECT id, text, number, changed FROM note WHERE person = $1 ORDER BY number DESC LIMIT 20", person)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[note])
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	notes, err := s.latest(r.Context(), s.sessions.GetInt64(r.Context(), "person"))
	if err != nil {
		fail(w, err)
		return
	}
	s.page(w, r, "list", map[string]any{"Notes": notes, "Title": s.title, "Person": s.sessions.GetString(r.Context(), "name")})
}

// Notes are numbered through, over all who write them.
func (s *server) write(ctx context.Context, person int64, text string) (written note, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		written = note{ID: uuid.Must(uuid.NewV7()), Text: text, Changed: time.Now()}
		insert := "INSERT INTO note (id, person, text, changed) VALUES ($1, $2, $3, $4) RETURNING number"
		err := tx.QueryRow(ctx, insert, written.ID, person, text, written.Changed).Scan(&written.Number)
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE person SET notes = notes + 1 WHERE id = $1", person)
		}
		return err
	})
	return written, err
}

func (s *server) add(w http.ResponseWriter, r *http.Request) {
	written, err := s.write(r.Context(), s.sessions.GetInt64(r.Context(), "person"), r.FormValue("text"))
	if err != nil {
		fail(w, err)
		return
	}
	http.Redirect(w, r, "/notes/"+written.ID.String(), http.StatusSeeOther)
}

func (s *server) show(w http.ResponseWriter, r *http.Request) {
	var found note
	find := "SELECT id, text, number, changed FROM note WHERE id = $1"
	err := s.db.QueryRow(r.Context(), find, chi.URLParam(r, "id")).Scan(&found.ID, &found.Text, &found.Number, &found.Changed)
	if err != nil {
		fail(w, err)
		return
	}
	s.page(w, r, "form", map[string]any{"Note": found})
}

func (s *server) change(w http.ResponseWriter, r *http.Request) {
	update := "UPDATE note SET text = $1, changed = $2 WHERE id = $3 AND person = $4"
	person := s.sessions.GetInt64(r.Context(), "person")
	done, err := s.db.Exec(r.Context(), update, r.FormValue("text"), time.Now(), chi.URLParam(r, "id"), person)
	if err == nil && done.RowsAffected() == 0 {
		err = pgx.ErrNoRows
	}
	if err != nil {
		fail(w, err)
		return
	}
	http.Redirect(w, r, "/notes", http.StatusSeeOther)
}

func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(what); err != nil {
		log.Print(err)
	}
}

// Gives out a token for the API, of which the database has a hash.
func (s *server) token(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Name, Password string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, "that is no JSON", http.StatusBadRequest)
		return
	}
	id, err := s.person(r.Context(), asked.Name, asked.Password)
	if err == nil && id == 0 {
		http.Error(w, "that is not the password", http.StatusForbidden)
		return
	}
	token := rand.Text()
	if err == nil {
		hash := sha256.Sum256([]byte(token))
		_, err = s.db.Exec(r.Context(), "INSERT INTO token (hash, person) VALUES ($1, $2)", hash[:], id)
	}
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, map[string]string{"token": token})
}

type personKey struct{}

func (s *server) byToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		hash := sha256.Sum256([]byte(token))
		var person int64
		err := s.db.QueryRow(r.Context(), "SELECT person FROM token WHERE hash = $1", hash[:]).Scan(&person)
		if errors.Is(err, pgx.ErrNoRows) {
			http.Error(w, "that is no token", http.StatusUnauthorized)
			return
		}
		if err != nil {
			fail(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), personKey{}, person)))
	})
}

func (s *server) listNotes(w http.ResponseWriter, r *http.Request) {
	notes, err := s.latest(r.Context(), r.Context().Value(personKey{}).(int64))
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, notes)
}

func (s *server) addNote(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Text string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, "that is no JSON", http.StatusBadRequest)
		return
	}
	written, err := s.write(r.Context(), r.Context().Value(personKey{}).(int64), asked.Text)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, written)
}

func (s *server) routes() http.Handler {
	forms := func(next http.Handler) http.Handler {
		checked := nosurf.New(next)
		checked.SetBaseCookie(http.Cookie{Path: "/", HttpOnly: true, MaxAge: nosurf.MaxAge})
		checked.SetIsTLSFunc(func(*http.Request) bool { return false })
		return s.sessions.LoadAndSave(checked)
	}
	router := chi.NewRouter()
	router.Use(middleware.Recoverer)
	router.Group(func(router chi.Router) {
		router.Use(forms)
		router.Get("/login", func(w http.ResponseWriter, r *http.Request) { s.page(w, r, "login", map[string]any{}) })
		router.Post("/login", s.login)
		router.Group(func(router chi.Router) {
			router.Use(s.loggedIn)
			router.Get("/notes", s.list)
			router.Get("/notes/add", func(w http.ResponseWriter, r *http.Request) { s.page(w, r, "form", map[string]any{"Note": note{}}) })
			router.Post("/notes/add", s.add)
			router.Get("/notes/{id}", s.show)
			router.Post("/notes/{id}", s.change)
		})
	})
	router.Post("/api/token", s.token)
	router.Group(func(router chi.Router) {
		router.Use(s.byToken)
		router.Get("/api/notes", s.listNotes)
		router.Post("/api/notes", s.addNote)
	})
	return otelhttp.NewHandler(router, "notes")
}

func main() {
	db, err := connect(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	sessions := scs.New()
	sessions.Store = &store{db}
	s := &server{db: db, sessions: sessions}
	if os.Getenv("CHANGED") != "" {
		s.title = "Notes of "
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], s.routes()))
}
