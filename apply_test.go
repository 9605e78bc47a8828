package orbit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

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
