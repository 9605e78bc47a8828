package audit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
)

// history makes changes, each with a revision and a proposal of its own.
func history(do ...orbit.Commitment) (out []orbit.Change) {
	for i, d := range do {
		c := orbit.Change{Revision: orbit.Revision(i + 1), ID: id(i + 1), Do: d}
		if p, ok := d.(orbit.Place); ok {
			c.Node = p.Node
		}
		out = append(out, c)
	}
	return out
}

func id(n int) (out orbit.ProposalID) {
	copy(out[:], fmt.Sprintf("proposal-%07d", n))
	return out
}

var (
	room   = orbit.Resources{orbit.Slots: 1}
	join   = orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: room}}
	submit = orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: room}}}
	place  = orbit.Place{Capsule: "a", Node: "n"}
)

// The audit accepts the history and the answers of a correct ledger.
func TestHonest(t *testing.T) {
	var answers audit.Answers
	l := &audit.Witness{Ledger: &orbit.MemoryLedger{}, Tell: func(_ *orbit.Proposal, a audit.Answer, _ error) { answers.Add(a) }}
	for i, do := range []orbit.Commitment{
		join, submit, place, orbit.Place{Capsule: "b", Node: "n"}, orbit.Release{Capsule: "a", Stopped: true}, orbit.Hold{ID: "h", Node: "n", Room: room, Ends: time.Now()}, place,
		orbit.Release{Hold: "h"}, place, orbit.Release{Capsule: "a", Final: true}, orbit.Release{Capsule: "a", Final: true}, orbit.Place{Capsule: "b", Node: "n"},
	} {
		_, _ = l.Propose(t.Context(), orbit.Proposal{ID: id(i), Do: []orbit.Commitment{do}})
	}
	out := l.ProposeBatch(t.Context(), []orbit.Proposal{{ID: id(100), Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}}, {}})
	require.NoError(t, out[0].Err)
	require.ErrorIs(t, out[1].Err, orbit.ErrInvalid)
	changes, err := l.Changes(t.Context(), 0)
	require.NoError(t, err)
	state, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	var b audit.Book
	b.Add(changes...)
	require.Zero(t, b.Judge(&answers))
	require.Zero(t, b.Compare(state))
	require.Empty(t, b.Faults)
	require.Equal(t, []int{3, 3, 1, 10}, []int{b.Places, b.Releases, b.Placed(), b.Commits})
	require.Equal(t, 10, answers.Count(audit.Committed))
	require.Positive(t, answers.Count(audit.Conflict)+answers.Count(audit.Infeasible))
}

// The audit finds and counts every impossible change in a history.
func TestDishonestHistories(t *testing.T) {
	for what, c := range map[string]struct {
		do    []orbit.Commitment
		count func(*audit.Book) int
	}{
		"placed twice":      {[]orbit.Commitment{join, submit, place, place}, func(b *audit.Book) int { return b.Doubled }},
		"over its capacity": {[]orbit.Commitment{join, submit, place, orbit.Place{Capsule: "b", Node: "n"}}, func(b *audit.Book) int { return b.Over }},
		"not submitted":     {[]orbit.Commitment{join, place}, faults},
		"no node":           {[]orbit.Commitment{submit, place}, faults},
		"has ended":         {[]orbit.Commitment{join, submit, orbit.Release{Capsule: "a", Final: true}, place}, faults},
		"not placed":        {[]orbit.Commitment{join, submit, orbit.Release{Capsule: "a", Stopped: true}}, faults},
		"held over":         {[]orbit.Commitment{join, submit, place, orbit.Hold{ID: "h", Node: "n", Room: room}}, func(b *audit.Book) int { return b.Over }},
	} {
		var b audit.Book
		b.Add(history(c.do...)...)
		require.Equal(t, 1, c.count(&b), "%s: %v", what, b.Faults)
		require.Len(t, b.Faults, 1+b.Doubled, what) // a capsule placed twice also exceeds the capacity of its node
	}
	var b audit.Book
	b.Add(history(join, submit)...)
	b.Add(orbit.Change{Revision: 3, ID: id(2), Do: place, Node: "n"})
	require.Equal(t, 1, b.Repeated)
	b.Add(orbit.Change{Revision: 3, ID: id(4), Do: orbit.Release{Capsule: "a", Stopped: true}, Node: "n"})
	require.Len(t, b.Faults, 2, "%v", b.Faults) // out of order
}

