package orbit

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/orbitsched/orbit/internal/table"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// groupWorld is a ledger whose nodes join, leave and change their labels while members of groups come and go.
type groupWorld struct {
	*rapid.T
	l    *MemoryLedger
	next int
}

func (w *groupWorld) node() NodeID {
	return rapid.SampledFrom([]NodeID{"a", "b", "c"}).Draw(w.T, "node")
}

// labels are those of a node: a domain on some levels.
func (w *groupWorld) labels() map[string]string {
	labels := map[string]string{}
	for _, level := range []string{"rack", "zone", "level-0"} {
		if domain := rapid.SampledFrom([]string{"", "1", "2"}).Draw(w.T, level); domain != "" {
			labels[level] = domain
		}
	}
	return labels
}

func (w *groupWorld) propose(do []Commitment, bets ...Precondition) error {
	_, err := w.l.Propose(w.Context(), Proposal{Do: do, If: bets})
	return err
}

func (w *groupWorld) placed() (ids []CapsuleID) {
	state, _ := w.l.Snapshot(w.Context())
	for c := range state.Capsules() {
		if c.Placed() {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func (w *groupWorld) capsule(group string) (id CapsuleID, do []Commitment) {
	w.next++
	id = CapsuleID(strconv.Itoa(w.next))
	spec := &Spec{Group: group}
	if rapid.IntRange(0, 2).Draw(w.T, "more") == 0 {
		spec.Groups = []string{"g", "h"}
	}
	if rapid.IntRange(0, 3).Draw(w.T, "near") == 0 {
		spec.Near = Near{Group: "g", Level: "rack"}
	}
	return id, []Commitment{Submit{IDs: []CapsuleID{id}, Spec: spec}}
}

// check compares a bet with a count over all capsules, as the ledger and a snapshot judge it.
func (w *groupWorld) check() {
	state, err := w.l.Snapshot(w.Context())
	require.NoError(w.T, err)
	bet := GroupIn{
		Group:  rapid.SampledFrom([]string{"g", "h"}).Draw(w.T, "group"),
		Level:  rapid.SampledFrom([]string{"rack", "zone", "level-0", "level-1"}).Draw(w.T, "level"),
		Domain: rapid.SampledFrom([]string{"1", "2"}).Draw(w.T, "domain"),
	}
	there := map[NodeID]bool{}
	for c := range state.Capsules() {
		if c.Placed() && c.Spec.IsIn(bet.Group) && state.Node(c.Node).Node.Labels[bet.Level] == bet.Domain {
			there[c.Node] = true
		}
	}
	p := Proposal{Do: []Commitment{Mark{Key: "k", Value: "v"}}, If: []Precondition{bet}}
	for who, err := range map[string]error{"ledger": w.propose(p.Do, bet), "state": state.Check(p)} {
		require.Equal(w.T, len(there) > 0, err == nil, "%s: %+v: %v", who, bet, err)
	}
}

// TestGroupsByDomain: a bet on where a group is, is judged as if all capsules were looked at, whatever moved meanwhile.
func TestGroupsByDomain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &groupWorld{T: t, l: &MemoryLedger{}}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				w.T = t
				w.check()
				state, err := w.l.Snapshot(t.Context())
				require.NoError(t, err)
				require.NoError(t, state.Verify())
			},
			"put":    func(t *rapid.T) { _ = w.propose([]Commitment{PutNode{Node{ID: w.node(), Labels: w.labels()}}}) },
			"remove": func(t *rapid.T) { _ = w.propose([]Commitment{RemoveNode{Node: w.node()}}) },
			"place": func(t *rapid.T) {
				id, do := w.capsule(rapid.SampledFrom([]string{"", "g", "g", "h"}).Draw(t, "of"))
				_ = w.propose(append(do, Place{Capsule: id, Node: w.node()}))
			},
			"move and relabel": func(t *rapid.T) {
				if ids := w.placed(); len(ids) > 0 {
					id, to := rapid.SampledFrom(ids).Draw(t, "capsule"), w.node()
					_ = w.propose([]Commitment{Release{Capsule: id, Stopped: true}, PutNode{Node{ID: to, Labels: w.labels()}}, Place{Capsule: id, Node: to}})
				}
			},
			"return": func(t *rapid.T) { // a node leaves and joins in one proposal
				if ids := w.placed(); len(ids) > 0 {
					id := rapid.SampledFrom(ids).Draw(t, "capsule")
					state, _ := w.l.Snapshot(t.Context())
					on := state.Capsule(id).Node
					_ = w.propose([]Commitment{Release{Capsule: id, Stopped: true}, RemoveNode{Node: on}, PutNode{Node{ID: on, Labels: w.labels()}}, Place{Capsule: id, Node: on}})
				}
			},
			"release": func(t *rapid.T) {
				if ids := w.placed(); len(ids) > 0 {
					_ = w.propose([]Commitment{Release{Capsule: rapid.SampledFrom(ids).Draw(t, "capsule"), Final: rapid.Bool().Draw(t, "final")}})
				}
			},
		})
	})
}

