package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// A pool whose connections say which request they work for, by the name of the application, as
// OpenTelemetry's instrumentation of other drivers does. There is none for pgx that writes comments.
func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 16
	config.PrepareConn = func(ctx context.Context, connection *pgx.Conn) (bool, error) {
		carrier := propagation.MapCarrier{}
		otel.GetTextMapPropagator().Inject(ctx, carrier)
		_, err := connection.Exec(ctx, "SET application_name = '"+carrier.Get("traceparent")+"'")
		return err == nil, err
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// Keeps sessions in the database.
type store struct {
	db *pgxpool.Pool
}

func (s *store) FindCtx(ctx context.Context, token string) (data []byte, found bool, err error) {
	find := "SELECT data FROM session WHERE token = $1 AND expiry > now()"
	err = s.db.QueryRow(ctx, find, token).Scan(&data)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return data, err == nil, err
}

func (s *store) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	keep := `INSERT INTO session (token, data, expiry) VALUES ($1, $2, $3)
		ON CONFLICT (token) DO UPDATE SET data = EXCLUDED.data, expiry = EXCLUDED.expiry`
	_, err := s.db.Exec(ctx, keep, token, data, expiry)
	return err
}

func (s *store) DeleteCtx(ctx context.Context, token string) error {
	_, err := s.db.Exec(ctx, "DELETE FROM session WHERE token = $1", token)
	return err
}

func (s *store) Find(token string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), token)
}

func (s *store) Commit(token string, data []byte, expiry time.Time) error {
	return s.CommitCtx(context.Background(), token, data, expiry)
}

func (s *store) Delete(token string) error {
	return s.DeleteCtx(context.Background(), token)
}
