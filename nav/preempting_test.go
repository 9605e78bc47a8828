package nav_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/nav"
)

// cores returns a spec of so many milli-cores and a priority.
func cores(milli int64, priority int32) *orbit.Spec {
	s := spec(milli, 0)
	s.Priority = priority
	return s
}

// full returns a ledger of nodes of 4 CPU with four capsules of 900m on each.
func full(t require.TestingT, nodes int) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	low := cores(900, 0)
	for i := range nodes {
		id := fmt.Sprintf("n%04d", i)
		do := []orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: 4000}}}}
		for k := range 4 {
			c := orbit.CapsuleID(fmt.Sprintf("low-%s-%d", id, k))
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: low}, orbit.Place{Capsule: c, Node: orbit.NodeID(id)})
		}
		commit(t, l, do...)
	}
	return l
}

// evictions counts by capsule how often each was evicted, and for whom, as the history has it.
func evictions(t require.TestingT, l orbit.Ledger, after orbit.Revision) (by map[orbit.CapsuleID]int, total int) {
	by = map[orbit.CapsuleID]int{}
	changes, err := l.Changes(context.Background(), after)
	require.NoError(t, err)
	for _, c := range changes {
		if e, ok := c.Do.(orbit.Evict); ok {
			by[e.Capsule]++
			total++
		}
	}
	return by, total
}

// runOut passes until nothing is committed any more, at most so many times.
func runOut(t require.TestingT, passes int, engines ...*orbit.Engine) {
	for range passes {
		committed := 0
		for _, e := range engines {
			round := e.Pass(context.Background())
			require.Empty(t, round.Errors)
			committed += round.Committed + round.Conflicts
		}
		if committed == 0 {
			return
		}
	}
}

// TestPreemptionBasic is the benchmark of kube-scheduler of that name: on 1,000 nodes that are full of 4,000 capsules, 1,000 of higher
// priority are all placed, with 3 victims each, which is the fewest, and nobody is evicted twice. What each placement takes
// is told beside the same work without preemption.
func TestPreemptionBasic(t *testing.T) {
	nodes := 1000
	if testing.Short() {
		nodes = 100
	}
	urgent := func(l orbit.Ledger) (took time.Duration) {
		submit(t, l, "urgent", nodes, cores(3000, 10))
		e := &orbit.Engine{Name: "urgent", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
		start := cputime.Process()
		runOut(t, 5, e)
		return cputime.Process() - start
	}
	l := full(t, nodes)
	before := snapshot(t, l).Revision()
	took := urgent(l)
	state := snapshot(t, l)
	for c := range state.Capsules() {
		require.Equal(t, c.Spec.Priority == 10, c.Placed() && c.Spec.Priority == 10, c.ID)
	}
	by, total := evictions(t, l, before)
	require.Equal(t, 3*nodes, total, "victims")
	require.Len(t, by, 3*nodes, "nobody is evicted twice")
	empty := &orbit.MemoryLedger{}
	for i := range nodes {
		commit(t, empty, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%04d", i)), Capacity: orbit.Resources{orbit.CPU: 4000}}})
	}
	without := urgent(empty)
	t.Logf("%.0f placements a second of %s, %.0f without preemption", float64(nodes)/took.Seconds(), cputime.Name, float64(nodes)/without.Seconds())
}

// slow is a ledger to which a proposal takes a while.
type slow struct {
	orbit.Ledger
	takes time.Duration
}

func (s slow) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	time.Sleep(s.takes)
	return s.Ledger.Propose(ctx, p)
}

// causes requires that everybody who was evicted made way for what the same commit placed.
func causes(t require.TestingT, l orbit.Ledger, after orbit.Revision) {
	changes, err := l.Changes(context.Background(), after)
	require.NoError(t, err)
	placed := map[orbit.Revision]map[orbit.CapsuleID]bool{}
	for _, c := range changes {
		if p, ok := c.Do.(orbit.Place); ok {
			if placed[c.Revision] == nil {
				placed[c.Revision] = map[orbit.CapsuleID]bool{}
			}
			placed[c.Revision][p.Capsule] = true
		}
	}
	for _, c := range changes {
		if e, ok := c.Do.(orbit.Evict); ok && e.For != "" {
			require.True(t, placed[c.Revision][e.For], "%s was evicted for %s, which was not placed by that commit", e.Capsule, e.For)
		}
	}
}

// TestTwoPreemptorsAndAControllerEvictNobodyTwice: two preempting engines want the room of the same work, commits take 20 ms, and a controller
// submits a new capsule for each that is evicted. kube-scheduler evicts for ever there (kubernetes/kubernetes#130429).
func TestTwoPreemptorsAndAControllerEvictNobodyTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 20
		l := full(t, nodes)
		before := snapshot(t, l).Revision()
		for i := range nodes {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("urgent", i))}, Owner: fmt.Sprint("e", i%2), Spec: cores(3000, 10)})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		run := func(e *orbit.Engine) {
			e.Ledger = slow{l, 20 * time.Millisecond}
			all.Go(func() { _ = e.Run(ctx) })
		}
		for i := range 2 {
			run(&orbit.Engine{Name: fmt.Sprint("e", i), Navigator: &nav.Preempting{Navigator: nav.Func((&nav.Services{}).Plan)}})
		}
		run(&orbit.Engine{Name: "services", Navigator: &nav.Services{}})
		all.Go(func() { // the controller: what was evicted is ended, and comes again under another name
			seen := before
			for ctx.Err() == nil {
				changes, err := l.Changes(ctx, seen)
				require.NoError(t, err)
				for _, c := range changes {
					seen = c.Revision
					if e, ok := c.Do.(orbit.Evict); ok {
						_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: e.Capsule, Final: true},
							orbit.Submit{IDs: []orbit.CapsuleID{e.Capsule + "'"}, Spec: cores(900, 0)}}})
						require.NoError(t, err)
					}
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
		all.Wait()
		state := snapshot(t, l)
		for i := range nodes {
			require.True(t, state.Capsule(orbit.CapsuleID(fmt.Sprint("urgent", i))).Placed())
		}
		by, total := evictions(t, l, before)
		require.Equal(t, 3*nodes, total, "as many as have to")
		require.Len(t, by, total, "repeats")
		causes(t, l, before)
	})
}

