package orbit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// surgeInstance is one instance of a capsule in a dumb model of surges.
type surgeInstance struct {
	node               NodeID
	since, left        Revision
	begun, ready, wait bool
}

// surgeCapsule is a capsule of the model: where it is placed, where it serves meanwhile, and what of it is told to stop.
type surgeCapsule struct {
	placed, serves *surgeInstance
	stopping       []surgeInstance
	released       bool
}

// surgeModel is the dumb model: each capsule takes one of the two cores of a node, and so does what serves for it.
type surgeModel struct {
	capsules map[CapsuleID]*surgeCapsule
	lost     map[NodeID]bool
}

const surgeNeeded = 2

// use counts what is given away on a node, and what is told to stop there.
func (m *surgeModel) use(n NodeID) (used, stopping int) {
	for _, c := range m.capsules {
		used += btoi(c.placed != nil && c.placed.node == n) + btoi(c.serves != nil && c.serves.node == n)
		for _, s := range c.stopping {
			stopping += btoi(s.node == n)
		}
	}
	return used, stopping
}

func (m *surgeModel) healthy(c *surgeCapsule) bool {
	if c.serves != nil {
		return c.serves.ready
	}
	return c.placed != nil && c.placed.ready && !m.lost[c.placed.node]
}

// put places a capsule.
func (m *surgeModel) put(c *surgeCapsule, n NodeID, at Revision) {
	used, stopping := m.use(n)
	c.placed = &surgeInstance{node: n, since: at, wait: stopping > 0 && used+1+stopping > 2}
}

// stop takes an instance off its node.
func (m *surgeModel) stop(c *surgeCapsule, i *surgeInstance, at Revision) {
	if i != nil && i.begun && !m.lost[i.node] {
		i.left = at
		c.stopping = append(c.stopping, *i)
	}
}

// step returns the commitments of a deed, whether the ledger has to take them, and what they change in the model.
func (m *surgeModel) step(what string, id CapsuleID, to NodeID) (do []Commitment, takes bool, then func(at Revision)) {
	c := m.capsules[id]
	used, _ := m.use(to)
	room, p := used < 2 && !m.lost[to], c.placed
	waits := p != nil && !p.begun && !m.lost[p.node] && (p.wait || len(c.stopping) > 0)
	switch {
	case what == "lose":
		n := Node{ID: to, Capacity: Resources{CPU: 2}, Confirms: true, State: Lost}
		return []Commitment{PutNode{n}}, true, func(Revision) {
			m.lost[to] = true
			for _, c := range m.capsules {
				c.stopping = slices.DeleteFunc(c.stopping, func(i surgeInstance) bool { return i.node == to })
				if c.serves != nil && c.serves.node == to {
					c.serves = nil
				}
			}
		}
	case what == "submit":
		return []Commitment{Submit{IDs: []CapsuleID{id}, Spec: surgeSpec()}}, c.released, func(Revision) { c.released = false }
	case what == "final":
		return []Commitment{Release{Capsule: id, Final: true}}, !c.released, func(at Revision) {
			m.stop(c, c.placed, at)
			m.stop(c, c.serves, at)
			c.placed, c.serves, c.released = nil, nil, true
		}
	case what == "place":
		return []Commitment{Place{Capsule: id, Node: to}}, p == nil && !c.released && room, func(at Revision) { m.put(c, to, at) }
	case p == nil:
		return nil, false, nil
	case what == "move" || what == "surge":
		surge := what == "surge" && p.begun && !m.lost[p.node]
		others := 0
		for _, o := range m.capsules {
			others += btoi(o != c && m.healthy(o))
		}
		takes = c.serves == nil && !m.lost[to]
		if surge {
			takes = takes && len(c.stopping) == 0 && room && to != p.node
		} else {
			takes = takes && (used < 2 || to == p.node) && (waits || m.lost[p.node] || others >= surgeNeeded)
		}
		return []Commitment{Evict{Capsule: id, From: p.node, Since: p.since, Surge: what == "surge"}, Place{Capsule: id, Node: to}}, takes, func(at Revision) {
			if c.placed = nil; surge {
				c.serves = p
			} else {
				m.stop(c, p, at)
			}
			m.put(c, to, at)
		}
	case what == "begin", what == "ready":
		takes = !m.lost[p.node] && (what == "begin" && !p.begun || what == "ready" && !p.ready)
		if !p.begun {
			takes = takes && len(c.stopping) == 0
			for _, o := range m.capsules {
				for _, s := range o.stopping {
					takes = takes && (!p.wait || s.node != p.node || s.left > p.since)
				}
			}
		}
		return []Commitment{Confirm{Capsule: id, Since: p.since, Begun: what == "begin", Ready: what == "ready"}}, takes, func(at Revision) {
			if p.begun, p.ready, p.wait = true, what == "ready", false; p.ready && c.serves != nil {
				m.stop(c, c.serves, at)
				c.serves = nil
			}
		}
	case what == "sick" || what == "well":
		of := p
		if c.serves != nil {
			of = c.serves
		}
		if !of.begun {
			return nil, false, nil
		}
		takes = !m.lost[of.node] && of.ready == (what == "sick")
		return []Commitment{Confirm{Capsule: id, Since: of.since, Ready: what == "well", NotReady: what == "sick"}}, takes, func(at Revision) { of.ready = what == "well" }
	case what == "stopped":
		if c.serves != nil {
			return []Commitment{Confirm{Capsule: id, Since: c.serves.since, Stopped: true}}, true, func(Revision) { c.serves = nil }
		}
		if len(c.stopping) == 0 {
			return nil, false, nil
		}
		return []Commitment{Confirm{Capsule: id, Since: c.stopping[0].since, Stopped: true}}, true, func(Revision) { c.stopping = c.stopping[1:] }
	default: // "fail", "release"
		fails := what == "fail"
		return []Commitment{Release{Capsule: id, Stopped: fails}}, fails || waits || c.serves != nil || m.lost[p.node], func(at Revision) {
			if !fails {
				m.stop(c, p, at)
			}
			c.placed, c.serves = c.serves, nil
		}
	}
}

