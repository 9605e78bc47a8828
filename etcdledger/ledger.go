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

// Ledger is an [orbit.Ledger] and [orbit.Batcher] over etcd. Make one with [Open] in each process; all that have
// the same prefix are one ledger. Its methods may be called from any goroutine.
//
// Propose, ProposeBatch and Snapshot are linearizable over all processes (Snapshot not with Options.Local).
// Changes and Wait follow the mirror: they know at once what this Ledger has committed, and what others have when
// the watch has brought it.
type Ledger struct {
	client   *clientv3.Client
	keys     keys
	options  Options
	meta     *metaRecord
	mirror   *mirror
	fence    *fence
	commits  *committer
	counters counters

	// Ends everything in the background.
	stop context.CancelFunc
	done sync.WaitGroup
	// Closed with the ledger.
	closed <-chan struct{}
	// One error is told at a time.
	telling sync.Mutex
	// Guards newest.
	mu sync.Mutex
	// Etcd's revision of the newest commit that this Ledger has answered.
	newest int64
}

var (
	_ orbit.Ledger  = (*Ledger)(nil)
	_ orbit.Batcher = (*Ledger)(nil)
)

// Open reads the ledger below a prefix, makes it if there is none, and follows it until Close. The client stays
// the caller's: its endpoints, TLS, credentials and keepalive, and closing it after the ledger. The context is for
// Open alone; an etcd that does not answer within Options.Patience is orbit.ErrUnavailable. Other errors:
// ErrMismatch, ErrCorrupt, and orbit.ErrInvalid for options.
func Open(ctx context.Context, client *clientv3.Client, o Options) (*Ledger, error) {
	o = o.withDefaults()
	if client == nil {
		return nil, fmt.Errorf("etcdledger: %w: no client", orbit.ErrInvalid)
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
	if o.SweepEvery > 0 {
		l.done.Go(func() { l.sweepEvery(life) })
	}
	return l, nil
}

// tell reports what went wrong in the background.
func (l *Ledger) tell(err error) {
	l.telling.Lock()
	defer l.telling.Unlock()
	l.options.OnError(err)
}

// begin reads everything for the first time.
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
	l.tellDamage(first)
	return nil
}

// Close ends the ledger. What was sent and not answered is ErrUnknown, all else that waits is ErrUnavailable; both
// are ErrClosed too.
func (l *Ledger) Close() error {
	l.stop()
	l.done.Wait()
	l.commits.flights.Wait()
	return nil
}

// agree returns what all processes have agreed on. The first one decides.
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
		return nil, &CorruptError{Key: l.keys.meta(), Why: "limits that no ledger has"}
	}
	return theirs, l.agrees(theirs)
}

// agrees reports how what is there differs from what was asked for.
func (l *Ledger) agrees(theirs *metaRecord) error {
	for d, name := range l.options.Dimensions {
		if name != "" && name != theirs.Dimensions[d] {
			return fmt.Errorf("etcdledger: %w: dimension %d is %q there, %q here", ErrMismatch, d, theirs.Dimensions[d], name)
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

// Limits returns what the ledger takes, all processes alike.
func (l *Ledger) Limits() orbit.Limits { return l.meta.Limits }

// Propose implements [orbit.Ledger]. Beyond its errors there is [ErrCorrupt] for a proposal that touches a damaged
// record.
func (l *Ledger) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	out := l.ProposeBatch(ctx, []orbit.Proposal{p})
	return out[0].Revision, out[0].Err
}

// ProposeBatch implements [orbit.Batcher]. The proposals go into few transactions; those that do not hold are left
// out, and those that compete with other processes go apart.
func (l *Ledger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out, tickets := make([]orbit.Outcome, len(batch)), make([]*ticket, len(batch))
	for i := range batch {
		tickets[i] = newTicket(ctx, batch[i])
	}
	if err := ctx.Err(); err != nil {
		for i := range out {
			out[i].Err = unavailable(err)
		}
		return out
	}
	l.commits.submit(tickets...)
	for i, t := range tickets {
		out[i] = t.wait(l.closed)
		l.acknowledge(out[i])
	}
	return out
}

// acknowledge notes what has been answered: reads will show it.
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

// Snapshot implements [orbit.Ledger]. Errors are ErrUnavailable, with the reason.
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

// Changes implements [orbit.Ledger]. Besides ErrCompacted its errors are ErrUnavailable.
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
		// What has been answered is committed, even if the mirror does not show it yet.
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

// reach waits until the mirror is at a revision, no longer than patience lasts.
func (l *Ledger) reach(ctx context.Context, at int64) (glance, error) {
	if err := ctx.Err(); err != nil {
		return glance{}, unreachable(err)
	}
	if g := l.mirror.look(); g.pos >= at {
		return g, nil
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