// What was placed by an eviction and has lost its node since has lost no proposal: it evicts at once again.
func TestPreemptingAgainForWhatHasLostItsNode(t *testing.T) {
	l := full(t, 2)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: cores(1000, 10), Owner: "urgent"})
	e := &orbit.Engine{Name: "urgent", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
	require.Equal(t, 1, e.Pass(t.Context()).Committed)
	lost := *snapshot(t, l).Node(snapshot(t, l).Capsule("urgent").Node).Node
	lost.State = orbit.Lost
	commit(t, l, orbit.PutNode{Node: lost})
	commit(t, l, orbit.Release{Capsule: "urgent", From: lost.ID})
	require.True(t, snapshot(t, l).Capsule("urgent").Pending())
	e.Pass(t.Context())
	require.True(t, snapshot(t, l).Capsule("urgent").Placed())
}

// What nobody may make way for is parked; when the budget that forbids it is put anew, it is planned at once.
func TestPreemptingWaitsForABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, web := &orbit.MemoryLedger{}, cores(900, 0)
		web.Group = "web"
		commit(t, l, node("n", 4000), orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 4}})
		for i := range 4 {
			put(t, l, fmt.Sprint("web", i), "n", web)
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: cores(1000, 10), Owner: "urgent"})
		e := &orbit.Engine{Name: "urgent", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}, ParkFor: time.Hour, Backoff: orbit.Backoff{Max: time.Hour}}
		go func() { _ = e.Run(t.Context()) }()
		time.Sleep(10 * time.Minute)
		require.True(t, snapshot(t, l).Capsule("urgent").Pending())
		commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 4, Missing: 2}})
		synctest.Wait()
		require.True(t, snapshot(t, l).Capsule("urgent").Placed())
	})
}

// swapping is a ledger in which, before each of so many evictions, the victim's node ends what runs there and starts something else.
type swapping struct {
	*orbit.MemoryLedger
	swaps int
	lost  int
}

func (s *swapping) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	for _, do := range p.Do {
		e, ok := do.(orbit.Evict)
		if !ok || s.swaps == 0 {
			continue
		}
		s.swaps--
		state, _ := s.Snapshot(ctx)
		for c := range state.On(e.From) {
			_, _ = s.MemoryLedger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: c.ID, Final: true}}})
			next := c.ID + "'"
			_, _ = s.MemoryLedger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
				orbit.Submit{IDs: []orbit.CapsuleID{next}, Spec: c.Spec, Owner: "tasks"}, orbit.Place{Capsule: next, Node: e.From}}})
		}
	}
	rev, err := s.MemoryLedger.Propose(ctx, p)
	if err != nil {
		s.lost++
	}
	return rev, err
}

