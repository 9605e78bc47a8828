package orbit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAttempts: the failure that reaches Spec.Attempts ends the capsule in the same commit. The history says so, so that every reader of it
// knows the end, and the state that follows it, also from a dump, is the same.
func TestAttempts(t *testing.T) {
	spec := cpuSpec(1)
	spec.Attempts = 2
	c := newCourt(t, cpuNode("n", 4), submitOf(spec, "a"))
	base := c.now()
	c.commits(placeOn("a", "n"))
	c.commits(Release{Capsule: "a", Stopped: true, At: 1})
	require.True(t, c.now().Capsule("a").Pending())
	c.commits(placeOn("a", "n"))
	last := Proposal{ID: idOf(9), View: c.now().Revision(), Do: []Commitment{Release{Capsule: "a", From: "n", Stopped: true, At: 2}}}
	done, err := c.now().Judge(last)
	require.NoError(t, err)
	rev, err := c.Propose(bg, last)
	require.NoError(t, err)
	s := c.now()
	assert.True(t, s.Capsule("a").Released())
	assert.Equal(t, 2, s.Failures("a").Attempts)
	want := []Commitment{Release{Capsule: "a", From: "n", Stopped: true, Final: true, At: 2}}
	assert.Equal(t, want, done.Do)
	changes, err := c.Changes(bg, base.Revision())
	require.NoError(t, err)
	assert.Equal(t, want[0], changes[len(changes)-1].Do)
	assert.Equal(t, []Commitment{Release{Capsule: "a", From: "n", Stopped: true, At: 2}}, last.Do, "the proposer's own list")
	again, err := c.Propose(bg, last)
	require.NoError(t, err, "a proposal that is sent twice is recognised")
	assert.Equal(t, rev, again)
	mirror, err := base.Apply(changes)
	require.NoError(t, err)
	require.NoError(t, mirror.Verify())
	assert.Equal(t, dumpOf(t, s), dumpOf(t, mirror))
	var restored State
	require.NoError(t, restored.Restore(strings.NewReader(dumpOf(t, s))))
	assert.Equal(t, 2, restored.Capsule("a").Spec.Attempts)
	c.refuses(ErrInfeasible, Proposal{View: rev, Do: []Commitment{placeOn("a", "n")}})
}

// TestAttemptsOfAGangMember: a member that has failed for good is done, as every member is that has ended, and the gang goes on without it.
func TestAttemptsOfAGangMember(t *testing.T) {
	spec := cpuSpec(1)
	spec.Class, spec.Attempts = GangClass, 1
	c := newCourt(t, cpuNode("n", 4), Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "w", Spec: spec, Members: []CapsuleID{"x", "y"}}}}},
		placeOn("x", "n"), placeOn("y", "n"))
	c.commits(Release{Capsule: "x", Stopped: true})
	g := c.now().Gang("g")
	assert.True(t, c.now().Capsule("x").Released())
	assert.Equal(t, []int{1}, g.Done)
	assert.False(t, g.Broken())
	require.NoError(t, c.now().Verify())
}

// TestStoppedForGood: whoever says that a capsule has stopped may say that it is not to be tried again.
func TestStoppedForGood(t *testing.T) {
	n := cpuNode("n", 4)
	n.Node.Confirms = true
	c := newCourt(t, n, submitOf(cpuSpec(1), "a", "b"), placeOn("a", "n"))
	c.commits(Confirm{Capsule: "a", Since: c.now().Capsule("a").PlacedAt, Begun: true})
	c.commits(Release{Capsule: "a", Stopped: true, Final: true, At: 5})
	a := c.now().Capsule("a")
	assert.True(t, a.Released())
	assert.Nil(t, a.Remains(), "it has stopped, so nothing of it remains")
	assert.Equal(t, 1, c.now().Failures("a").Attempts)
	c.refuses(ErrInfeasible, Proposal{View: c.now().Revision(), Do: []Commitment{Release{Capsule: "b", Stopped: true, Final: true}}})
	r := c.refuses(ErrInvalid, Proposal{Do: []Commitment{submitOf(&Spec{Attempts: -1}, "c")}})
	assert.Contains(t, r.Error(), "-1 attempts")
}
