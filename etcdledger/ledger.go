package etcdledger

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
	"github.com/orbitsched/orbit/logledger"
)

// Ledger is a ledger in etcd. All that are open with the same prefix are the same ledger.
type Ledger = logledger.Ledger

// Open opens the ledger below a prefix, makes it if there is none, and follows it until Close. The caller configures the
// client (endpoints, TLS, credentials, keepalive) and closes it after the ledger. The context is used by Open only.
//
// The error is orbit.ErrUnavailable if etcd does not answer within Options.Patience, or refuses; [logledger.ErrVersion] if a
// newer version has written to the ledger, [ErrOldFormat] if a much older one has made it, [logledger.ErrMismatch] if it was
// made with other limits or dimensions, [logledger.ErrCorrupt] if something is damaged, and orbit.ErrInvalid for invalid options.
func Open(ctx context.Context, client *clientv3.Client, o Options) (*Ledger, error) {
	o.OnError = rate.Reporter(o.OnError, "orbit: error of a ledger in etcd")
	log, err := logledger.Patiently(ctx, o.Patience, func() (log *Log, final bool, err error) {
		log, err = OpenLog(ctx, client, o.log())
		return log, is(err, denied), err
	})
	if err != nil {
		return nil, err
	}
	l, err := logledger.Open(ctx, log, o.ledger())
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return l, nil
}

// OpenLog opens the log of a ledger, for tools: the ledger itself is opened by [Open]. It makes the log if there is none.
// Errors are those of Open, and [ErrNoLog].
func OpenLog(ctx context.Context, client *clientv3.Client, o LogOptions) (*Log, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	if client == nil {
		return nil, fmt.Errorf("etcdledger: %w: the client is nil; make one with clientv3.New", orbit.ErrInvalid)
	}
	h := &Log{client: client, options: o, keys: keys{o.Prefix}, tags: newTags(), changed: make(chan struct{}, 1)}
	h.page.Store(firstPage)
	if err := h.begin(ctx); err != nil {
		return nil, fmt.Errorf("etcdledger: open %q at %v: %w", o.Prefix, client.Endpoints(), err)
	}
	h.start()
	return h, nil
}
