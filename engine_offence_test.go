package orbit

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// trespasser proposes what it is told once, and then nothing. It claims one module.
type trespasser struct{ plan []Proposal }

func (*trespasser) Claims(module string, _ AppClass) bool { return module == "ours" }

func (t *trespasser) Plan(context.Context, *View, []*Capsule) (plan Plan, err error) {
	plan.Proposals, t.plan = t.plan, nil
	return plan, nil
}

// border is a ledger on which two engines have work: "me", and "other".
func border(t *testing.T) court {
	c := court{t, &MemoryLedger{}}
	spec := func(module string, priority int32, movable bool) *Spec {
		return &Spec{Module: module, Priority: priority, Movable: movable, Envelope: Envelope{Reservation: Resources{CPU: 1}}}
	}
	theirs := func(s *Spec, ids ...CapsuleID) Submit { return Submit{IDs: ids, Spec: s, Owner: "other"} }
	gang := gangOf("their gang", 1, "member")
	gang.Owner = "other"
	c.commits(PutNode{Node{ID: "full", Capacity: Resources{CPU: 3, Memory: 4}}}, cpuNode("free", 8), cpuNode("drained", 1))
	c.commits(Submit{IDs: []CapsuleID{"mine", "mine too", "running"}, Spec: spec("ours", 5, false)}, gang,
		theirs(spec("ours", 1, false), "low"), theirs(spec("ours", 5, false), "equal"), theirs(spec("ours", 9, true), "high"),
		theirs(spec("ours", 5, false), "waits", "nominated"), theirs(spec("ours", 1, false), "drains"),
		Submit{IDs: []CapsuleID{"nobody's"}, Spec: spec("theirs", 1, false)})
	urgent := spec("ours", 6, false)
	urgent.Envelope.Reservation[Memory] = 1
	c.commits(Submit{IDs: []CapsuleID{"my urgent"}, Spec: urgent})
	c.commits(placeOn("low", "full"), placeOn("equal", "full"), placeOn("high", "full"), placeOn("drains", "drained"), placeOn("running", "free"))
	c.commits(PutNode{Node{ID: "drained", Capacity: Resources{CPU: 1}, State: Cordoned}})
	held := Hold{ID: "plan/held", Node: "free", Room: Resources{CPU: 1}, Ends: time.Unix(1<<33, 0)}
	c.commits(claimOf("nominated"), held, Hold{ID: "theirs", Node: "free", Room: Resources{CPU: 1}, Ends: held.Ends}, Mark{Key: "lease/free", Value: "v"})
	return c
}

// claimOf nominates a capsule for a core.
func claimOf(id CapsuleID) Nominate {
	return Nominate{Capsule: id, Ends: time.Unix(1<<33, 0), Parts: []NominatedRoom{{Node: "free", Room: Resources{CPU: 1}}}}
}

// makingWay evicts somebody for work of the engine's own, and places that.
func makingWay(victim CapsuleID) func(*State) []Commitment {
	return func(s *State) []Commitment {
		e := evictionOf(s, victim)
		e.For = "mine"
		return []Commitment{e, placeOn("mine", "full")}
	}
}

// moving takes somebody's work off its node and places it elsewhere.
func moving(id CapsuleID) func(*State) []Commitment {
	return func(s *State) []Commitment { return []Commitment{evictionOf(s, id), placeOn(id, "free")} }
}

func doing(do ...Commitment) func(*State) []Commitment {
	return func(*State) []Commitment { return do }
}

// trespass lets the engine "me" make one plan: first the proposal, then a placement of its own.
func trespass(t *testing.T, c court, first Proposal) Round {
	nav := &trespasser{plan: []Proposal{first, {Do: []Commitment{Place{Capsule: "mine too", Node: "free", At: 1}}}}}
	e := Engine{Name: "me", Ledger: c.MemoryLedger, Navigator: nav}
	return e.Pass(t.Context())
}

