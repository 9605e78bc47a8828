package nav_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// gpus returns a movable spec that asks for whole devices.
func gpus(count int) *orbit.Spec {
	s := spec(1, 0)
	s.Devices, s.Movable = orbit.DeviceRequest{Count: count, Milli: 1000}, true
	return s
}

func gpuNode(id string) orbit.PutNode {
	n := node(id, 32)
	n.Node.Devices = orbit.Devices{Model: "g", Count: 8}
	return n
}

// putDevices submits and places capsules that take these devices of a node.
func putDevices(t require.TestingT, l orbit.Ledger, id orbit.CapsuleID, on string, first, count int) {
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: gpus(count)},
		orbit.Place{Capsule: id, Node: orbit.NodeID(on), Devices: orbit.DeviceSet(1<<count-1) << first})
}

// fitting counts how many more capsules of a spec fit on a state.
func fitting(t require.TestingT, l orbit.Ledger, of *orbit.Spec) (count int) {
	of, err := of.Share()
	require.NoError(t, err)
	var draft orbit.Draft
	draft.Sync(viewOf(t, l))
	engine := &place.Exhaustive{Score: score.BestFit{}}
	for {
		choice, err := engine.Best(&draft, of)
		if err != nil {
			return count
		}
		require.NoError(t, draft.Reserve(of, choice))
		count++
	}
}

func defrag(l orbit.Ledger, goal nav.DefragGoal) *nav.Defrag {
	return &nav.Defrag{Ledger: l, Goal: goal}
}

// untilStill passes until nothing moves any more, and returns what has moved.
func untilStill(t *testing.T, d *nav.Defrag) (moved []orbit.CapsuleID) {
	for range 20 {
		round := d.Pass(t.Context())
		require.Empty(t, round.Errors)
		require.Zero(t, round.Conflicts)
		if len(round.Moved) == 0 {
			return moved
		}
		moved = append(moved, round.Moved...)
	}
	require.Fail(t, "it does not stop")
	return nil
}

// Crumbs on four nodes of 8 devices: two capsules of 2 devices move, and two gangs of 8 fit where none did; then it stops.
func TestDefragMakesRoomForAShape(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 4 {
		id := fmt.Sprint("n", i)
		commit(t, l, gpuNode(id))
		putDevices(t, l, orbit.CapsuleID("c"+id), id, 2*i, 2)
	}
	require.Zero(t, fitting(t, l, gpus(8)))
	moved := untilStill(t, defrag(l, nav.RoomFor{Spec: gpus(8)}))
	require.Len(t, moved, 3, "three nodes are emptied onto the fourth")
	require.Equal(t, 3, fitting(t, l, gpus(8)))
}

// A capsule that moves goes to the fullest node, whatever the unit of the capacities, and so an empty node stays empty.
func TestDefragFillsTheFullestNode(t *testing.T) {
	for unit := int64(1); unit <= 1e9; unit *= 1000 {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 32*unit), node("b", 32*unit), gpuNode("g"))
		b, g := spec(8*unit, 0), spec(1, 0)
		g.Movable = true
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"cb"}, Spec: b}, orbit.Place{Capsule: "cb", Node: "b"},
			orbit.Submit{IDs: []orbit.CapsuleID{"cg"}, Spec: g}, orbit.Place{Capsule: "cg", Node: "g"})
		require.Len(t, untilStill(t, defrag(l, nav.OffDevices{})), 1)
		require.EqualValues(t, "b", snapshot(t, l).Capsule("cg").Node, "with %d units in a core", unit)
	}
}

// Count bounds the rooms, MinGain the disruption for each, and Moves that of a pass.
func TestDefragKeepsToItsLimits(t *testing.T) {
	crumbs := func(devices int) *orbit.MemoryLedger {
		l := &orbit.MemoryLedger{}
		for i := range 4 {
			id := fmt.Sprint("n", i)
			commit(t, l, gpuNode(id))
			putDevices(t, l, orbit.CapsuleID("c"+id), id, 0, devices)
		}
		return l
	}
	l := crumbs(2)
	require.Len(t, untilStill(t, defrag(l, nav.RoomFor{Spec: gpus(8), Count: 2})), 2)
	l = crumbs(4)
	d := defrag(l, nav.RoomFor{Spec: gpus(8)})
	d.MinGain = 2.5 // a room of 8 for a move of 4 is worth 2
	round := d.Pass(t.Context())
	require.Empty(t, round.Moved)
	require.Positive(t, round.TooDear)
	d.MinGain = 1.5
	d.Moves = 1
	round = d.Pass(t.Context())
	require.Len(t, round.Moved, 1)
	require.True(t, round.Spent)
	require.Len(t, untilStill(t, d), 1)
	require.Equal(t, 2, fitting(t, l, gpus(8)))
}

