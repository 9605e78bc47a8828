package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

const (
	nodes   = 16
	perNode = 8 // GPUs
	gpu     = 4 // the dimension of GPUs
	// tick is the step of virtual time.
	tick = 10 * time.Minute
)

// The tree.
var (
	ads      = &queue{id: "ads", letter: 'A', nominal: 32, lends: 16, weight: 1}
	maps     = &queue{id: "maps", letter: 'M', nominal: 24, lends: -1, weight: 1}
	vision   = &queue{id: "vision", letter: 'V', nominal: 64, lends: -1, weight: 2}
	research = &queue{id: "research", letter: 'R', nominal: 8, lends: -1, weight: 1}
	product  = &queue{id: "product", lends: -1, weight: 1, children: []*queue{ads, maps}}
	science  = &queue{id: "science", lends: -1, weight: 1, children: []*queue{vision, research}}
	company  = &queue{id: "company", lends: -1, weight: 1, children: []*queue{product, science}}
	leaves   = []*queue{ads, maps, vision, research}
)

// put puts a queue and those below it.
func put(q *queue, parent orbit.QueueID) (do []orbit.Commitment) {
	const resource = "dim4" // as queues name it; a ledger may show another name
	out := orbit.Queue{ID: q.id, Parent: parent, Nominal: map[string]int64{resource: q.nominal}, Weight: q.weight}
	if q.lends >= 0 {
		out.Lend = map[string]int64{resource: q.lends}
	}
	do = append(do, orbit.PutQueue{Queue: out})
	for _, c := range q.children {
		do = append(do, put(c, q.id)...)
	}
	return do
}

// world is the cluster through a day.
type world struct {
	ledger  *orbit.MemoryLedger
	engines []*orbit.Engine
	random  *rand.Rand
	verbose bool
	made    int
	// When each placed task ends, in virtual time since the beginning. A task that is evicted starts from the beginning.
	ends map[orbit.CapsuleID]time.Duration
	// How often each capsule was evicted.
	evicted map[orbit.CapsuleID]int
	seen    orbit.Revision
	samples []sample
	events  []event
	// At how many revisions a queue used more than the tree allows.
	over int
}

// sample is the end of a tick.
type sample struct {
	used, ideal amounts
	evicted     int
}

// error returns how far the use is from the ideal, as a share of all GPUs: what would have to change hands.
func (s *sample) error() (e float64) {
	for _, q := range leaves {
		e += max(s.used[q.id]-s.ideal[q.id], s.ideal[q.id]-s.used[q.id])
	}
	return e / 2 / (nodes * perNode)
}

// watched is the ledger with a look at every revision.
type watched struct {
	*orbit.MemoryLedger
	look func(*orbit.State)
}

// Propose implements [orbit.Ledger].
func (l *watched) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	revision, err := l.MemoryLedger.Propose(ctx, p)
	if err != nil {
		return revision, err
	}
	state, err := l.Snapshot(ctx)
	if err == nil {
		l.look(state)
	}
	return revision, err
}

// open makes the cluster and the tree.
func open(ctx context.Context, seed uint64) (*world, error) {
	w := &world{ledger: &orbit.MemoryLedger{Dimensions: [orbit.Dimensions]string{gpu: "gpu"}}, random: rand.New(rand.NewPCG(seed, 0)), ends: map[orbit.CapsuleID]time.Duration{}, evicted: map[orbit.CapsuleID]int{}}
	seen := &watched{w.ledger, w.judge}
	for _, n := range []orbit.Navigator{&nav.Gang{}, &nav.Batch{}} {
		w.engines = append(w.engines, &orbit.Engine{
			Name: fmt.Sprintf("%T", n), Ledger: seen, ParkFor: time.Nanosecond, Navigator: &nav.Fair{Navigator: &nav.Preempting{Navigator: n}},
		})
	}
	do := put(company, "")
	for i := range nodes {
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Capacity: orbit.Resources{gpu: perNode}}})
	}
	return w, w.propose(ctx, do...)
}

// takes is an envelope of so many GPUs.
func takes(n int64) orbit.Envelope { return orbit.Envelope{Reservation: orbit.Resources{gpu: n}} }

// gpus sums up the GPUs of placed capsules by queue.
func gpus(state *orbit.State) amounts {
	used := amounts{}
	for c := range state.Capsules() {
		if c.Placed() {
			used[c.Spec.Queue] += float64(c.Spec.Envelope.Reservation[gpu])
		}
	}
	return used
}

// judge looks at a revision.
func (w *world) judge(state *orbit.State) {
	if company.over(gpus(state)) > 0 {
		w.over++
	}
}

func (w *world) propose(ctx context.Context, do ...orbit.Commitment) error {
	if len(do) == 0 {
		return nil
	}
	_, err := w.ledger.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
	return err
}

// settle lets the engines pass until none commits anything any more, and returns the state.
func (w *world) settle(ctx context.Context) (*orbit.State, error) {
	for range 100 {
		committed := 0
		for _, e := range w.engines {
			round := e.Pass(ctx)
			for _, err := range round.Errors {
				if !errors.Is(err, orbit.ErrInfeasible) { // TODO
					return nil, err
				}
			}
			committed += round.Committed
		}
		if committed == 0 {
			return w.ledger.Snapshot(ctx)
		}
	}
	return nil, errors.New("the engines do not come to rest")
}

// count counts the evictions since the last look, by queue.
func (w *world) count(ctx context.Context, state *orbit.State) (by amounts, err error) {
	changes, err := w.ledger.Changes(ctx, w.seen)
	by = amounts{}
	for i := range changes {
		if do, ok := changes[i].Do.(orbit.Evict); ok {
			w.evicted[do.Capsule]++
			by[state.Capsule(do.Capsule).Spec.Queue]++
			delete(w.ends, do.Capsule)
		}
	}
	w.seen = state.Revision()
	return by, err
}