// TestOffences: what a plan does to the work of others, or says though it is not for it to say, is not sent; what else it
// proposes is.
func TestOffences(t *testing.T) {
	for name, o := range map[string]struct {
		do   func(*State) []Commitment
		says string
	}{
		"places what is assigned to others":      {doing(placeOn("waits", "free")), `places capsule "waits", which is assigned to "other"`},
		"places what it does not claim":          {doing(placeOn("nobody's", "free")), `which it does not claim`},
		"ends the work of others":                {doing(Release{Capsule: "low", Final: true}), `releases capsule "low"`},
		"sends others back from a cordoned node": {doing(Release{Capsule: "drains"}), `releases capsule "drains"`},
		"makes room with the hole of before":     {doing(Release{Capsule: "high", Final: true}, placeOn("mine", "full")), `releases capsule "high"`},
		"says that its own has stopped":          {doing(Release{Capsule: "running", Stopped: true}), "has stopped, which the agent"},
		"says that its own begins": {func(s *State) []Commitment {
			return []Commitment{Confirm{Capsule: "running", Since: s.Capsule("running").PlacedAt, Begun: true}}
		}, "holds a orbit.Confirm, which is not for a plan"},
		"ends a protection": {func(s *State) []Commitment {
			return []Commitment{Protect{Capsule: "running", Since: s.Capsule("running").PlacedAt}}
		}, `ends the protection of capsule "running"`},
		"protects the work of others": {doing(Protect{Capsule: "waits", For: time.Second}), `protects capsule "waits"`},
		"evicts what outranks":        {makingWay("high"), `evicts capsule "high" of priority 9 for capsule mine`},
		"evicts what is equal":        {makingWay("equal"), `evicts capsule "equal" of priority 5`},
		"evicts for others": {func(s *State) []Commitment {
			e := evictionOf(s, "low")
			e.For = "waits"
			return []Commitment{e, placeOn("mine", "full")}
		}, `evicts others for capsule "waits", which is assigned to "other"`},
		"takes over":                              {doing(Assign{Capsule: "waits", From: "other", Owner: "me"}), `assigns capsule "waits"`},
		"nominates for others":                    {doing(claimOf("waits")), `nominates capsule "waits"`},
		"nominates a gang of others":              {doing(Nominate{Gang: "their gang", Ends: time.Unix(1<<33, 0), Parts: claimOf("").Parts}), `nominates capsule "member"`},
		"ends a nomination of others for nothing": {doing(Nominate{Capsule: "nominated"}), `nominates capsule "nominated"`},
		"ends a nomination that outranks its own": {doing(Nominate{Capsule: "nominated"}, claimOf("mine")), `nominates capsule "nominated"`},
		"ends a nomination for one of other resources": {doing(Nominate{Capsule: "nominated"}, Nominate{Capsule: "my urgent", Ends: time.Unix(1<<33, 0),
			Parts: []NominatedRoom{{Node: "full", Room: Resources{Memory: 1}}}}), `nominates capsule "nominated"`},
		"respecifies the work of others": {func(s *State) []Commitment {
			return []Commitment{Respec{Capsule: "high", Since: s.Capsule("high").PlacedAt, Spec: s.Capsule("high").Spec}}
		}, `changes the spec of capsule "high"`},
		"says that its own has shrunk": {func(s *State) []Commitment {
			return []Commitment{Respec{Capsule: "running", Since: s.Capsule("running").PlacedAt, Spec: wants(0), Applied: true}}
		}, `says that another spec of capsule "running" is applied already`},
		"says that its own stops": {func(s *State) []Commitment {
			return []Commitment{Respec{Capsule: "running", Since: s.Capsule("running").PlacedAt, Spec: s.Capsule("running").Spec, Stopping: true}}
		}, `says that another spec of capsule "running" is applied already or that it stops`},
		"raises its own": {func(s *State) []Commitment {
			spec := *s.Capsule("mine").Spec
			spec.Priority++
			return []Commitment{Respec{Capsule: "mine", Spec: &spec}}
		}, `changes more of the spec than the envelope, which is not for a plan`},
		"leaves the group of a budget": {func(s *State) []Commitment {
			spec := *s.Capsule("running").Spec
			spec.Groups = append(slices.Clone(spec.Groups), "elsewhere")
			return []Commitment{Respec{Capsule: "running", Since: s.Capsule("running").PlacedAt, Spec: &spec}}
		}, `changes more of the spec than the envelope, which is not for a plan`},
		"finds something": {doing(Adopt{Capsule: "mine", Node: "full"}), "holds a orbit.Adopt, which is not for a plan"},
		"changes a node":  {doing(cpuNode("full", 9)), "changes the constellation (orbit.PutNode)"},
		"puts a budget":   {doing(PutBudget{Budget{ID: "b", Group: "g"}}), "holds a orbit.PutBudget, which is not for a plan"},
		"removes a node":  {doing(RemoveNode{Node: "drained"}), "changes the constellation (orbit.RemoveNode)"},
		"submits work":    {doing(Submit{IDs: []CapsuleID{"new"}, Spec: &Spec{Module: "ours", Priority: math.MaxInt32}, Owner: "me"}), "submits work"},
		"nominates a gang that is not in its view": {doing(Nominate{Gang: "unknown", Ends: time.Unix(1<<33, 0), Parts: claimOf("").Parts}),
			`nominates gang "unknown", which is not in its view`},
		"ends the term of a lease":      {doing(Mark{Key: "lease/free"}), `changes mark "lease/free"; a plan may change only marks whose key begins with "plan/"`},
		"sets a mark of others":         {doing(Mark{Key: "planet", Value: "v"}), `changes mark "planet"`},
		"deletes a mark":                {doing(Mark{Key: "plan/k"}), `deletes mark "plan/k"`},
		"marks the work of others":      {doing(Mark{Key: "plan/capsule/kind/low", Value: "v"}), `sets a mark about capsule "low", which is assigned to "other"`},
		"marks unknown work":            {doing(Mark{Key: "plan/capsule/kind/unknown", Value: "v"}), `about a capsule that is not in its view`},
		"marks nothing":                 {doing(Mark{Key: "plan/capsule/mine", Value: "v"}), `about a capsule that is not in its view`},
		"marks a gang of others":        {doing(Mark{Key: "plan/gang/kind/their gang", Value: "v"}), `about a gang of which no member is its own`},
		"makes a hold without a prefix": {doing(Hold{ID: "h", Node: "free", Room: Resources{CPU: 1}, Ends: time.Unix(1<<33, 0)}), `makes hold "h"; a plan may make and release only holds`},
		"releases a hold of others":     {doing(Release{Hold: "theirs"}), `releases hold "theirs"`},
	} {
		t.Run(name, func(t *testing.T) {
			requireOffence(t, border(t), Proposal{}, o.do, o.says)
		})
	}
}

