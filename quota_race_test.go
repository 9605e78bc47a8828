package orbit

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/scale"
)

// modelOf lists what the arithmetic of the model needs of a state.
func modelOf(s *State) *model {
	m := newModel(s.limits)
	m.rev = s.rev
	for n := range s.Nodes() {
		m.nodes[n.Node.ID] = modelNode{Node: *n.Node}
	}
	for c := range s.Capsules() {
		m.capsules[c.ID] = modelCapsule{spec: c.Spec, node: c.Node, placedAt: c.PlacedAt, released: c.Released()}
	}
	for q := range s.Queues() {
		m.queues[q.Queue.ID] = modelQueue{q.Queue, q.Changed}
	}
	return m
}

// quotaRace is a ledger that many propose to at once.
type quotaRace struct {
	*MemoryLedger
	t      *testing.T
	queues []Queue
}

func (q *quotaRace) now() *State {
	s, err := q.Snapshot(bg)
	if err != nil {
		panic(err)
	}
	return s
}

// try proposes; what is refused is refused.
func (q *quotaRace) try(view Revision, do ...Commitment) {
	_, _ = q.Propose(bg, Proposal{View: view, Do: do})
}

// capsule picks one of the capsules of a worker, or of all.
func (q *quotaRace) capsule(r *rand.Rand) CapsuleID { return CapsuleID(fmt.Sprint("c", r.IntN(40))) }

// engine plans on views of its own, which get old: it places, evicts for what it places, lets capsules grow and move to other queues,
// and ends them.
func (q *quotaRace) engine(r *rand.Rand, rounds int) {
	s := q.now()
	for range rounds {
		if r.IntN(3) > 0 {
			s = q.now()
		}
		c := s.Capsule(q.capsule(r))
		spec := inQueue(q.queues[r.IntN(len(q.queues))].ID, int64(1+r.IntN(4)), remembers(int64(r.IntN(3))), ranked(int32(r.IntN(3))))
		node := NodeID(fmt.Sprint("n", r.IntN(3)))
		switch {
		case c == nil || c.Released():
			q.try(s.rev, submitOf(spec, q.capsule(r)))
		case c.Pending():
			var do []Commitment
			for v := range s.On(node) {
				if v.Spec.Queue != c.Spec.Queue && r.IntN(3) == 0 {
					do = append(do, Evict{Capsule: v.ID, From: v.Node, Since: v.PlacedAt, For: c.ID})
				}
			}
			q.try(s.rev, append(do, placeOn(c.ID, node))...)
		case r.IntN(3) > 0:
			q.try(s.rev, Respec{Capsule: c.ID, Since: c.PlacedAt, Spec: spec})
		case r.IntN(2) == 0:
			q.try(s.rev, ends(c.ID))
		default:
			q.try(s.rev, Release{Capsule: c.ID, Stopped: true}, placeOn(c.ID, node))
		}
	}
}

// keeper changes quotas, up and down.
func (q *quotaRace) keeper(r *rand.Rand, rounds int) {
	for range rounds {
		n := q.queues[r.IntN(len(q.queues))]
		n.Nominal = map[string]int64{"cpu": int64(r.IntN(8)), "memory": int64(r.IntN(6))}
		if r.IntN(2) == 0 {
			lends(int64(r.IntN(5)))(&n)
		}
		if r.IntN(2) == 0 {
			borrows(int64(r.IntN(5)))(&n)
		}
		q.try(0, PutQueue{n})
	}
}

// drainer cordons nodes, takes what it likes off them, and brings them back.
func (q *quotaRace) drainer(r *rand.Rand, rounds int) {
	for range rounds {
		id := NodeID(fmt.Sprint("n", r.IntN(3)))
		q.try(0, drainedNode(id, 8))
		for c := range q.now().On(id) {
			q.try(0, Release{Capsule: c.ID})
		}
		q.try(0, cpuNode(id, 8))
	}
}

// finder finds capsules that run, as large as they are, also for queues that there are not.
func (q *quotaRace) finder(r *rand.Rand, rounds int) {
	for range rounds {
		id := q.capsule(r)
		queue := append([]Queue{{ID: "unknown"}}, q.queues...)[r.IntN(len(q.queues)+1)].ID
		q.try(0, foundOn(id, NodeID(fmt.Sprint("n", r.IntN(3))), inQueue(queue, int64(1+r.IntN(8)))))
	}
}

