package sandbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// code is the template that most tests use.
const code = "code-interpreter"

// bootSpec is a spec that starts from a template and takes one slot.
func bootSpec(template string) *orbit.Spec {
	s := &orbit.Spec{Module: "sandbox", Start: orbit.Start{Template: template}}
	s.Envelope.Reservation[orbit.Slots] = 1
	return s
}

func commit(t require.TestingT, l orbit.Ledger, do ...orbit.Commitment) {
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
}

func snapshot(t require.TestingT, l orbit.Ledger) *orbit.State {
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return s
}

// submit adds n capsules named after the module of the spec, or the prefix.
func submit(t require.TestingT, l orbit.Ledger, prefix string, n int, s *orbit.Spec) {
	var ids []orbit.CapsuleID
	for i := range n {
		ids = append(ids, orbit.CapsuleID(fmt.Sprintf("%s-%d", prefix, i)))
	}
	commit(t, l, orbit.Submit{IDs: ids, Spec: s})
}

// whyOf returns what a pass says of one capsule.
func whyOf(r orbit.Round, id orbit.CapsuleID) error {
	for _, u := range r.Unplaced {
		if u.Capsule.ID == id {
			return u.Why
		}
	}
	return nil
}

// noted returns what a round notes under a key.
func noted(t require.TestingT, round orbit.Round, key string) int {
	at := slices.IndexFunc(round.Notes, func(a slog.Attr) bool { return a.Key == key })
	require.GreaterOrEqual(t, at, 0, "no note %q", key)
	return int(round.Notes[at].Value.Int64())
}

// settle passes until nothing moves any more, and returns the rounds.
func settle(t require.TestingT, e *orbit.Engine) (rounds []orbit.Round) {
	for range 100 {
		r := e.Pass(context.Background())
		rounds = append(rounds, r)
		require.Empty(t, r.Errors)
		if r.Committed == 0 {
			return rounds
		}
	}
	require.Fail(t, "it does not settle")
	return nil
}

// fleet is hosts of sandboxes on a ledger and a board.
type fleet struct {
	t      require.TestingT
	ledger *orbit.MemoryLedger
	board  *telemetry.Board
}

func newFleet(t require.TestingT) *fleet {
	return &fleet{t, &orbit.MemoryLedger{}, &telemetry.Board{}}
}

// host joins a node with so many slots, which reports that many free and these warm.
func (f *fleet) host(id string, slots int64, warm int, cpu float64) {
	f.join(id, slots)
	f.report(id, int(slots), warm, cpu)
}

func (f *fleet) join(id string, slots int64) {
	commit(f.t, f.ledger, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.Slots: slots}}})
}

// report is a heartbeat of a node that supports code and browser.
func (f *fleet) report(id string, free, warm int, cpu float64) {
	require.NoError(f.t, f.board.Report(orbit.Report{
		Node: orbit.NodeID(id), At: time.Now(), FreeSlots: free, CPUPercent: cpu, Term: f.termOf(id),
		Warm: map[string]int{code: warm}, Templates: []string{code, "browser"},
	}))
}

// termOf is the term that the ledger has for a node, if there are leases.
func (f *fleet) termOf(id string) orbit.Revision {
	if f.board.Leases == nil {
		return 0
	}
	term, _ := f.board.Leases.In(snapshot(f.t, f.ledger), id)
	return term.Epoch
}

func (f *fleet) gateway() *sandbox.Gateway { return &sandbox.Gateway{Ledger: f.ledger, Board: f.board} }

// create creates a sandbox of code that must find a node.
func (f *fleet) create(g *sandbox.Gateway, id string) sandbox.Created {
	c, err := g.Create(context.Background(), orbit.CapsuleID(id), bootSpec(code))
	require.NoError(f.t, err)
	return c
}

// noteOf is where a capsule is placed, and what the placement says.
func (f *fleet) noteOf(id orbit.CapsuleID) string {
	c := snapshot(f.t, f.ledger).Capsule(id)
	if c == nil || !c.Placed() {
		return "nowhere"
	}
	return fmt.Sprintf("%s %s", c.Node, c.Note())
}

// live is how many capsules are pending or placed.
func (f *fleet) live() (n int) {
	for c := range snapshot(f.t, f.ledger).Capsules() {
		if !c.Released() {
			n++
		}
	}
	return n
}

// wire is a ledger that counts what it is asked, and can be made to fail.
type wire struct {
	orbit.Ledger
	snapshots, changes, proposals atomic.Int64

	mu sync.Mutex // guards the hooks
	// Called in the place of Propose, if set.
	propose func(ctx context.Context, p orbit.Proposal) (orbit.Revision, error)
	// Called before Snapshot, if set; an error is returned.
	snapshot func(ctx context.Context) error
}

func (w *wire) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	w.proposals.Add(1)
	w.mu.Lock()
	hook := w.propose
	w.mu.Unlock()
	if hook != nil {
		return hook(ctx, p)
	}
	return w.Ledger.Propose(ctx, p)
}

func (w *wire) Snapshot(ctx context.Context) (*orbit.State, error) {
	w.snapshots.Add(1)
	w.mu.Lock()
	hook := w.snapshot
	w.mu.Unlock()
	if hook != nil {
		if err := hook(ctx); err != nil {
			return nil, err
		}
	}
	return w.Ledger.Snapshot(ctx)
}

func (w *wire) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	w.changes.Add(1)
	return w.Ledger.Changes(ctx, after)
}

// hook sets the hook of Propose.
func (w *wire) hook(f func(ctx context.Context, p orbit.Proposal) (orbit.Revision, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.propose = f
}

// radio is telemetry that counts what it is asked, and can be made to fail.
type radio struct {
	orbit.Telemetry
	reports atomic.Int64
	broken  atomic.Bool
}

func (r *radio) Reports(ctx context.Context, after uint64) ([]orbit.Report, uint64, error) {
	r.reports.Add(1)
	if r.broken.Load() {
		return nil, after, fmt.Errorf("no route to telemetry")
	}
	return r.Telemetry.Reports(ctx, after)
}