// TestOffencesOfForm: the engine gives a proposal its id, and a plan is not newer than the view on which it was made. A
// plan that sets ids could spend those of another engine; one with a newer View could touch work that it has not seen.
func TestOffencesOfForm(t *testing.T) {
	for name, o := range map[string]struct {
		form Proposal
		says string
	}{
		"sets an id":                  {Proposal{ID: ProposalID{1}}, "sets the id of the proposal, which its engine sets"},
		"is newer than the view":      {Proposal{View: 1 << 40}, "is newer than the view"},
		"is a little newer than that": {Proposal{View: 1}, "is newer than the view"},
	} {
		t.Run(name, func(t *testing.T) {
			c := border(t)
			if o.form.View == 1 {
				o.form.View = c.now().Revision() + 1
			}
			requireOffence(t, c, o.form, doing(placeOn("mine", "free")), o.says)
		})
	}
}

// TestIDsAreNotGuessed: ids that have been seen do not tell which ids the engine uses next, so nobody spends these.
func TestIDsAreNotGuessed(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"seen", "next"}, Spec: wants(1)})
	nominates := false
	e := Engine{Ledger: l, MaxPlan: 1, Navigator: planFunc(func(_ context.Context, v *View, p []*Capsule) (Plan, error) {
		if nominates {
			return Plan{Proposals: []Proposal{{Do: []Commitment{nominationOf("next", partOn("n", 1))}}}}, nil
		}
		nominates = true
		return Plan{Proposals: []Proposal{{Do: []Commitment{placeOn("seen", "n")}}}}, nil
	})}
	require.Equal(t, 1, e.Pass(t.Context()).Committed)
	seen := snapshotOf(t, l).Capsule("seen").PlacedBy
	for from := range 8 { // counts that begin at any byte, of either order
		for k := uint64(1); k <= 300; k++ {
			big, little := seen, seen
			binary.BigEndian.PutUint64(big[8:], binary.BigEndian.Uint64(seen[8:])+k<<(8*from))
			binary.LittleEndian.PutUint64(little[8:], binary.LittleEndian.Uint64(seen[8:])+k<<(8*from))
			for _, id := range []ProposalID{big, little} {
				_, err := l.Propose(t.Context(), Proposal{ID: id, Do: []Commitment{Mark{Key: "x", Value: "y"}}})
				require.NoError(t, err)
			}
		}
	}
	require.Equal(t, 1, e.Pass(t.Context()).Committed)
	require.True(t, snapshotOf(t, l).Capsule("next").Nomination().Lives())
	require.Equal(t, seen[:8], func() []byte { id := e.ids.next(); return id[:8] }(), "but observers know the engine by the first eight bytes")
}