// text says what the model knows of a capsule.
func (m *surgeModel) text(id CapsuleID) string {
	c := m.capsules[id]
	var b strings.Builder
	fmt.Fprintf(&b, "%s released %v healthy %v", id, c.released, m.healthy(c))
	if p := c.placed; p != nil {
		fmt.Fprintf(&b, " on %s since %d begun %v ready %v wait %v", p.node, p.since, p.begun, p.ready, p.wait)
	}
	if s := c.serves; s != nil {
		fmt.Fprintf(&b, " serves on %s since %d ready %v", s.node, s.since, s.ready)
	}
	var left []string
	for _, s := range c.stopping {
		left = append(left, fmt.Sprint(" stops on ", s.node, " since ", s.since, " left ", s.left))
	}
	slices.Sort(left)
	return b.String() + strings.Join(left, ",")
}

// surgeText says the same of a state.
func surgeText(s *State, id CapsuleID) string {
	c := s.Capsule(id)
	var b strings.Builder
	fmt.Fprintf(&b, "%s released %v healthy %v", id, c.released, s.health(c).ready == 1)
	if c.Placed() {
		fmt.Fprintf(&b, " on %s since %d begun %v ready %v wait %v", c.Node, c.PlacedAt, c.Begun, c.Ready, c.Waits)
	}
	var left []string
	for n := range s.Nodes() {
		for r := range n.Remains {
			switch {
			case r.Capsule != id:
			case r.Surge:
				fmt.Fprintf(&b, " serves on %s since %d ready %v", r.Node, r.Since, r.Ready)
			default:
				left = append(left, fmt.Sprint(" stops on ", r.Node, " since ", r.Since, " left ", r.Left))
			}
		}
	}
	slices.Sort(left)
	return b.String() + strings.Join(left, ",")
}

func surgeSpec() *Spec {
	s := cpuSpec(1)
	s.Group, s.Surge, s.Movable = "web", true, true
	return s
}