// A bet on a group looks at no more of its nodes where there are many; more levels than are counted are judged as well.
func TestGroupInLooksAtFew(t *testing.T) {
	compared := 0
	world := func(nodes int) func(level string) int {
		l := &MemoryLedger{}
		l.init()
		l.live.groups = table.NewSorted(degree, func(a, b groupCount) bool { compared++; return a.less(b) })
		for i := range nodes {
			n, id := NodeID(strconv.Itoa(i)), CapsuleID(strconv.Itoa(i))
			labels := map[string]string{"zone": strconv.Itoa(3 * i / nodes)}
			for k := range 20 {
				labels[fmt.Sprint("level", k)] = strconv.Itoa(3 * i / nodes)
			}
			commit(t, l, PutNode{Node{ID: n, Labels: labels}}, Submit{IDs: []CapsuleID{id}, Spec: &Spec{Group: "g"}}, Place{Capsule: id, Node: n})
		}
		return func(level string) int {
			bet := func(domain string) error {
				_, err := l.Propose(t.Context(), Proposal{Do: []Commitment{Mark{Key: "k", Value: "v"}}, If: []Precondition{GroupIn{Group: "g", Level: level, Domain: domain}}})
				return err
			}
			require.NoError(t, bet("2"))
			compared = 0
			require.NoError(t, bet("2"))
			require.ErrorIs(t, bet("3"), ErrInfeasible)
			return compared
		}
	}
	few, many := world(100), world(3000)
	one, other := few("zone"), many("zone")
	t.Logf("two bets compare %d counts with 100 nodes, %d with 3,000", one, other)
	require.Less(t, other, 3*one)
	for k := range 20 {
		few(fmt.Sprint("level", k))
	}
}

// TestSpecGroups: the groups of a spec are a set, of which the one that Near names comes first.
func TestSpecGroups(t *testing.T) {
	for _, s := range []struct {
		spec Spec
		want []string
	}{
		{Spec{}, nil},
		{Spec{Group: "b"}, []string{"b"}},
		{Spec{Group: "b", Groups: []string{"c", "a", "b", "c"}}, []string{"b", "a", "c"}},
		{Spec{Groups: []string{"c", "a"}}, []string{"a", "c"}},
		{Spec{Group: "b", Groups: []string{"c", "a"}, Near: Near{Group: "c", Level: "rack"}}, []string{"c", "a", "b"}},
		{Spec{Group: "b", Groups: []string{"a"}, Near: Near{Group: "other", Level: "rack"}}, []string{"b", "a"}},
	} {
		shared, err := s.spec.Share()
		require.NoError(t, err)
		require.Equal(t, s.want, slices.Collect(shared.MemberOf), "%+v", s.spec)
		again, err := shared.clone().Share()
		require.NoError(t, err)
		require.Same(t, shared, again)
		for _, group := range s.want {
			require.True(t, shared.IsIn(group))
		}
		require.False(t, shared.IsIn("") || shared.IsIn("other"))
	}
	one, _ := (&Spec{Group: "a", Groups: []string{"b"}}).Share()
	other, _ := (&Spec{Group: "a"}).Share()
	require.NotSame(t, one, other)
	for _, bad := range [][]string{{""}, {"a", ""}, make([]string, maxGroups+1)} {
		_, err := (&Spec{Groups: bad}).Share()
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// Members follow their node to another domain also where two proposals of one batch, which share a revision, change its labels.
func TestNodeMovesTwiceAtOneRevision(t *testing.T) {
	l := &MemoryLedger{}
	in := func(rack string) Commitment { return PutNode{Node{ID: "n", Labels: map[string]string{"rack": rack}}} }
	commit(t, l, in("r0"), Submit{IDs: []CapsuleID{"a"}, Spec: &Spec{Group: "db", Near: Near{Group: "db", Level: "rack"}}}, Place{Capsule: "a", Node: "n"})
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	at := s.Revision() + 1
	s, err = s.Apply([]Change{{Revision: at, ID: ProposalID{1}, Do: in("r1")}, {Revision: at, Seq: 1, ID: ProposalID{2}, Do: in("r2")}})
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	bet := func(rack string) error {
		return s.Check(Proposal{Do: []Commitment{Mark{Key: "k", Value: "v"}}, If: []Precondition{GroupIn{Group: "db", Level: "rack", Domain: rack}}})
	}
	require.Error(t, bet("r1"))
	require.NoError(t, bet("r2"))
}