// Members of one gang have room together, in one rack.
func TestDefragMakesRoomInARack(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 4 {
		id := fmt.Sprint("n", i)
		n := gpuNode(id)
		n.Node.Labels = map[string]string{"rack": fmt.Sprint("r", i/2)}
		commit(t, l, n)
		putDevices(t, l, orbit.CapsuleID("c"+id), id, 0, 2)
	}
	untilStill(t, defrag(l, nav.RoomFor{Spec: gpus(8), Members: 2, Level: "rack"}))
	s, used := snapshot(t, l), map[string]int{}
	for c := range s.Capsules() {
		used[s.Node(c.Node).Node.Labels["rack"]]++
	}
	require.Len(t, used, 1, "one rack is free")
}

// Room that is there already is no place for what moves: to make one room by taking another is no gain.
func TestDefragKeepsTheRoomThatIsThere(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i, devices := range []int{2, 0, 8} {
		id := fmt.Sprint("n", i)
		n := gpuNode(id)
		n.Node.Labels = map[string]string{"rack": fmt.Sprint("r", (i+1)/2)}
		commit(t, l, n)
		if devices > 0 {
			putDevices(t, l, orbit.CapsuleID("c"+id), id, 0, devices)
		}
	}
	require.Empty(t, untilStill(t, defrag(l, nav.RoomFor{Spec: gpus(8), Level: "rack"})))
}

// Nodes are emptied onto others in use, named, and cordoned by the same commit; one that does not fit elsewhere stays.
func TestDefragEmptiesNodes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i, takes := range []int64{1, 2, 5, 7} {
		s, id := spec(takes, 0), orbit.NodeID(fmt.Sprint("n", i))
		s.Movable = true
		commit(t, l, node(string(id), 8), orbit.Submit{IDs: []orbit.CapsuleID{"c" + orbit.CapsuleID(id)}, Spec: s}, orbit.Place{Capsule: "c" + orbit.CapsuleID(id), Node: id})
	}
	d := defrag(l, nav.EmptyNodes{Cordon: true})
	round := d.Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Equal(t, []orbit.NodeID{"n0", "n1"}, round.Emptied)
	for _, id := range round.Emptied {
		n := snapshot(t, l).Node(id)
		require.Zero(t, n.Capsules)
		require.Equal(t, orbit.Cordoned, n.Node.State)
	}
	require.Empty(t, untilStill(t, d))
}

// A group that is uneven because a zone was lost or joined is spread again, by a swap where the other zone is full.
func TestDefragSpreadsAgain(t *testing.T) {
	for _, full := range []bool{false, true} {
		l := &orbit.MemoryLedger{}
		zoned := func(id, zone string) orbit.PutNode {
			n := node(id, 4)
			n.Node.Labels = map[string]string{"zone": zone}
			return n
		}
		member := spec(1, 0)
		member.Groups, member.Movable = []string{"g"}, true
		member.Even = []orbit.Even{{Group: "g", Level: "zone", MaxSkew: 1}}
		commit(t, l, zoned("a", "a"))
		for i := range 4 {
			id := orbit.CapsuleID(fmt.Sprint("m", i))
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: member}, orbit.Place{Capsule: id, Node: "a"})
		}
		commit(t, l, zoned("a2", "a"), zoned("b", "b")) // to move within the zone would not help
		other := spec(1, 0)
		other.Movable = true
		for i := range 4 * btoi(full) {
			id := orbit.CapsuleID(fmt.Sprint("o", i))
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: other}, orbit.Place{Capsule: id, Node: "b"})
		}
		d := defrag(l, nav.EvenSpread{})
		moved := untilStill(t, d)
		for skew := range snapshot(t, l).Skewed() {
			require.Fail(t, "still uneven", "%+v", skew)
		}
		require.Len(t, moved, 2+2*btoi(full), "of a swap both move")
	}
}