// requireOffence requires that the engine does not send what is done, with the id and view of the form, and reports
// why; and that it sends the rest of the plan.
func requireOffence(t *testing.T, c court, form Proposal, do func(*State) []Commitment, says string) {
	form.Do = do(c.now())
	round := trespass(t, c, form)
	require.Equal(t, [3]int{1, 1, 1}, [3]int{round.Proposed, round.Committed, round.Invalid})
	require.Len(t, round.Errors, 1)
	require.ErrorContains(t, round.Errors[0], `engine "me": proposal 0 of the plan is not sent: orbit: invalid: `)
	require.ErrorContains(t, round.Errors[0], says)
	var r *Rejection
	require.ErrorAs(t, round.Errors[0], &r)
	require.ErrorIs(t, r, ErrInvalid)
	changes, err := c.Changes(t.Context(), round.View)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.Equal(t, Place{Capsule: "mine too", Node: "free", At: 1}, changes[0].Do)
}

// TestNoOffences: what a plan may do is sent, and committed.
func TestNoOffences(t *testing.T) {
	for name, do := range map[string]func(*State) []Commitment{
		"makes way for its own":                   makingWay("low"),
		"moves what is movable":                   moving("high"),
		"moves off a cordoned node":               moving("drains"),
		"ends its own work":                       doing(Release{Capsule: "running", Final: true}),
		"assigns its own":                         doing(Assign{Capsule: "mine", Owner: "other"}),
		"marks and holds":                         doing(Mark{Key: "plan/k", Value: "v"}, Hold{ID: "plan/h", Node: "free", Room: Resources{CPU: 1}, Ends: time.Unix(1<<33, 0)}),
		"marks its own work":                      doing(Mark{Key: "plan/capsule/kind/mine", Value: "v"}, Mark{Key: "plan/capsules", Value: "v"}),
		"releases a hold of a plan":               doing(Release{Hold: "plan/held"}),
		"ends a nomination that its own outranks": doing(Nominate{Capsule: "nominated"}, claimOf("my urgent")),
	} {
		t.Run(name, func(t *testing.T) {
			c := border(t)
			round := trespass(t, c, Proposal{Do: do(c.now()), View: c.now().Revision()})
			require.Empty(t, round.Errors)
			require.Equal(t, 2, round.Committed, round)
		})
	}
}