func (s *swapping) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = s.Propose(ctx, batch[i])
	}
	return out
}

// What is nominated where its equals have the room by now, and loses its evictions elsewhere, is nominated there.
func TestPreemptingMovesANominationThatDoesNotHelp(t *testing.T) {
	t.Run("capsule", func(t *testing.T) {
		l := &swapping{MemoryLedger: &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}, swaps: 1000}
		commit(t, l, node("m", 1), node("n", 1))
		put(t, l, "equal", "m", cores(1, 10))
		put(t, l, "task", "n", cores(1, 0))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: cores(1, 10), Owner: "urgent"})
		commit(t, l, orbit.Nominate{Capsule: "urgent", Ends: time.Now().Add(time.Hour), Parts: []orbit.NominatedRoom{{Node: "m", Room: orbit.Resources{1}}}})
		e := &orbit.Engine{Name: "urgent", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
		for range 8 {
			e.Pass(t.Context())
		}
		require.Equal(t, orbit.NodeID("n"), snapshot(t, l).Capsule("urgent").Node, "%d lost", l.lost)
		require.LessOrEqual(t, l.lost, 1)
	})
	t.Run("gang", func(t *testing.T) {
		l := &swapping{MemoryLedger: &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}, swaps: 1000}
		racks(t, l, 3)
		runningOn(t, l, "r0-0", map[string][2]int64{"equal": {4, 10}})
		for _, at := range []string{"r0-1", "r1-0", "r1-1", "r2-0", "r2-1"} {
			runningOn(t, l, at, map[string][2]int64{"task" + at: {4, 0}})
		}
		comes(t, l, 2, 2, cores(4, 9), "rack")
		commit(t, l, orbit.Nominate{Gang: "urgent", Ends: time.Now().Add(time.Hour), Parts: []orbit.NominatedRoom{
			{Node: "r0-0", Room: orbit.Resources{4}}, {Node: "r0-1", Room: orbit.Resources{4}}}})
		e := &orbit.Engine{Name: "urgent", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}}
		for range 8 {
			e.Pass(t.Context())
		}
		require.Equal(t, 2, snapshot(t, l).Gang("urgent").Total(), "%d lost", l.lost)
		require.LessOrEqual(t, l.lost, 1)
	})
}

// Whenever it is planned there is free room, which is taken before its proposal comes: after four that are lost the room is nominated
// before it is planned again.
func TestPreemptingNominatesFreeRoomThatItLoses(t *testing.T) {
	for _, share := range []int{0, 100} {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: share}}
			for i := range 20 {
				commit(t, l, node(fmt.Sprint("n", i), 1))
			}
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent", "other"}, Spec: cores(1, 10), Owner: "urgent"})
			taken := &taking{MemoryLedger: l, most: 30}
			e := &orbit.Engine{Name: "urgent", Ledger: taken, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
			for range 10 {
				e.Pass(t.Context())
				for c := range snapshot(t, l).Capsules() { // the room is free again
					if c.Owner() == "tasks" && c.Placed() {
						commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
					}
				}
			}
			for _, id := range []orbit.CapsuleID{"urgent", "other"} {
				require.True(t, snapshot(t, l).Capsule(id).Placed(), "%s: %d taken", id, taken.n)
			}
			require.LessOrEqual(t, taken.n, 2*4)
		})
	}
}

// What only the wrapped navigator can place is handed to it again after one plan, though it has lost a proposal: here the first
// member of a group that is to be near itself.
func TestPreemptingHandsBackWhatItCannotNominate(t *testing.T) {
	l := &orbit.MemoryLedger{}
	n := node("n", 4)
	n.Node.Labels = map[string]string{"rack": "r"}
	commit(t, l, n)
	first := cores(1, 10)
	first.Group, first.Near = "g", orbit.Near{Group: "g", Level: "rack"}
	submit(t, l, "first", 1, first)
	e := engineOf(&losing{l, 4}, &nav.Preempting{Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}})
	for range 8 {
		e.Pass(t.Context())
	}
	require.True(t, snapshot(t, l).Capsule("first-0").Placed())
}

// losing is a ledger that does not take the first placements.
type losing struct {
	*orbit.MemoryLedger
	left int
}