// Work without devices leaves nodes with devices while it fits on others.
func TestDefragTakesWorkOffDevices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, gpuNode("g"), node("n", 2))
	s := spec(1, 0)
	s.Movable = true
	for i := range 3 {
		id := orbit.CapsuleID(fmt.Sprint("c", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: "g"})
	}
	require.Len(t, untilStill(t, defrag(l, nav.OffDevices{})), 2)
	require.Equal(t, 1, snapshot(t, l).Node("g").Capsules)
}

// Bad settings are refused with a reason, and change nothing.
func TestDefragRefusesBadSettings(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for _, d := range []*nav.Defrag{
		{}, {Ledger: l}, {Ledger: l, Goal: nav.RoomFor{}}, {Ledger: l, Goal: nav.RoomFor{Spec: gpus(8), Count: -1}},
		{Ledger: l, Goal: nav.EvenSpread{}, Every: -1}, {Ledger: l, Goal: nav.EvenSpread{}, MinGain: -1},
		{Ledger: l, Goal: nav.RoomFor{Spec: &orbit.Spec{Devices: orbit.DeviceRequest{Count: -1}}}},
	} {
		require.ErrorIs(t, d.Run(t.Context()), orbit.ErrInvalid)
		require.NotEmpty(t, d.Pass(t.Context()).Errors)
	}
}

// defragGoals are the goals that run together in a churning cluster.
func defragGoals() map[string]nav.DefragGoal {
	return map[string]nav.DefragGoal{
		"room": nav.RoomFor{Spec: gpus(8)}, "empty": nav.EmptyNodes{}, "spread": nav.EvenSpread{}, "devices": nav.OffDevices{},
	}
}

// churn submits and ends work at random for a time, on a cluster of 12 nodes with devices and 6 without. A budget covers a
// part of the work.
func churn(t *testing.T, l orbit.Ledger, lasts time.Duration) {
	r, n, alive := rand.New(rand.NewPCG(1, 2)), 0, []orbit.CapsuleID(nil)
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(5 * time.Minute) {
		for len(alive) < 60 {
			s := gpus([]int{1, 1, 2, 4}[r.IntN(4)])
			if r.IntN(4) == 0 {
				s = spec(4, 0)
				s.Groups = []string{"web"}
				s.Even = []orbit.Even{{Group: "web", Level: "rack", MaxSkew: 2}}
			}
			s.Movable = r.IntN(4) > 0
			id := orbit.CapsuleID(fmt.Sprint("c", n))
			n++
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s, At: orbit.Instant(time.Now().UnixNano())})
			alive = append(alive, id)
		}
		for range 3 {
			at := r.IntN(len(alive))
			commit(t, l, orbit.Release{Capsule: alive[at], Final: true})
			alive[at] = alive[len(alive)-1]
			alive = alive[:len(alive)-1]
		}
	}
}

// Work comes and goes for virtual hours, while a Defrag of each goal runs, all four together or one alone. No capsule moves twice
// within MinStay, and no budget is ever broken. A Defrag moves a capsule back only if another party has touched one of the two nodes since,
// or a member of its group if it has a rule Even; a Defrag of another goal is another party. In a day without churn nothing moves.
func TestDefragUnderChurn(t *testing.T) {
	t.Run("all", func(t *testing.T) {
		moves := judgeChurn(t, time.Duration(scale.Of(12, 48))*time.Hour, defragGoals())
		require.Positive(t, moves)
		t.Logf("%d moves of 60 capsules", moves)
	})
	alone := 0
	for name, goal := range defragGoals() {
		t.Run(name, func(t *testing.T) {
			alone += judgeChurn(t, 6*time.Hour, map[string]nav.DefragGoal{name: goal})
		})
	}
	require.Positive(t, alone)
}

// mover is the ledger of one Defrag. It tells whose a proposal was.
type mover struct {
	orbit.Ledger
	name string
	by   *sync.Map // from the proposal's id to the name
}

func (m mover) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	m.by.Store(p.ID, m.name)
	return m.Ledger.Propose(ctx, p)
}

