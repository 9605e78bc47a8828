package place

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// fussy is Spread that prefers every second node, which its bounds know nothing of. A search rates others before it finds one, and keeps these.
type fussy struct{ score.Spread }

func (f fussy) Score(n *orbit.NodeState, r *orbit.Report, s *orbit.Spec) (value, tie float64) {
	value, tie = f.Spread.Score(n, r, s)
	if id := n.Node.ID; id[len(id)-1]%2 == 0 {
		value += 0.001
	}
	return value, tie
}

// drawWishes adds to a spec, now and then, a level over which it is spread, and wishes about groups g and h.
func drawWishes(t *rapid.T, s *orbit.Spec, levels ...string) {
	level := rapid.SampledFrom(levels)
	if rapid.IntRange(0, 2).Draw(t, "is spread") == 0 {
		if over := level.Draw(t, "over"); over != orbit.NodeKey {
			s.Spread.Level = over
		}
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "wishes") {
		weight := rapid.SampledFrom([]float64{5, 1, 2.5, 0.1, 1e6, -3, -0.1, 0}).Draw(t, "weight")
		s.PreferCompany = append(s.PreferCompany, orbit.Company{Group: rapid.SampledFrom([]string{"g", "h"}).Draw(t, "whose"), Level: level.Draw(t, "by"), Weight: weight})
	}
}

// wished is what a spec wishes of the company of a node.
type wished struct {
	order             int
	onNode, inDomains float64
}

// key is a text that sorts as the choice goes.
func (w wished) key(n *orbit.NodeState, value, tie float64, seed uint64) string {
	own := value + w.onNode
	sortable := func(x float64) uint64 {
		bits := math.Float64bits(x + 0)
		if bits>>63 == 1 {
			return ^bits
		}
		return bits | 1<<63
	}
	return fmt.Sprintf("%020d %016x %016x %s", w.order, sortable(own+w.inDomains), sortable(own), dumbKey(n, 0, tie, seed))
}

// find adds up what a spec wishes of a node by a count of those in a domain of a group, or, without one, of the spec.
func find(spec *orbit.Spec, n *orbit.Node, count func(group, level, domain string) int) (w wished) {
	if level := spec.Spread.Level; level != "" {
		domain := n.Labels[level]
		if w.order = count(spec.Group, level, domain); domain == "" || spec.Spread.Names != nil && !spec.SpreadsAcross(n) {
			w.order = 1 << 40
		}
	}
	for _, c := range spec.PreferCompany {
		if c.Level == orbit.NodeKey {
			w.onNode += c.Weight * float64(count(c.Group, c.Level, string(n.ID)))
		} else if domain := n.Labels[c.Level]; domain != "" {
			w.inDomains += c.Weight * float64(count(c.Group, c.Level, domain))
		}
	}
	return w
}

// dumbWishes looks at all capsules.
func dumbWishes(state *orbit.State, spec *orbit.Spec, n *orbit.Node) wished {
	return find(spec, n, func(group, level, domain string) (count int) {
		for c := range state.Capsules() {
			if !c.Placed() || group == "" && c.Spec != spec || group != "" && !c.Spec.IsIn(group) {
				continue
			}
			if level == orbit.NodeKey && string(c.Node) == domain || level != orbit.NodeKey && state.Node(c.Node).Node.Labels[level] == domain {
				count++
			}
		}
		return count
	})
}

// wishesBy asks a draft.
func wishesBy(d *orbit.Draft, spec *orbit.Spec) func(n *orbit.Node) wished {
	return func(n *orbit.Node) wished {
		return find(spec, n, func(group, level, domain string) int {
			members, _ := d.MembersBy(spec, group, level)
			return members[domain]
		})
	}
}

