package race_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim/race"
)

// unqueued is a ledger that judges capsules as if they named no queue, and shows them in their queues.
func unqueued() orbit.Ledger {
	return &lax{instead: func(_ *orbit.State, p orbit.Proposal) (commit, show, _ []orbit.Commitment) {
		return stripped(p.Do, func(s *orbit.Spec) { s.Queue = "" }), p.Do, nil
	}}
}

// A ledger that lets queues use more than they may is found by a recount at the commit that does so.
func TestRaceFindsOverdrawnQueues(t *testing.T) {
	r, found := teams(), map[string]int{}
	r.Ledger = unqueued
	for seed := uint64(1); seed <= 40 && found["over quota"] == 0; seed++ {
		found[r.Run(seed).Rule()]++
	}
	assert.NotZero(t, found["over quota"], "found by %v", found)
}

// The same in the liveness worlds, and navigators that leave work of queues behind for which there is quota are found there.
func TestLivenessFindsFaultsOfQueues(t *testing.T) {
	forgets := func(view *orbit.View, pending []*orbit.Capsule) (left []*orbit.Capsule, more orbit.Plan) {
		for _, c := range pending {
			if c.Spec.Queue == "" {
				left = append(left, c)
			}
		}
		return left, more
	}
	for rule, l := range map[string]*race.Liveness{
		"over quota": {Ledger: unqueued},
		"left":       {Wrap: func(_ string, n orbit.Navigator) orbit.Navigator { return &spoilt{n, forgets} }},
	} {
		found := map[string]int{}
		for seed := uint64(1); seed <= 200 && found[rule] == 0; seed++ {
			found[playWorld(t, l, seed).Rule()]++
		}
		assert.NotZero(t, found[rule], "found by %v", found)
	}
}

// The worlds have in them what queues are for: borrowing, evictions between queues, waiting work of queues, a Fair, and all changes of
// queues.
func TestLivenessHappensInQueues(t *testing.T) {
	seen := map[string]int{}
	wanted := []string{"fair", "put", "removed", "borrows", "waits", "between queues", "another queue"}
	for seed := uint64(1); seed <= 150 && !reached(seen, wanted); seed++ {
		ledger := &orbit.MemoryLedger{}
		l := &race.Liveness{Ledger: func() orbit.Ledger { return ledger }, Wrap: func(_ string, n orbit.Navigator) orbit.Navigator {
			if _, fair := n.(*nav.Fair); fair {
				seen["fair"]++
			}
			return n
		}}
		playWorld(t, l, seed)
		changes, err := ledger.Changes(context.Background(), 0)
		assert.NoError(t, err)
		was := new(orbit.State)
		for len(changes) > 0 {
			n := 1
			for n < len(changes) && changes[n].Revision == changes[0].Revision {
				n++
			}
			state, err := was.Apply(changes[:n])
			if !assert.NoError(t, err) {
				return
			}
			lookAtQueues(was, state, changes[:n], seen)
			was, changes = state, changes[n:]
		}
	}
	for _, what := range wanted {
		assert.NotZero(t, seen[what], what)
	}
}

// lookAtQueues notes what a commit is an example of.
func lookAtQueues(was, now *orbit.State, changes []orbit.Change, seen map[string]int) {
	for _, c := range changes {
		switch do := c.Do.(type) {
		case orbit.PutQueue:
			seen["put"]++
		case orbit.RemoveQueue:
			seen["removed"]++
		case orbit.Respec:
			if before := was.Capsule(do.Capsule); before != nil && before.Spec.Queue != do.Spec.Queue {
				seen["another queue"]++
			}
		case orbit.Evict:
			if by := now.Capsule(do.For); by != nil && by.Spec.Queue != "" && was.Capsule(do.Capsule).Spec.Queue != by.Spec.Queue {
				seen["between queues"]++
			}
		}
	}
	for q := range now.Queues() {
		seen["waits"] += q.Waiting
		for _, x := range q.Borrowed() {
			if x > 0 {
				seen["borrows"]++
			}
		}
	}
}
