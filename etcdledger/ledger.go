package etcdledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// Ledger is an [orbit.Ledger] and [orbit.Batcher] that is stored in etcd. Open one with [Open] in each process; Ledgers with
// the same prefix are the same ledger. Its methods may be called from any goroutine.
//
// Propose, ProposeBatch and Snapshot are linearizable across all processes (Snapshot not with Options.Local). Changes and
// Wait read the mirror: they show commits of this Ledger at once, and commits of other processes when the watch has
// delivered them.
type Ledger struct {
	client   *clientv3.Client
	keys     keys
	options  Options
	meta     *metaRecord
	mirror   *mirror
	fence    *fence
	commits  *committer
	counters counters

	// stop ends the background goroutines, done waits for them.
	stop context.CancelFunc
	done sync.WaitGroup
	// closed is closed by Close.
	closed <-chan struct{}
	// telling is held during a call of OnError, so that calls do not overlap.
	telling sync.Mutex
	mu      sync.Mutex // guards newest
	// newest is etcd's revision of the newest commit that this Ledger has answered.
	newest int64
}

var (
	_ orbit.Ledger  = (*Ledger)(nil)
	_ orbit.Batcher = (*Ledger)(nil)
)

// Open reads the ledger below a prefix, makes it if there is none, and follows it until Close. The caller configures the
// client (endpoints, TLS, credentials, keepalive) and closes it after the ledger. The context is used by Open only.
//
// The error is orbit.ErrUnavailable if etcd does not answer within Options.Patience, orbit.ErrInvalid for invalid options,
// [ErrMismatch] if the ledger was made with other limits or dimensions, and [ErrCorrupt] if a record is damaged: see
// [Repair].
func Open(ctx context.Context, client *clientv3.Client, o Options) (*Ledger, error) {
	o = o.withDefaults()
	if client == nil {
		return nil, fmt.Errorf("etcdledger: %w: the client is nil; make one with clientv3.New", orbit.ErrInvalid)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.Background())
	k := keys{o.Prefix}
	l := &Ledger{client: client, keys: k, options: o, stop: stop, closed: life.Done()}
	l.mirror = &mirror{keys: k, self: rand.Text(), wake: make(chan struct{}), own: map[uint64]int64{}}
	l.fence = &fence{ctx: life, client: client, key: k.log(), timeout: o.Timeout, stats: &l.counters}
	l.commits = newCommitter(life, l, &o)
	if err := l.begin(ctx); err != nil {
		stop()
		return nil, err
	}
	l.done.Go(func() { l.follow(life) })
	l.done.Go(l.commits.run)
	if o.GCInterval > 0 {
		l.done.Go(func() { l.gcEvery(life) })
	}
	return l, nil
}

// tell calls OnError with an error of a background goroutine.
func (l *Ledger) tell(err error) {
	l.telling.Lock()
	defer l.telling.Unlock()
	l.options.OnError(err)
}

// begin reads all records for the first time.
func (l *Ledger) begin(ctx context.Context) error {
	var err error
	if l.meta, err = l.agree(ctx); err != nil {
		return err
	}
	first, err := load(ctx, l.client, l.keys, l.meta, l.options.Patience)
	if err != nil && ctx.Err() == nil { // etcd may have been compacted between two pages
		first, err = load(ctx, l.client, l.keys, l.meta, l.options.Patience)
	}
	if err != nil {
		return err
	}
	l.mirror.replace(first)
	return nil
}

// Close closes the ledger. Calls whose proposal was sent and not answered return ErrUnknown, all other waiting calls
// ErrUnavailable; both errors also wrap ErrClosed.
func (l *Ledger) Close() error {
	l.stop()
	l.done.Wait()
	l.commits.flights.Wait()
	return nil
}

// agree returns the limits and dimensions that all processes use. The process that makes the ledger writes them.
func (l *Ledger) agree(ctx context.Context) (*metaRecord, error) {
	ours := &metaRecord{written, bounds(l.options.Bounds, l.options.MaxOps), l.options.Dimensions}
	e := encoder{}
	value := e.encode(ours)
	ctx, cancel := context.WithTimeout(ctx, l.options.Patience)
	defer cancel()
	resp, err := l.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(l.keys.meta()), "=", 0)).
		Then(clientv3.OpPut(l.keys.meta(), string(value))).
		Else(clientv3.OpGet(l.keys.meta())).Commit()
	if err := errors.Join(e.err, err); err != nil {
		return nil, fmt.Errorf("etcdledger: open %q at %v: %w: check endpoints, TLS and permissions: %w", l.keys.prefix, l.client.Endpoints(), orbit.ErrUnavailable, err)
	}
	if resp.Succeeded {
		return ours, nil
	}
	theirs, err := decode[metaRecord](resp.Responses[0].GetResponseRange().Kvs[0].Value, 0)
	if err != nil {
		return nil, &CorruptError{Key: l.keys.meta(), Why: err.Error()}
	}
	if theirs.Limits != (&orbit.MemoryLedger{Bounds: theirs.Limits}).Limits() {
		return nil, &CorruptError{Key: l.keys.meta(), Why: "it has limits that no ledger can have"}
	}
	return theirs, l.agrees(theirs)
}

