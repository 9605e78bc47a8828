package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Work whose starts have failed wherever it fits is given back only if that helps: another scheduler lives that has not failed it. If
// none lives, or the other one has failed it too, it stays, and so does work that the user has pinned: the dispatcher would only bring it back.
func TestGivesBackFailingStartsOnlyIfThatHelps(t *testing.T) {
	for name, c := range map[string]struct {
		others []string
		do     []orbit.Commitment
		back   bool
	}{
		"another scheduler lives":          {others: []string{"b"}, back: true},
		"no other lives":                   {},
		"it is pinned":                     {others: []string{"b"}, do: []orbit.Commitment{orbit.Mark{Key: "pinned/x000", Value: "a"}}},
		"the other has failed it":          {others: []string{"b"}, do: []orbit.Commitment{failedBy("x000", "b")}},
		"one of the others has not failed": {others: []string{"b", "c"}, do: []orbit.Commitment{failedBy("x000", "b")}, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.do(node("bad", 40))
			s.live(append(c.others, "a")...)
			s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(1), Owner: "a"})
			id := ids("x", 1)[0]
			s.do(orbit.Place{Capsule: id, Node: "bad"})
			s.do(orbit.Release{Capsule: id, From: "bad", Stopped: true, At: orbit.Instant(time.Now().UnixNano())})
			if len(c.do) > 0 {
				s.do(c.do...)
			}
			sch := &Scheduler{Name: "a", Navigator: &nav.Services{}, Leases: s.leases}
			require.Equal(t, c.back, sch.startsElsewhere(s.state(), unitOf(s.state().Capsule(id))))
		})
	}
}

// failedBy is the mark that a scheduler has failed a capsule.
func failedBy(id, scheduler string) orbit.Commitment {
	f := failures{list: []Failure{{Scheduler: scheduler, View: 1}}}
	return orbit.Mark{Key: "plan/capsule/failed/" + id, Value: f.value(1000)}
}