func (l *losing) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if l.left--; l.left >= 0 {
		return 0, orbit.ErrUnavailable
	}
	return l.MemoryLedger.Propose(ctx, p)
}

func (l *losing) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = l.Propose(ctx, batch[i])
	}
	return out
}

// taking is a ledger in which the room of a placement is taken just before, if it is not nominated.
type taking struct {
	*orbit.MemoryLedger
	n, most int
}

func (l *taking) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		if !ok || l.n == l.most {
			continue
		}
		id := orbit.CapsuleID(fmt.Sprint("task", l.n))
		_, err := l.MemoryLedger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: cores(1, 0), Owner: "tasks"},
			orbit.Place{Capsule: id, Node: place.Node}}})
		if err == nil {
			l.n++
		}
	}
	return l.MemoryLedger.Propose(ctx, p)
}

func (l *taking) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = l.Propose(ctx, batch[i])
	}
	return out
}

// TestPreemptingGetsThroughSmallWork: on full nodes tasks end every 10 ms and others come in their room at once, and a commit takes 20
// ms, in which the room that a preemption counts on is taken again. After one proposal that is lost the room is nominated.
func TestPreemptingGetsThroughSmallWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, each = 4, 10
		l := &orbit.MemoryLedger{}
		tasks := map[orbit.CapsuleID]orbit.NodeID{}
		start := func(i int, on string) error {
			id := orbit.CapsuleID(fmt.Sprint("task", i))
			_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: cores(1, 0), Owner: "tasks"},
				orbit.Place{Capsule: id, Node: orbit.NodeID(on)}}})
			if err == nil {
				tasks[id] = orbit.NodeID(on)
			}
			return err
		}
		n := 0
		for i := range nodes {
			commit(t, l, node(fmt.Sprint("n", i), each))
			for range each {
				n++
				require.NoError(t, start(n, fmt.Sprint("n", i)))
			}
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: cores(each, 10), Owner: "urgent"})
		before := snapshot(t, l).Revision()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		conflicts := 0
		e := &orbit.Engine{Name: "urgent", Ledger: slow{l, 20 * time.Millisecond}, Navigator: &nav.Preempting{Navigator: &nav.Services{}},
			OnRound: func(r orbit.Round) { conflicts += r.Conflicts }}
		all.Go(func() { _ = e.Run(ctx) })
		for ctx.Err() == nil && !snapshot(t, l).Capsule("urgent").Placed() {
			time.Sleep(10 * time.Millisecond)
			for i := range nodes { // one ends on every node, and one comes
				at := orbit.NodeID(fmt.Sprint("n", i))
				for c := range snapshot(t, l).On(at) {
					if c.Owner() == "tasks" {
						commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
						break
					}
				}
				n++
				_ = start(n, string(at)) // if there is room for it
			}
		}
		waited := snapshot(t, l).Capsule("urgent")
		cancel()
		all.Wait()
		require.True(t, waited.Placed(), "%d conflicts", conflicts)
		require.InDelta(t, 1, conflicts, 1)
		_, total := evictions(t, l, before)
		require.LessOrEqual(t, total, each)
	})
}

// TestPreemptingOnAnOverfullDevice: four shares of a device are given away that has room for three, because one was adopted. A fifth takes the
// place of two: with one victim less, the device is as full as it may be.
func TestPreemptingOnAnOverfullDevice(t *testing.T) {
	l := &orbit.MemoryLedger{}
	share := func(priority int32) *orbit.Spec {
		return &orbit.Spec{Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}, Devices: orbit.DeviceRequest{Count: 1, Milli: 300}}
	}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 9}, Devices: orbit.Devices{Model: "A", Count: 1}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c"}, Spec: share(0)}, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: share(2)})
	for _, id := range []orbit.CapsuleID{"a", "b", "c"} {
		commit(t, l, orbit.Place{Capsule: id, Node: "n", Devices: 1})
	}
	commit(t, l, orbit.Adopt{Capsule: "found", Spec: share(0), Node: "n", Devices: 1})
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	require.Equal(t, 200, s.Node("n").DeviceOver(0))
	e := &orbit.Engine{Name: "services", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
	require.Empty(t, e.Pass(context.Background()).Errors)
	s, err = l.Snapshot(context.Background())
	require.NoError(t, err)
	require.True(t, s.Capsule("urgent").Placed())
	require.Equal(t, 3, s.Node("n").Capsules)
}
