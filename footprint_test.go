package orbit

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// optimist is a dumb ledger that commits by footprints, as one does that stores records one by one: it judges a proposal on the newest
// state, and commits it some time later if no commit since has written what it reads.
type optimist struct {
	state *State
	// writes are what each commit has written, as it was judged.
	writes []map[string]bool
}

// judged is a proposal, the number of commits before it was judged, and its footprint at that time.
type judged struct {
	p             Proposal
	at            int
	on            *State
	reads, writes map[string]bool
	all           bool
}

// judge judges a proposal now; false: it is refused.
func (o *optimist) judge(p Proposal) (judged, bool) {
	r, w, _, err := o.state.Footprint(p)
	return judged{p, len(o.writes), o.state, namesOf(r), namesOf(w), r.All}, err == nil
}

// conflicts reports whether a commit has written what a proposal reads since it was judged.
func (o *optimist) conflicts(j judged) bool {
	since := o.writes[j.at:]
	return j.all && len(since) > 0 || slices.ContainsFunc(since, func(w map[string]bool) bool { return meet(j.reads, w) })
}

// commit commits a proposal that does not conflict, and requires that this was right: that it is accepted now, with the same outcome, and
// that its writes are those that it would have now. Otherwise a third proposal could miss them.
func (o *optimist) commit(t require.TestingT, j judged) {
	_, now, _, err := o.state.Footprint(j.p)
	require.NoError(t, err, "%v", j.p)
	for name := range namesOf(now) {
		require.True(t, j.writes[name], "%v now writes %q, besides %q", j.p, name, j.writes)
	}
	require.Equal(t, outcomeOf(j.on, j.p, true), outcomeOf(o.state, j.p, true), "%v", j.p)
	next, err := o.state.With(j.p)
	require.NoError(t, err)
	require.NoError(t, next.Verify())
	o.state, o.writes = next, append(o.writes, j.writes)
}

// TestLateCommits: in random worlds, what is committed by footprints, some commits after it was judged, is committed rightly.
func TestLateCommits(t *testing.T) {
	t.Parallel()
	for count := range scale.Reach(t, "late", "conflict", "late, by a rule") {
		rapid.Check(t, func(t *rapid.T) {
			d := anyWorld(t, false, false)
			s := &scribe{T: t, drafts: d.drafts, social: d.company}
			o := &optimist{state: d.snapshot()}
			var waiting []judged
			for i := range rapid.IntRange(4, 24).Draw(t, "steps") {
				if s.view = o.state; len(waiting) < 2 || s.chance(2) {
					p := s.proposal()
					p.If = slices.DeleteFunc(p.If, func(bet Precondition) bool { _, is := bet.(GangUnplaced); return is }) // a gang may be dropped
					binary.BigEndian.PutUint64(p.ID[:], uint64(1<<40+i))
					if j, accepted := o.judge(p); accepted {
						waiting = append(waiting, j)
					}
					continue
				}
				k := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
				j := waiting[k]
				waiting = slices.Delete(waiting, k, k+1)
				if o.conflicts(j) {
					count["conflict"]++
					continue
				}
				count["late"] += btoi(len(o.writes) > j.at)
				count["late, by a rule"] += btoi(len(o.writes) > j.at && slices.ContainsFunc(j.p.Do, func(do Commitment) bool {
					place, is := do.(Place)
					c := o.state.Capsule(place.Capsule)
					return is && c != nil && c.Spec.hasRules()
				}))
				o.commit(t, j)
			}
		})
	}
}

