package pgledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
	"github.com/orbitsched/orbit/logledger"
)

// Ledger is a ledger in a Postgres database. All that are open with the same schema and name are the same ledger.
type Ledger = logledger.Ledger

// Open opens a ledger, makes it if it is not there, and follows it until Close. The caller configures the pool (servers, TLS,
// role) and closes it after the ledger. It should have at least four connections; the ledger keeps one more for itself, which
// it takes from the pool. The context is used by Open only.
//
// The error is orbit.ErrUnavailable if the server does not answer within Options.Patience, [ErrSetup] if an administrator has
// to make or to grant something, [logledger.ErrVersion] if a newer version made the tables or has written to the ledger,
// [logledger.ErrMismatch] if the ledger was made with other limits or dimensions, and orbit.ErrInvalid for invalid options.
func Open(ctx context.Context, pool *pgxpool.Pool, o Options) (*Ledger, error) {
	o.OnError = alone(o.OnError)
	log, err := openPatiently(ctx, pool, &o)
	if err != nil {
		return nil, err
	}
	l, err := logledger.Open(ctx, log, o.ledger())
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return l, nil
}

// openPatiently opens the log of a ledger, and tries for as long as Options.Patience says.
func openPatiently(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Log, error) {
	patience := o.Patience
	if patience == 0 {
		patience = 10 * time.Second
	}
	for until := time.Now().Add(patience); ; {
		log, err := OpenLog(ctx, pool, LogOptions{Schema: o.Schema, Name: o.Name, Timeout: o.Timeout, OnError: o.OnError})
		if !errors.Is(err, orbit.ErrUnavailable) || time.Now().After(until) || ctx.Err() != nil {
			return log, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// alone returns a function that reports errors by report, one at a time; nil: to slog.Default().
func alone(report func(error)) func(error) {
	if report == nil {
		var log rate.Log
		return func(err error) { log.Error(context.Background(), "orbit: error of a ledger in Postgres", err) }
	}
	var mu sync.Mutex
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		report(err)
	}
}

// OpenLog opens the log of a ledger, for tools: the ledger itself is opened by [Open]. It makes the schema, its tables and the
// log if they are not there. Errors are those of Open, and [ErrNoLog].
func OpenLog(ctx context.Context, pool *pgxpool.Pool, o LogOptions) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, fmt.Errorf("pgledger: %w: the pool is nil; make one with pgxpool.New", orbit.ErrInvalid)
	}
	h := &Log{pool: pool, options: o, sql: newStatements(o.Schema), changed: make(chan struct{}, 1)}
	if err := h.setUp(ctx); err != nil {
		return nil, fmt.Errorf("pgledger: open %q in schema %q: %w", o.Name, o.Schema, err)
	}
	h.start()
	return h, nil
}