// Rules by a label with few values, or with many, which may divide the nodes, or be too many for that: a rack that closes, and one that opens again while a search is under way, count
// for nodes that have been rated before.
// The same for wishes, by zones that divide the nodes, too.
func TestIndexedKeepsCompanyByRack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		racks, beside := rapid.SampledFrom([]int{3, 12, 70, 100, 150, 250}).Draw(t, "racks"), rapid.Bool().Draw(t, "beside each other")
		var nodes []orbit.Commitment
		all := max(2*racks, 40)
		for i := range all {
			rack := i % racks
			if beside {
				rack = i * racks / all
			}
			cpu := rapid.SampledFrom([]int64{2, 3, 3, 5, 9}).Draw(t, "cpu")
			n := orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%03d", i)), Capacity: orbit.Resources{orbit.CPU: cpu}, Labels: map[string]string{"rack": fmt.Sprint("r", rack)}}
			if i%7 > 0 {
				n.Labels["zone"] = fmt.Sprint("z", i%7%3)
			}
			nodes = append(nodes, orbit.PutNode{Node: n})
		}
		commit(t, l, nodes...)
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}, Group: "set"}
		switch rapid.IntRange(0, 4).Draw(t, "rule") {
		case 0:
			spec.Apart = []orbit.Apart{{Group: "set", Level: "rack"}}
		case 1:
			spec.Spread.Level = rapid.SampledFrom([]string{"rack", "zone", "gone"}).Draw(t, "over")
		case 2:
		case 3:
			spec.Even = []orbit.Even{{Group: "set", Level: rapid.SampledFrom([]string{"rack", "zone"}).Draw(t, "even over")}}
		default:
			var few []string
			for i := range rapid.IntRange(2, 12).Draw(t, "domains") {
				few = append(few, fmt.Sprint("r", i/2+i%2*64)) // kinds of nodes that are 64 apart share a bit
			}
			spec.Even = []orbit.Even{{Group: "set", Level: "rack", Domains: few}}
		}
		for range rapid.IntRange(0, 3).Draw(t, "wishes") {
			spec.PreferCompany = append(spec.PreferCompany, orbit.Company{Group: "set", Level: rapid.SampledFrom([]string{"rack", "zone", orbit.NodeKey}).Draw(t, "by"),
				Weight: rapid.SampledFrom([]float64{5, 0.3, 0.001, -0.001, -0.3, -5}).Draw(t, "weight")})
		}
		var ids []orbit.CapsuleID
		for i := range 60 {
			ids = append(ids, orbit.CapsuleID(fmt.Sprintf("c%02d", i)))
		}
		visitor := &orbit.Spec{Require: []orbit.Predicate{{Key: "zone", Op: "Exists"}, {Key: "rack", Op: "Exists"}}} // nodes are divided by both from the start
		commit(t, l, orbit.Submit{IDs: ids, Spec: spec}, orbit.Submit{IDs: []orbit.CapsuleID{"visitor"}, Spec: visitor})
		by := rapid.SampledFrom([]orbit.Score{fussy{}, score.Spread{}, score.Func(fussy{}.Score)}).Draw(t, "score")
		engines := []*drafted[orbit.PlacementEngine]{draftFor[orbit.PlacementEngine](&Exhaustive{Score: by}), draftFor[orbit.PlacementEngine](&Indexed{Score: by})}
		v, refresh := viewOf(t, l, nil)
		for _, e := range engines {
			e.Sync(v)
		}
		if rapid.Bool().Draw(t, "visited") {
			_, _ = engines[1].best(v.State().Capsule("visitor").Spec)
		}
		keeper := &orbit.Spec{Envelope: spec.Envelope, Apart: []orbit.Apart{{Group: "set", Level: rapid.SampledFrom([]string{"rack", "zone"}).Draw(t, "others keep off by")}}}
		var marks [][]int
		var plan []orbit.Proposal
		for i, id := range ids {
			if rapid.IntRange(0, 19).Draw(t, "sync") == 0 { // what is placed commits, or most of it
				for _, p := range plan {
					if rapid.IntRange(0, 9).Draw(t, "lost") > 0 {
						_, _ = l.Propose(t.Context(), p)
					}
				}
				if others := []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("other", i))}; rapid.Bool().Draw(t, "others come") {
					commit(t, l, orbit.Submit{IDs: others, Spec: keeper})
					ids[i] = others[0]
				}
				refresh()
				for _, e := range engines {
					e.Sync(v)
				}
				marks, plan, id = nil, nil, ids[i]
			}
			if len(marks) > 0 && rapid.IntRange(0, 3).Draw(t, "back") == 0 {
				at := rapid.IntRange(0, len(marks)-1).Draw(t, "to")
				for i, e := range engines {
					e.Rollback(marks[at][i])
				}
				marks, plan = marks[:at], plan[:at]
			}
			c := v.State().Capsule(id)
			want, refused := engines[0].best(c.Spec)
			got, err := engines[1].best(c.Spec)
			require.Equal(t, refused == nil, err == nil, "%v, %v", refused, err)
			if err != nil || !c.Pending() || engines[0].Uses(id) {
				continue
			}
			require.Equal(t, want.Node.Node.ID, got.Node.Node.ID)
			require.Equal(t, want.Value, got.Value)
			marks = append(marks, []int{engines[0].Checkpoint(), engines[1].Checkpoint()})
			plan = append(plan, engines[0].take(c, want))
			engines[1].take(c, got)
		}
	})
}

// Where scores are kept, the best node of each rack is kept too. While others keep the spec out of a zone its racks have none, and when they are gone they have
// one again, also the racks of which no node has changed.
func TestIndexedComesBackToAZone(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 2 * scanBelow {
		n := labelled(machine(orbit.NodeID(fmt.Sprintf("n%02d", i)), 10), "zone", []string{"a", "b"}[i%2])
		n.Labels["rack"] = fmt.Sprint(i % 4)
		commit(t, l, orbit.PutNode{Node: n})
	}
	spec, other := wants(1), wants(1)
	spec.Group, spec.PreferCompany = "g", []orbit.Company{{Group: "g", Level: "rack", Weight: 1}}
	other.Apart = []orbit.Apart{{Group: "g", Level: "zone"}}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec}, orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: other})
	commit(t, l, orbit.Place{Capsule: "other", Node: "n30"})
	v, refresh := viewOf(t, l, nil)
	e := draftFor(&Indexed{Score: score.Func(score.Spread{}.Score)})
	choose := func() orbit.NodeID {
		refresh()
		e.Sync(v)
		choice, err := e.best(v.State().Capsule("c").Spec)
		require.NoError(t, err)
		return choice.Node.Node.ID
	}
	require.EqualValues(t, "n01", choose())
	commit(t, l, orbit.Release{Capsule: "other", Final: true})
	require.EqualValues(t, "n00", choose())
}