// TestOffenceAfterTheFact: what the navigator changes in its plan once it has returned changes nothing.
func TestOffenceAfterTheFact(t *testing.T) {
	c := border(t)
	do := []Commitment{placeOn("mine", "free")}
	e := Engine{Name: "me", Navigator: &trespasser{plan: []Proposal{{Do: do}}}}
	e.Ledger = &bent{Ledger: c.MemoryLedger, propose: func(ctx context.Context, p Proposal) (Revision, error) {
		do[0] = Release{Capsule: "low", Final: true}
		return c.Propose(ctx, p)
	}}
	require.Equal(t, 1, e.Pass(t.Context()).Committed)
	require.True(t, c.now().Capsule("mine").Placed())
	require.True(t, c.now().Capsule("low").Placed())
}

// TestLawfulInAnyOrder: what may be sent does not depend on the order in which a plan names what the navigator was given.
func TestLawfulInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &MemoryLedger{}
		given := []CapsuleID{"a", "b", "c", "d", "e"}
		_, err := l.Propose(context.Background(), Proposal{Do: []Commitment{
			cpuNode("n", 9), Submit{IDs: given, Spec: cpuSpec(1), Owner: "me"}, Submit{IDs: []CapsuleID{"theirs"}, Spec: cpuSpec(1), Owner: "other"},
		}})
		require.NoError(t, err)
		e := Engine{Name: "me", Ledger: l, Navigator: &trespasser{}}
		e.Pass(context.Background()) // makes the view
		state := e.view.state
		pending := make([]*Capsule, len(given))
		for i, id := range given {
			pending[i] = state.Capsule(id)
		}
		do := rapid.SampledFrom([]Commitment{
			placeOn("a", "n"), placeOn("b", "n"), placeOn("c", "n"), placeOn("d", "n"), placeOn("e", "n"), placeOn("theirs", "n"), placeOn("unknown", "n"),
			Release{Capsule: "a", Final: true}, Release{Capsule: "theirs", Final: true},
		})
		var plan, want []Proposal
		for range rapid.IntRange(0, 9).Draw(t, "proposals") {
			p := Proposal{Do: rapid.SliceOfN(do, 0, 2).Draw(t, "do")}
			if plan = append(plan, p); state.JudgePlan(p, e.owns) == nil {
				want = append(want, p)
			}
		}
		var round Round
		got := e.permitted(plan, pending, &round)
		require.Len(t, got, len(want))
		for i := range want {
			require.True(t, slices.Equal(want[i].Do, got[i].Do))
		}
		require.Equal(t, len(plan)-len(want), round.Invalid)
	})
}

// TestGivenIsNotLookedUp: what a navigator was given is taken for its own work in any order, without a look at the state, which
// says something else here. Another capsule of the same kind is looked up.
func TestGivenIsNotLookedUp(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9), Submit{IDs: []CapsuleID{"a", "b", "c", "d"}, Spec: cpuSpec(1), Owner: "other"})
	state := c.now()
	mine := func(owner string, _ *Spec) bool { return owner == "me" }
	for _, order := range [][]CapsuleID{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c"}, {"a", "c"}} {
		given := given{next: []*Capsule{state.Capsule("a"), state.Capsule("b"), state.Capsule("c")}}
		for _, id := range order {
			require.NoError(t, state.offence(&Proposal{Do: []Commitment{placeOn(id, "n")}}, &given, mine))
		}
		require.ErrorIs(t, state.offence(&Proposal{Do: []Commitment{placeOn("d", "n")}}, &given, mine), ErrInvalid)
	}
}