// TestQuotaUnderRace: eight engines propose at once with a drainer, one that finds what runs, and one that changes quotas all the time. The history
// shows that no commit let a queue take what was not available, and that no eviction between queues was unjust: at every revision, by the
// model's arithmetic.
func TestQuotaUnderRace(t *testing.T) {
	t.Parallel()
	q := &quotaRace{&MemoryLedger{Bounds: Limits{History: 1 << 20}}, t, threeLevels}
	var world []Commitment
	for _, queue := range threeLevels {
		world = append(world, PutQueue{queue})
	}
	for i := range 3 {
		world = append(world, cpuNode(NodeID(fmt.Sprint("n", i)), 8))
	}
	_, err := q.Propose(bg, Proposal{Do: world})
	require.NoError(t, err)
	before := q.now()
	was, count := modelOf(before), map[string]int{}
	missing := func() string {
		for _, what := range []string{"place", "evict", "respec", "found", "quota", "overdrawn"} {
			if count[what] == 0 {
				return what
			}
		}
		return ""
	}
	for storm := range uint64(50) { // one goroutine may be done before the others begin, and then little comes about
		q.storm(storm)
		before, was = q.judge(before, was, count)
		if testing.Short() || missing() == "" {
			break
		}
	}
	require.Empty(t, diffStates(before, q.live))
	t.Logf("%d revisions: %v", q.live.rev, count)
	if !testing.Short() {
		require.Empty(t, missing(), "%v", count)
	}
}

// storm lets all propose at once.
func (q *quotaRace) storm(seed uint64) {
	rounds := scale.Of(200, 4000)
	var all sync.WaitGroup
	for i := range uint64(8) {
		all.Go(func() { q.engine(rand.New(rand.NewPCG(i, seed)), rounds) })
	}
	all.Go(func() { q.keeper(rand.New(rand.NewPCG(8, seed)), rounds/2) })
	all.Go(func() { q.drainer(rand.New(rand.NewPCG(9, seed)), rounds/8) })
	all.Go(func() { q.finder(rand.New(rand.NewPCG(10, seed)), rounds/8) })
	all.Wait()
}

// judge judges the changes after a state, and returns the last state.
func (q *quotaRace) judge(before *State, was *model, count map[string]int) (*State, *model) {
	t := q.t
	changes, err := q.Changes(bg, before.rev)
	require.NoError(t, err)
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		var p Proposal
		for _, c := range changes[:n] {
			p.Do = append(p.Do, c.Do)
		}
		after, err := before.Apply(changes[:n])
		require.NoError(t, err)
		require.NoError(t, after.Verify())
		now := modelOf(after)
		require.Empty(t, diffLines(queuesOf(after), now.describeQueues()), "at %d", after.rev)
		requireFair(t, was, now, p, count)
		before, was, changes = after, now, changes[n:]
	}
	return before, was
}

// requireFair judges one change by the model's arithmetic alone.
func requireFair(t *testing.T, was, now *model, p Proposal, count map[string]int) {
	r := &modelRound{was: was, now: now, p: p, found: map[CapsuleID]bool{}, facts: map[CapsuleID]bool{}, grows: map[CapsuleID]Spec{}, wishes: newModelWishes()}
	for at, do := range p.Do {
		switch do := do.(type) {
		case Adopt:
			r.found[do.Capsule] = true
			count["found"]++
		case Evict:
			r.wishes.victims = append(r.wishes.victims, at)
			count["evict"]++
		case Place:
			count["place"]++
		case Respec:
			count["respec"]++
		case PutQueue:
			count["quota"]++
		}
	}
	require.Empty(t, r.overdrawn(), "revision %d: more than the quota: %v", now.rev, p)
	require.Empty(t, r.unjust(), "revision %d: an eviction that is not just: %v", now.rev, p)
	for id := range now.queues {
		count["overdrawn"] += btoi(now.recount().Available(id, "cpu").Sign() < 0)
	}
}