// agrees returns an error if the ledger's limits or dimensions differ from those in Options.
func (l *Ledger) agrees(theirs *metaRecord) error {
	for d, name := range l.options.Dimensions {
		if name != "" && name != theirs.Dimensions[d] {
			return fmt.Errorf("etcdledger: %w: dimension %d is %q there, %q in Options; leave it empty to take what is there", ErrMismatch, d, theirs.Dimensions[d], name)
		}
	}
	if err := agrees(l.options.Bounds, theirs.Limits, l.options.MaxOps); err != nil {
		return err
	}
	if most := bounds(orbit.Limits{}, l.options.MaxOps); theirs.Limits.Commitments > most.Commitments || theirs.Limits.Capsules > most.Capsules {
		return fmt.Errorf("etcdledger: %w: it takes %d commitments and %d capsules at once, and MaxOps %d has room for %d and %d; raise the server's --max-txn-ops and MaxOps",
			ErrMismatch, theirs.Limits.Commitments, theirs.Limits.Capsules, l.options.MaxOps, most.Commitments, most.Capsules)
	}
	return nil
}

// Limits returns the ledger's limits, which are the same in all processes.
func (l *Ledger) Limits() orbit.Limits { return l.meta.Limits }

// Propose implements [orbit.Ledger]. While a record is damaged its errors also wrap [ErrCorrupt].
func (l *Ledger) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	out := l.ProposeBatch(ctx, []orbit.Proposal{p})
	return out[0].Revision, out[0].Err
}

// ProposeBatch implements [orbit.Batcher]. It packs the proposals whose bets hold into few transactions. Proposals that
// have conflicted with another process are packed apart, so that they do not delay the others.
func (l *Ledger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out, requests := make([]orbit.Outcome, len(batch)), make([]*request, len(batch))
	for i := range batch {
		requests[i] = newRequest(ctx, batch[i])
	}
	if err := ctx.Err(); err != nil {
		for i := range out {
			out[i].Err = unavailable(err)
		}
		return out
	}
	l.commits.submit(requests...)
	for i, t := range requests {
		out[i] = t.wait(l.closed)
		l.acknowledge(out[i])
	}
	return out
}

// acknowledge notes the revision of an answer; later reads wait until the mirror has reached it.
func (l *Ledger) acknowledge(out orbit.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = max(l.newest, int64(out.Revision))
}

// acknowledged returns etcd's revision of the newest commit that was answered.
func (l *Ledger) acknowledged() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// Snapshot implements [orbit.Ledger]. Its errors wrap ErrUnavailable and the reason.
func (l *Ledger) Snapshot(ctx context.Context) (*orbit.State, error) {
	at := l.acknowledged()
	if !l.options.Local {
		newest, err := l.fence.read(ctx)
		if err != nil {
			return nil, unreachable(err)
		}
		at = max(at, newest)
	}
	g, err := l.reach(ctx, at)
	if err != nil {
		return nil, err
	}
	return g.state, nil
}

// Changes implements [orbit.Ledger]. Its errors are ErrCompacted and ErrUnavailable.
func (l *Ledger) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if _, err := l.reach(ctx, l.acknowledged()); err != nil {
		return nil, err
	}
	l.mirror.mu.Lock()
	defer l.mirror.mu.Unlock()
	if l.mirror.state.Revision() <= after {
		return nil, nil
	}
	return l.mirror.history.after(after)
}

// Wait implements [orbit.Ledger].
func (l *Ledger) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	for {
		g := l.mirror.look()
		// A commit that has been answered counts even if the mirror does not show it yet.
		if rev := max(g.state.Revision(), orbit.Revision(l.acknowledged())); rev > after {
			return rev, nil
		}
		select {
		case <-g.changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("etcdledger: wait for a revision after %d: %w", after, ctx.Err())
		case <-l.closed:
			return 0, unreachable(ErrClosed)
		}
	}
}

// reach waits until the mirror has reached a revision of etcd, at most for Options.Patience.
func (l *Ledger) reach(ctx context.Context, at int64) (glance, error) {
	if err := ctx.Err(); err != nil {
		return glance{}, unreachable(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.options.Patience, errWatch)
	defer cancel()
	stop := context.AfterFunc(l.commits.ctx, cancel)
	defer stop()
	g, err := l.mirror.reach(ctx, at)
	if err != nil {
		if errors.Is(context.Cause(ctx), errWatch) {
			l.mirror.rewatch(l.options.Patience)
		}
		return g, unreachable(errors.Join(err, context.Cause(ctx)))
	}
	return g, nil
}
