package orbit

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// crowd lets a node with an agent join, on which what has left may still run when the next comes.
func (c *chaos) crowd(t *rapid.T) {
	n := machine(c.nodeID(t), 4)
	n.Confirms = true
	c.try(PutNode{n})
	c.serial++
	old, next := CapsuleID(fmt.Sprint("o", c.serial)), CapsuleID(fmt.Sprint("n", c.serial))
	c.try(Submit{IDs: []CapsuleID{old, next}, Spec: chaosSpecs[1]}, Place{Capsule: old, Node: n.ID})
	if k := snapshotOf(t, c.ledger).Capsule(old); k != nil {
		c.try(Confirm{Capsule: old, Since: k.PlacedAt, Begun: true})
		c.try(Release{Capsule: old, Final: true}, Place{Capsule: next, Node: n.ID})
	}
}

// begin has a capsule begin, or what has left a node stop.
func (c *chaos) begin(t *rapid.T) {
	k := c.capsule(t, func(k *Capsule) bool { return k.Placed() && !k.Begun || k.Remains() != nil })
	switch {
	case k == nil:
	case k.Remains() != nil && rapid.Bool().Draw(t, "stops"):
		c.try(Confirm{Capsule: k.ID, Since: k.Remains().Since, Stopped: true})
	default:
		c.try(Confirm{Capsule: k.ID, Since: k.PlacedAt, Begun: true})
	}
}

// fail has a capsule fail, some time ago: at the edge of what still counts, or with a clock that is ahead.
func (c *chaos) fail(t *rapid.T) {
	if k := c.capsule(t, (*Capsule).Placed); k != nil {
		ago := rapid.SampledFrom([]time.Duration{0, 3 * time.Second, 298 * time.Second, 5 * time.Minute, -5 * time.Minute, -6 * time.Minute}).Draw(t, "ago")
		c.try(Release{Capsule: k.ID, Stopped: true, At: instantOf(c.now.Add(-ago))})
	}
}

// countedStarts counts the starts on each node anew, by what all capsules have failed.
func countedStarts(s *State, now time.Time) map[NodeID][3]int {
	out := map[NodeID][3]int{}
	for n := range s.Nodes() {
		specs, failed, since := map[*Spec]bool{}, 0, s.Revision()
		for c := range s.Capsules() {
			for _, f := range s.Failures(c.ID).Nodes {
				if age := now.Sub(f.At.Time()); f.Node == n.Node.ID && f.At != 0 && age < 5*time.Minute && age >= -5*time.Minute {
					failed, since = failed+1, min(since, f.Revision)
					specs[c.Spec] = true
				}
			}
		}
		all := failed
		for c := range s.On(n.Node.ID) {
			if c.PlacedAt > since && (c.Begun || !n.Node.Confirms) {
				all++
			}
		}
		if failed > 0 {
			out[n.Node.ID] = [3]int{failed, all, len(specs)}
		}
	}
	return out
}

// TestViewsFollowFailures: whatever happens, a view that follows the changes knows on which nodes starts have failed within five minutes, and which
// placements wait, as one finds them who looks at all capsules.
func TestViewsFollowFailures(t *testing.T) {
	for total := range scale.Reach(t, "failing", "waiting") {
		rapid.Check(t, func(t *rapid.T) {
			c := newChaos(t)
			c.ledger.Bounds.Terminal = rapid.SampledFrom([]int{2, 20}).Draw(t, "terminal")
			from := source{ledger: c.ledger, owns: chaosOwns, holds: true}
			var v View
			actions := c.actions()
			actions["fail"], actions["fail more"], actions["begin"], actions["begin more"], actions["crowd"] = c.fail, c.fail, c.begin, c.begin, c.crowd
			actions["later"] = func(*rapid.T) { c.now = c.now.Add(299 * time.Second) }
			actions[""] = func(t *rapid.T) {
				if rapid.Bool().Draw(t, "look") {
					_, err := v.refresh(context.Background(), &from, c.now)
					require.NoError(t, err)
					total["failing"] += len(v.failing)
					total["waiting"] += compareFailures(t, &v)
				}
			}
			t.Repeat(actions)
		})
	}
}

// compareFailures compares a view with what countedStarts and State.Waiting say, and returns how many placements wait.
func compareFailures(t *rapid.T, v *View) int {
	want, got, said := countedStarts(v.state, v.now), map[NodeID][3]int{}, map[NodeID][3]int{}
	for index, n := range v.failing {
		got[v.state.NodeByIndex(int(index)).Node.ID] = [3]int{n.Failed, n.Of, n.Specs}
	}
	for n, starts := range v.state.Starts(v.now) {
		said[n.Node.ID] = [3]int{starts.Failed, starts.Of, starts.Specs}
	}
	assert.Equal(t, want, got)
	assert.Equal(t, want, said)
	var all, seen []CapsuleID
	for c := range v.state.Waiting() {
		all = append(all, c.ID)
	}
	for c := range v.waiting {
		seen = append(seen, c.ID)
	}
	slices.Sort(all)
	slices.Sort(seen)
	assert.Equal(t, all, seen)
	return len(all)
}