// The audit counts who is taken off a node for nothing, and against a budget.
func TestDishonestWishes(t *testing.T) {
	web := &orbit.Spec{Group: "web", Envelope: orbit.Envelope{Reservation: room}}
	urgent := &orbit.Spec{Priority: 10, Envelope: orbit.Envelope{Reservation: room}}
	full := []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.Slots: 2}}}, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: web},
		orbit.Submit{IDs: []orbit.CapsuleID{"u"}, Spec: urgent}, place, orbit.Place{Capsule: "b", Node: "n"},
	}
	evict, come := orbit.Evict{Capsule: "a", From: "n", Since: 4, For: "u"}, orbit.Place{Capsule: "u", Node: "n"}
	budget := func(b orbit.Budget) orbit.PutBudget { b.ID, b.Expected = "b", 2; return orbit.PutBudget{Budget: b} }
	together := func(do ...orbit.Commitment) (out []orbit.Change) {
		for i, d := range do {
			out = append(out, orbit.Change{Revision: 10, Seq: i, ID: id(10), Do: d, Node: "n"})
		}
		return out
	}
	for what, c := range map[string]struct {
		budget            orbit.Budget
		last              []orbit.Change
		inVain, broken    int
		wishes, evictions int
	}{
		"evicts and places":         {orbit.Budget{Module: "none"}, together(evict, come), 0, 0, 1, 1},
		"evicts alone":              {orbit.Budget{Module: "none"}, together(evict), 1, 0, 1, 1},
		"within the budget":         {orbit.Budget{Group: "web", Missing: 1}, together(evict, come), 0, 0, 1, 1},
		"against the budget":        {orbit.Budget{Group: "web"}, together(evict, come), 0, 1, 1, 1},
		"above the budget":          {orbit.Budget{Group: "web", Above: 10}, together(evict, come), 0, 0, 1, 1},
		"moves, which is no member": {orbit.Budget{Group: "web"}, together(orbit.Evict{Capsule: "a", From: "n", Since: 4}, place), 0, 1, 1, 0},
		"drains":                    {orbit.Budget{Group: "web", MissingPercent: 10}, together(orbit.Release{Capsule: "a"}), 0, 0, 1, 0},
		"drains two":                {orbit.Budget{Group: "web", Missing: 1}, together(orbit.Release{Capsule: "a"}, orbit.Release{Capsule: "b"}), 0, 2, 2, 0},
		"ends":                      {orbit.Budget{Group: "web"}, together(orbit.Release{Capsule: "a", Final: true}, orbit.Release{Capsule: "b", Stopped: true}), 0, 0, 0, 0},
		"ends the budget with it":   {orbit.Budget{Group: "web"}, together(orbit.RemoveBudget{Budget: "b"}, orbit.Release{Capsule: "a"}), 0, 1, 1, 0},
		"makes the budget with it":  {orbit.Budget{Module: "none"}, together(orbit.Release{Capsule: "a"}, budget(orbit.Budget{Group: "web"})), 0, 1, 1, 0},
		"a lost node":               {orbit.Budget{Group: "web"}, together(orbit.PutNode{Node: orbit.Node{ID: "n", State: orbit.Lost}}, orbit.Release{Capsule: "a"}), 0, 0, 0, 0},
	} {
		var b audit.Book
		b.Add(history(append(slices.Clone(full), budget(c.budget))...)...)
		b.Add(c.last...)
		require.Zero(t, b.Judge(&audit.Answers{}))
		require.Equal(t, []int{c.inVain, c.broken, c.wishes, c.evictions}, []int{b.InVain, b.Broken, b.Wishes, b.Evictions}, "%s: %v", what, b.Faults)
		require.Len(t, b.Faults, c.inVain+c.broken, what)
	}
}

func faults(b *audit.Book) int { return len(b.Faults) }

// The audit finds every wrong answer.
func TestDishonestAnswers(t *testing.T) {
	for what, c := range map[string]struct {
		answers      []audit.Answer
		lost, faults int
	}{
		"as it was":              {[]audit.Answer{{ID: id(1), Kind: audit.Committed, Revision: 1}, {ID: id(9), Kind: audit.Conflict}, {ID: id(8), Kind: audit.Unavailable}}, 0, 0},
		"unknown, either way":    {[]audit.Answer{{ID: id(1), Kind: audit.Unknown}, {ID: id(9), Kind: audit.Unknown}}, 0, 0},
		"unknown, then not sent": {[]audit.Answer{{ID: id(1), Kind: audit.Unknown}, {ID: id(1), Kind: audit.Unavailable}}, 0, 0},
		"lost":                   {[]audit.Answer{{ID: id(9), Kind: audit.Committed, Revision: 9}}, 1, 1},
		"at another revision":    {[]audit.Answer{{ID: id(1), Kind: audit.Committed, Revision: 2}}, 0, 1},
		"refused and committed":  {[]audit.Answer{{ID: id(1), Kind: audit.Conflict}}, 0, 1},
		"not sent and committed": {[]audit.Answer{{ID: id(1), Kind: audit.Unavailable}}, 0, 1},
	} {
		var b audit.Book
		var answers audit.Answers
		b.Add(history(join, submit)...)
		for _, a := range c.answers {
			answers.Add(a)
		}
		require.Equal(t, c.lost, b.Judge(&answers), what)
		require.Len(t, b.Faults, c.faults, "%s: %v", what, b.Faults)
	}
}

// The audit finds a state that the history does not lead to.
func TestDishonestState(t *testing.T) {
	empty, err := (&orbit.MemoryLedger{}).Snapshot(t.Context())
	require.NoError(t, err)
	compare := func(said, happened []orbit.Change) (lost, faults int) {
		state, err := empty.Apply(happened)
		require.NoError(t, err)
		var b audit.Book
		b.Add(said...)
		return b.Compare(state), len(b.Faults)
	}
	lost, faults := compare(history(join, submit, place), history(join, submit, place))
	require.Equal(t, []int{0, 0}, []int{lost, faults})
	lost, faults = compare(history(join, submit, place), history(join, submit, orbit.Mark{Key: "k", Value: "v"}))
	require.Equal(t, []int{1, 2}, []int{lost, faults}) // the placement, and what is used of the node
	lost, faults = compare(history(join, submit, place), history(join, submit))
	require.Equal(t, []int{1, 3}, []int{lost, faults}) // and the revision
	lost, faults = compare(history(join, submit, orbit.Mark{Key: "k", Value: "v"}), history(join, submit, place))
	require.Equal(t, []int{0, 2}, []int{lost, faults})
}