// judgeChurn lets Defrags run beside churn of this length, judges their moves and returns how many there were.
func judgeChurn(t *testing.T, lasts time.Duration, goals map[string]nav.DefragGoal) (moves int) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		for i := range 18 {
			n := node(fmt.Sprintf("n%02d", i), 32)
			if i%3 > 0 {
				n = gpuNode(fmt.Sprintf("n%02d", i))
			}
			n.Node.Labels = map[string]string{"rack": fmt.Sprint("r", i%3)}
			commit(t, l, n)
		}
		commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "web", Group: "web", Expected: 10, Missing: 2}})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var by sync.Map
		for name, goal := range goals {
			d := defrag(mover{l, name, &by}, goal)
			d.OnRound = func(r nav.DefragRound) { assert.Empty(t, r.Errors) } // the ledger refuses what breaks a budget
			go func() { _ = d.Run(ctx) }()
		}
		engine := &orbit.Engine{Name: "e", Ledger: l, Navigator: nav.Func((&nav.Services{}).Plan)}
		go func() { _ = engine.Run(ctx) }()
		churn(t, l, lasts)
		time.Sleep(3 * time.Hour) // what was placed last may move after MinStay
		quiet := snapshot(t, l).Revision()
		moves = judgeDefrag(t, l, &by)
		time.Sleep(24 * time.Hour)
		later, _ := movesIn(t, l, quiet)
		assert.Zero(t, later, "moves in a day without churn")
		stop()
		synctest.Wait()
	})
	return moves
}

// touches says when the two parties that changed something last did so, the last one first. Times are counts of changes: several proposals may
// have one revision.
type touches [2]struct {
	by any
	at int
}

func (h *touches) add(by any, at int) {
	if h[0].by != by {
		h[1] = h[0]
	}
	h[0].by, h[0].at = by, at
}

// other returns when it was last changed by another party than the given one.
func (h *touches) other(by any) (at int) {
	if h[0].by != by {
		return h[0].at
	}
	return h[1].at
}

// judgeDefrag replays the history and judges its moves: see TestDefragUnderChurn. It returns their number.
func judgeDefrag(t *testing.T, l orbit.Ledger, by *sync.Map) (count int) {
	type move struct {
		from, to orbit.NodeID
		by       any
		at       int
	}
	changes, err := l.Changes(t.Context(), 0)
	require.NoError(t, err)
	from, last, placed := map[orbit.CapsuleID]orbit.NodeID{}, map[orbit.CapsuleID]move{}, map[orbit.CapsuleID]time.Time{}
	nodes, webs := map[orbit.NodeID]*touches{}, touches{} // webs: of the group with a rule Even
	web := map[orbit.CapsuleID]bool{}
	touch := func(id orbit.NodeID, c orbit.CapsuleID, by any, at int) {
		if nodes[id] == nil {
			nodes[id] = &touches{}
		}
		if nodes[id].add(by, at); web[c] {
			webs.add(by, at)
		}
	}
	for at, c := range changes {
		who, _ := by.Load(c.ID) // nil: by no Defrag
		switch do := c.Do.(type) {
		case orbit.Evict:
			require.Empty(t, do.For)
			from[do.Capsule] = do.From
			touch(do.From, do.Capsule, who, at)
		case orbit.Submit:
			for _, id := range do.IDs {
				web[id] = do.Spec.IsIn("web")
			}
		case orbit.Release:
			touch(c.Node, do.Capsule, who, at)
		case orbit.Place:
			if was, moved := from[do.Capsule]; moved {
				count++
				delete(from, do.Capsule)
				assert.GreaterOrEqual(t, do.At.Time().Sub(placed[do.Capsule]), time.Hour, "%s moves within MinStay", do.Capsule)
				if before, again := last[do.Capsule]; again && before.from == do.Node && before.by == who {
					cause := max(nodes[before.from].other(who), nodes[before.to].other(who))
					if web[do.Capsule] { // the rule compares its racks with all others
						cause = max(cause, webs.other(who))
					}
					assert.Greater(t, cause, before.at, "%s moves back without a cause; a member of web: %v", do.Capsule, web[do.Capsule])
				}
				last[do.Capsule] = move{was, do.Node, who, at}
			}
			touch(do.Node, do.Capsule, who, at)
			placed[do.Capsule] = do.At.Time()
		}
	}
	return count
}

// On a packed cluster nothing moves for any goal, not in 24 hours.
func TestDefragMovesNothingOnAPackedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		for i := range 6 {
			id := fmt.Sprint("n", i)
			commit(t, l, gpuNode(id))
			for k := range 4 {
				putDevices(t, l, orbit.CapsuleID(fmt.Sprint("c", i, k)), id, 2*k, 2-btoi(i == 5 && k == 3)) // one device is free
			}
		}
		for _, goal := range defragGoals() {
			go func() { _ = defrag(l, goal).Run(t.Context()) }()
		}
		before := snapshot(t, l).Revision()
		time.Sleep(24 * time.Hour)
		require.Equal(t, before, snapshot(t, l).Revision())
	})
}
