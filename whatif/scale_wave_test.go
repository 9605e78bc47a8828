package whatif_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/whatif"
)

// scaled is a cluster that is scaled while work comes and goes.
type scaled struct {
	t      *testing.T
	ledger *orbit.MemoryLedger
	r      *rand.Rand
	kinds  []whatif.NodeKind
	now    time.Duration
	count  int
	alive  []orbit.CapsuleID
	// By kind: when a node of it went last, and what all work asked for then.
	went         map[string]time.Duration
	loadThen     map[string]int64
	joined, gone int
	moved        int
}

// load is what all capsules ask for together.
func (w *scaled) load() (cpu int64) {
	for c := range snapshot(w.t, w.ledger).Capsules() {
		if !c.Released() {
			cpu += c.Spec.Envelope.Reservation[orbit.CPU]
		}
	}
	return cpu
}

func (w *scaled) kindOf(n *orbit.Node) string {
	for i := range w.kinds {
		if w.kinds[i].Node.Capacity == n.Capacity {
			return w.kinds[i].Name
		}
	}
	return ""
}

// work lets capsules end at random and others come, until so many live. A tenth of them are in gangs of three.
func (w *scaled) work(live int) {
	for range len(w.alive) / 20 {
		w.end()
	}
	for len(w.alive) > live {
		w.end()
	}
	for len(w.alive) < live {
		s := wants([]int64{1, 1, 2, 3, 5}[w.r.IntN(5)], 0)
		s.Movable, s.Group = w.r.IntN(10) > 0, fmt.Sprint("g", w.r.IntN(8))
		id := orbit.CapsuleID(fmt.Sprint("c", w.count))
		if w.count++; w.r.IntN(30) == 0 {
			s.Class = orbit.GangClass
			members := []orbit.CapsuleID{id, id + "b", id + "c"}
			commit(w.t, w.ledger, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID("g" + id), Roles: []orbit.Role{{Name: "r", Members: members, Spec: s, Min: 1}}}})
			w.alive = append(w.alive, members...)
			continue
		}
		commit(w.t, w.ledger, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s})
		w.alive = append(w.alive, id)
	}
}

func (w *scaled) end() {
	i := w.r.IntN(len(w.alive))
	commit(w.t, w.ledger, orbit.Release{Capsule: w.alive[i], Final: true})
	w.alive = slices.Delete(w.alive, i, i+1)
}

// up adds what waits for, and judges it: of the kinds that join, no node could go at once, and none of the kind has gone
// within an hour unless the work asks for more since.
func (w *scaled) up() {
	answer, err := (&whatif.ScaleUp{Kinds: w.kinds}).Plan(w.t.Context(), snapshot(w.t, w.ledger))
	require.NoError(w.t, err)
	_, err = answer.Commit(w.t.Context(), w.ledger)
	require.NoError(w.t, err)
	after := snapshot(w.t, w.ledger)
	require.Empty(w.t, after.Pending())
	joined := answer.Counts()
	w.joined, w.moved = w.joined+len(answer.Nodes), w.moved+len(answer.Moved)
	for kind := range joined {
		if when, ok := w.went[kind]; ok && w.now-when < time.Hour {
			require.Greater(w.t, w.load(), w.loadThen[kind], "at %v a node of kind %s joins that could have stayed", w.now, kind)
		}
	}
	down, err := (&whatif.ScaleDown{Of: func(n *orbit.Node) bool { return joined[w.kindOf(n)] > 0 }}).Plan(w.t.Context(), after)
	require.NoError(w.t, err)
	require.Empty(w.t, down.Nodes, "at %v, after %v", w.now, answer)
}

// down lets go what can.
func (w *scaled) down() {
	price := priceLike(w.kinds)
	answer, err := (&whatif.ScaleDown{Price: price, Moves: 200}).Plan(w.t.Context(), snapshot(w.t, w.ledger))
	require.NoError(w.t, err)
	done, err := answer.Commit(w.t.Context(), w.ledger)
	require.NoError(w.t, err)
	require.Equal(w.t, len(answer.Nodes), done)
	for _, n := range answer.Nodes {
		kind := w.kindOf(snapshot(w.t, w.ledger).Node(n.ID).Node)
		commit(w.t, w.ledger, orbit.RemoveNode{Node: n.ID})
		w.went[kind], w.loadThen[kind] = w.now, w.load()
	}
	w.gone, w.moved = w.gone+len(answer.Nodes), w.moved+len(answer.Moved)
}

// Two days of work that rises and falls: when something waits, nodes join, and once an hour go what can. No node joins that
// moves could have saved, and none goes to come back within the hour for the same load.
func TestScaleThroughTheDay(t *testing.T) {
	scale.Sequential(t)
	days := time.Duration(scale.Of(1, 4))
	for seed := range uint64(1) {
		w := &scaled{t: t, ledger: &orbit.MemoryLedger{}, r: rand.New(rand.NewPCG(seed, 1)), went: map[string]time.Duration{}, loadThen: map[string]int64{},
			kinds: []whatif.NodeKind{kind("small", 8, 10), kind("large", 24, 27)}}
		most := 0
		for ; w.now < days*24*time.Hour; w.now += 15 * time.Minute {
			w.work(150 - int(100*math.Cos(2*math.Pi*w.now.Hours()/24)))
			if len(snapshot(t, w.ledger).Pending()) > 0 {
				w.up()
			}
			if w.now%time.Hour == 45*time.Minute {
				w.down()
			}
			most = max(most, snapshot(t, w.ledger).NodeCount())
			require.NoError(t, snapshot(t, w.ledger).Verify())
		}
		t.Logf("seed %d: %d nodes joined, %d went, %d at most; %d moves", seed, w.joined, w.gone, most, w.moved)
		require.Greater(t, w.gone, most/2, "the fleet follows the load")
	}
}