// TestSurgesAgainstModel compares surges with a dumb model: who is placed, who serves, who is told to stop, what is in use and how
// many are healthy. After each commit the state adds up, and is the same once it is dumped and restored.
func TestSurgesAgainstModel(t *testing.T) {
	t.Parallel()
	deeds := []string{"surge", "surge", "surge", "move", "begin", "begin", "ready", "ready", "ready", "sick", "well", "stopped", "stopped", "fail", "release", "place", "place", "final", "submit", "lose"}
	ids, nodes := []CapsuleID{"a", "b", "c"}, []NodeID{"n1", "n2", "n3"}
	rapid.Check(t, func(t *rapid.T) {
		ledger := &MemoryLedger{}
		var view View
		var draft Draft
		m := &surgeModel{map[CapsuleID]*surgeCapsule{}, map[NodeID]bool{}}
		for _, n := range nodes {
			commit(t, ledger, PutNode{Node{ID: n, Capacity: Resources{CPU: 2}, Confirms: true}})
		}
		commit(t, ledger, Submit{IDs: ids, Spec: surgeSpec()}, PutBudget{Budget{ID: "web", Group: "web", Expected: surgeNeeded}})
		for i, id := range ids {
			m.capsules[id] = &surgeCapsule{}
			m.put(m.capsules[id], nodes[i], commit(t, ledger, Place{Capsule: id, Node: nodes[i]}))
			_, _, then := m.step("ready", id, "")
			then(commit(t, ledger, Confirm{Capsule: id, Since: m.capsules[id].placed.since, Ready: true}))
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			what, id, to := rapid.SampledFrom(deeds).Draw(t, "what"), rapid.SampledFrom(ids).Draw(t, "capsule"), rapid.SampledFrom(nodes).Draw(t, "to")
			if what == "lose" && len(m.lost) > 0 {
				continue
			}
			do, takes, then := m.step(what, id, to)
			if do == nil {
				continue
			}
			if what == "surge" || what == "move" {
				require.NoError(t, view.Refresh(context.Background(), ledger, nil, time.Unix(1, 0)))
				draft.Sync(&view)
				err := draft.Evict(Evict{Capsule: id, Surge: what == "surge"})
				if err == nil {
					err = draft.Place(view.State().Capsule(id), Choice{Node: view.State().Node(to)})
				}
				require.Equal(t, takes, err == nil, "on a draft: %s %s to %s: %v; before: %s", what, id, to, err, m.text(id))
			}
			at, err := ledger.Propose(context.Background(), Proposal{Do: do})
			require.Equal(t, takes, err == nil, "%s %s to %s: %v; before: %s", what, id, to, err, m.text(id))
			if err == nil {
				then(at)
			}
			s := snapshotOf(t, ledger)
			require.NoError(t, s.Verify())
			healthy := 0
			for _, id := range ids {
				require.Equal(t, m.text(id), surgeText(s, id), "after %s %s to %s", what, id, to)
				healthy += btoi(m.healthy(m.capsules[id]))
			}
			require.Equal(t, healthy, s.coverage(memberSet{name: "web"}).healthy.ready)
			for _, n := range nodes {
				used, _ := m.use(n)
				require.EqualValues(t, used, s.Node(n).used[CPU], n)
			}
			back := new(State)
			require.NoError(t, back.Restore(strings.NewReader(dumpOf(t, s))))
			require.Equal(t, dumpOf(t, s), dumpOf(t, back))
			for _, id := range ids {
				require.Equal(t, surgeText(s, id), surgeText(back, id))
				require.Equal(t, s.Capsule(id).Surge(), back.Capsule(id).Surge())
			}
		}
	})
}

// TestDraftSurges: a draft takes a surge where the ledger does, keeps the room on the node, and lets no budget forbid it.
func TestDraftSurges(t *testing.T) {
	t.Parallel()
	l := &MemoryLedger{}
	for _, n := range []NodeID{"n1", "n2", "n3"} {
		commit(t, l, PutNode{Node{ID: n, Capacity: Resources{CPU: 1}, Confirms: n != "n3"}})
	}
	still := surgeSpec()
	still.Surge = false
	commit(t, l, Submit{IDs: []CapsuleID{"a", "b"}, Spec: surgeSpec()}, Submit{IDs: []CapsuleID{"still"}, Spec: still})
	protected := commit(t, l, Place{Capsule: "a", Node: "n1"}, Protect{Capsule: "a", For: time.Minute}, PutBudget{Budget{ID: "web", Group: "web", Expected: 1}})
	commit(t, l, Confirm{Capsule: "a", Since: snapshotOf(t, l).Capsule("a").PlacedAt, Ready: true})
	var view View
	var d Draft
	sync := func() {
		require.NoError(t, view.Refresh(context.Background(), l, nil, time.Unix(1, 0)))
		d.Sync(&view)
	}
	sync()
	require.ErrorContains(t, d.Evict(Evict{Capsule: "a", Surge: true}), "protected")
	_, err := l.Propose(context.Background(), Proposal{Do: []Commitment{Evict{Capsule: "a", From: "n1", Since: protected, Surge: true}, Place{Capsule: "a", Node: "n2"}}})
	require.ErrorContains(t, err, "protected")
	commit(t, l, Protect{Capsule: "a", Since: protected})
	sync()
	require.ErrorContains(t, d.Evict(Evict{Capsule: "a"}), "budget")
	require.ErrorContains(t, d.Evict(Evict{Capsule: "a", Surge: true, For: "b"}), "cannot surge")
	start := d.Checkpoint()
	on := func(n NodeID) Choice { return Choice{Node: d.View().State().Node(n)} }
	require.NoError(t, d.Evict(Evict{Capsule: "a", Surge: true}))
	a, b := d.View().State().Capsule("a"), d.View().State().Capsule("b")
	require.Error(t, d.Place(b, on("n1")), "a keeps its room")
	require.Error(t, d.Place(a, on("n3")), "n3 does not confirm")
	require.NoError(t, d.Place(a, on("n2")))
	d.Rollback(start)
	require.NoError(t, d.Evict(Evict{Capsule: "a", Surge: true}))
	require.NoError(t, d.Place(a, on("n2")))
	_, err = l.Propose(context.Background(), d.Propose())
	require.NoError(t, err)
	sync()
	require.ErrorContains(t, d.Evict(Evict{Capsule: "a"}), "surges")
	require.ErrorContains(t, d.Evict(Evict{Capsule: "a", Surge: true}), "surges")
	require.False(t, d.View().State().Movable(d.View().State().Capsule("a")))
}
