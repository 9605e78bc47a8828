package pgledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
	"github.com/orbitsched/orbit/logledger"
)

// Ledger is a ledger in a Postgres database. All that are open with the same schema and name are the same ledger.
type Ledger = logledger.Ledger

// Open opens a ledger, makes it if it is not there, and follows it until Close. The URL says servers, database, role and TLS, as
// in "postgres://orbit@db1,db2/cluster?sslmode=verify-full"; what it leaves out comes from the environment (PGHOST, PGPASSWORD
// and so on), and it may as well be a text of the form "host=db1 user=orbit". Of several servers the ledger uses the one that
// is not a standby. It has one connection for notifications and at most as many others as pool_max_conns in the URL says
// (default: four, or the number of CPUs if that is larger). The context is used by Open only.
//
// The error is orbit.ErrUnavailable if the server does not answer within Options.Patience, [ErrSetup] if an administrator has
// to make or to grant something, [logledger.ErrVersion] if a newer version made the tables or has written to the ledger,
// [logledger.ErrMismatch] if the ledger was made with other limits or dimensions, and orbit.ErrInvalid for an invalid URL and
// invalid options.
func Open(ctx context.Context, url string, o Options) (*Ledger, error) {
	o.OnError = rate.Reporter(o.OnError, "orbit: error of a ledger in Postgres")
	log, err := openPatiently(ctx, url, &o, OpenLog)
	if err != nil {
		return nil, err
	}
	l, err := logledger.Open(ctx, log, o.ledger())
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return l, nil
}

// openPatiently opens the log of a ledger by open, and tries for as long as Options.Patience says.
func openPatiently(ctx context.Context, url string, o *Options, open func(context.Context, string, LogOptions) (*Log, error)) (*Log, error) {
	return logledger.Patiently(ctx, o.Patience, func() (log *Log, final bool, err error) {
		log, err = open(ctx, url, LogOptions{Schema: o.Schema, Name: o.Name, Configure: o.Configure, Timeout: o.Timeout, OnError: o.OnError})
		return log, errors.Is(err, ErrSetup), err
	})
}

// OpenLog opens the log of a ledger, for tools: the ledger itself is opened by [Open]. It makes the schema, its tables and the
// log if they are not there. Errors are those of Open, and [ErrNoLog].
func OpenLog(ctx context.Context, url string, o LogOptions) (*Log, error) {
	h, err := handle(ctx, url, o)
	if err != nil {
		return nil, err
	}
	h.start()
	return h, nil
}

// handle opens a log that does not listen for changes.
func handle(ctx context.Context, url string, o LogOptions) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	pool, err := connect(url, o.Configure)
	if err != nil {
		return nil, err
	}
	h := &Log{pool: pool, options: o, sql: newStatements(o.Schema), changed: make(chan struct{}, 1)}
	if err := h.setUp(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("pgledger: open %q in schema %q: %w", o.Name, o.Schema, err)
	}
	return h, nil
}

// connect returns a pool of connections, of which none is made yet.
func connect(url string, configure func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if scheme, _, isURL := strings.Cut(url, "://"); err != nil && isURL && scheme != "postgres" && scheme != "postgresql" {
		return nil, fmt.Errorf("pgledger: %w: %w; a URL begins with postgres://", orbit.ErrInvalid, err)
	}
	if err != nil {
		return nil, fmt.Errorf("pgledger: %w: %w", orbit.ErrInvalid, err)
	}
	for _, of := range []string{"schema", "name"} { // a server would refuse them as settings that it does not know
		if _, there := config.ConnConfig.RuntimeParams[of]; there {
			return nil, fmt.Errorf("pgledger: %w: the URL has the parameter %q, which only orbitlog reads; set it in the options", orbit.ErrInvalid, of)
		}
	}
	if config.ConnConfig.ValidateConnect == nil { // target_session_attrs is any, or not set
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if configure != nil {
		configure(config)
	}
	// The context is that of the first connection, which the pool makes in the background and does not need.
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("pgledger: %w: %w", orbit.ErrInvalid, err)
	}
	return pool, nil
}