// TestLateCommitsByRules: what two or three proposals do at once would break a rule or a budget, or would be taken for something else, if
// the last one were committed by its footprint. So it conflicts.
func TestLateCommitsByRules(t *testing.T) {
	inRack := func(id NodeID, rack string) PutNode {
		n := cpuNode(id, 9)
		n.Node.Labels = map[string]string{"rack": rack}
		return n
	}
	member, apart, even := cpuSpec(1), cpuSpec(1), cpuSpec(1)
	member.Group, even.Group = "g", "g"
	apart.Apart = []Apart{{"g", "rack"}}
	even.Even = []Even{{Group: "g", Level: "rack"}}
	confirms, gone := inRack("e", "r0"), inRack("a", "r0")
	confirms.Node.Confirms, gone.Node.State = true, Lost
	end := func(id CapsuleID) []Commitment { return []Commitment{Release{Capsule: id, Final: true}} }
	for _, c := range []struct {
		name  string
		there []Commitment
		// early is judged first, then between is judged and committed, then late is judged; then early is committed, and late.
		early, between, late []Commitment
		// both: late is judged with early, before between.
		both bool
		// then is judged and committed before late, after early.
		then []Commitment
	}{
		{"a departure that was judged before the first rule Even", []Commitment{submitOf(member, "y", "z"), placeOn("y", "a"), placeOn("z", "c")},
			end("z"), []Commitment{submitOf(even, "x")}, []Commitment{placeOn("x", "b")}, false, nil},
		{"two ends of the last two rules", []Commitment{submitOf(apart, "x", "y"), submitOf(member, "m")},
			end("x"), end("y"), []Commitment{submitOf(apart, "z"), placeOn("z", "a")}, true, []Commitment{placeOn("m", "b")}},
		{"the end of the last rule, with a member that arrives", []Commitment{submitOf(apart, "x"), submitOf(member, "m")},
			append(end("x"), placeOn("m", "b")), []Commitment{submitOf(apart, "z")}, []Commitment{placeOn("z", "a")}, false, nil},
		{"the same, after the other has arrived", []Commitment{submitOf(apart, "x"), submitOf(member, "m")},
			nil, []Commitment{submitOf(apart, "z"), placeOn("z", "a")}, append(end("x"), placeOn("m", "b")), true, nil},
		{"remains of what is adopted", []Commitment{confirms, submitOf(apart, "x")},
			nil, append([]Commitment{Adopt{Capsule: "m", Spec: member, Node: "e"}}, end("m")...), []Commitment{placeOn("x", "a")}, true, nil},
		{"an adoption that was judged before the first rule", []Commitment{inRack("e", "r0")},
			[]Commitment{Adopt{Capsule: "m", Spec: member, Node: "e"}}, []Commitment{submitOf(apart, "x")}, []Commitment{placeOn("x", "a")}, false, nil},
		{"remains that were judged before the first rule", []Commitment{confirms},
			append([]Commitment{Adopt{Capsule: "m", Spec: member, Node: "e"}}, end("m")...), []Commitment{submitOf(apart, "x")}, []Commitment{placeOn("x", "a")}, false, nil},
		{"a move by a budget that ends", []Commitment{submitOf(member, "m"), placeOn("m", "a"), PutBudget{Budget{ID: "b", Group: "g"}}},
			nil, []Commitment{RemoveBudget{"b"}}, []Commitment{gone, Evict{Capsule: "m", From: "a"}, placeOn("m", "c")}, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			world := newCourt(t, append([]Commitment{inRack("a", "r0"), inRack("b", "r0"), inRack("c", "r1"), inRack("d", "r1")}, c.there...)...)
			o := &optimist{state: world.now()}
			judge := func(do []Commitment) judged {
				for i := range do {
					if e, is := do[i].(Evict); is {
						e.Since = o.state.Capsule(e.Capsule).PlacedAt
						do[i] = e
					}
				}
				j, accepted := o.judge(Proposal{View: o.state.rev, Do: do})
				require.True(t, accepted, "%v", do)
				return j
			}
			commit := func(do []Commitment) {
				j := judge(do)
				o.commit(t, j)
			}
			var early, late judged
			if c.early != nil {
				early = judge(c.early)
			}
			if c.both {
				late = judge(c.late)
			}
			commit(c.between)
			if !c.both {
				late = judge(c.late)
			}
			if c.early != nil && !o.conflicts(early) {
				o.commit(t, early)
			}
			if c.then != nil && o.state.Check(Proposal{View: o.state.rev, Do: c.then}) == nil {
				commit(c.then)
			}
			if !o.conflicts(late) {
				o.commit(t, late)
			}
			require.NoError(t, o.state.Verify())
		})
	}
}

// TestOwnRevisionIsUnknown: nothing that a proposal names as made at a revision is made by the proposal itself, even if its revision is
// guessed right.
func TestOwnRevisionIsUnknown(t *testing.T) {
	a, b := cpuSpec(1), cpuSpec(2)
	a.Group, b.Group = "g", "h"
	a.Movable, b.Movable = true, true
	c := newCourt(t, cpuNode("n", 9), cpuNode("m", 9), submitOf(a, "x", "y"), placeOn("x", "n"))
	own := c.now().rev + 1
	part := func(on NodeID) []NominatedRoom { return []NominatedRoom{{Node: on, Room: Resources{CPU: 1}}} }
	ends := holdOf("h", "n", 1).Ends
	for name, do := range map[string][]Commitment{
		"evict":            {placeOn("y", "n"), Evict{Capsule: "y", From: "n", Since: own}, placeOn("y", "m")},
		"evict an adopted": {evictionOf(c.now(), "x"), Adopt{Capsule: "x", Node: "n", Spec: b}, Evict{Capsule: "x", From: "n", Since: own}, placeOn("x", "n")},
		"nominate":         {Nominate{Capsule: "y", Parts: part("n"), Ends: ends}, Nominate{Capsule: "y", Since: own, Parts: part("m"), Ends: ends}},
	} {
		t.Run(name, func(t *testing.T) {
			was := c.now()
			require.ErrorContains(t, was.Check(Proposal{View: was.rev, Do: do}), fmt.Sprint(own))
			c.mistakes(do...)
			require.Equal(t, was.rev, c.now().rev)
		})
	}
	// Beside a nomination, the end of one that has ended is passed over.
	c.commits(Nominate{Capsule: "y", Parts: part("n"), Ends: ends}, Nominate{Capsule: "y", Since: own})
	require.True(t, c.now().Capsule("y").Nomination().Lives())
}

// TestApplyAnything: Apply takes random changes or refuses them, and never panics. The state that it returns is sound, except that nodes may be oversubscribed.
func TestApplyAnything(t *testing.T) {
	t.Parallel()
	for count := range scale.Reach(t, "refused by rules, applied", "cannot be applied", "oversubscribed") {
		rapid.Check(t, func(t *rapid.T) {
			d := anyWorld(t, false, false)
			s := &scribe{T: t, drafts: d.drafts, social: d.company, view: d.snapshot()}
			state := s.view
			for range rapid.IntRange(1, 24).Draw(t, "steps") {
				p := s.proposal() // on the state at the beginning
				var changes []Change
				for i, do := range p.Do {
					changes = append(changes, Change{Revision: state.Revision() + 1, Seq: i, Do: do})
				}
				next, err := state.Apply(changes)
				if err != nil {
					count["cannot be applied"]++
					require.Equal(t, state.Revision()+1, changes[0].Revision)
					continue
				}
				count["refused by rules, applied"] += btoi(state.Check(Proposal{Do: p.Do}) != nil)
				state = next
				if err := state.Verify(); err != nil {
					require.Regexp(t, "oversubscribed|runs there, what has left it included", err.Error(), "%v", p)
					count["oversubscribed"]++
					return
				}
			}
		})
	}
}
