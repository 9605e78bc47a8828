package rollout_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/rollout"
)

// service returns a service with a small spec.
func service(count int, version string) *rollout.Service {
	return &rollout.Service{Name: "web", Count: count, Version: version, Spec: &orbit.Spec{Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}}
}

// world is a ledger with one node, of which a test plays engine and agent.
type world struct {
	t interface {
		require.TestingT
		Helper()
	}
	ledger *orbit.MemoryLedger
}

func newWorld(t *testing.T) *world {
	w := &world{t, &orbit.MemoryLedger{}}
	w.commit(orbit.PutNode{Node: orbit.Node{ID: "n", Confirms: true, Capacity: orbit.Resources{orbit.CPU: 1000}}})
	return w
}

func (w *world) commit(do ...orbit.Commitment) {
	w.t.Helper()
	_, err := w.ledger.Propose(w.context(), orbit.Proposal{Do: do})
	require.NoError(w.t, err)
}

func (w *world) state() *orbit.State {
	s, err := w.ledger.Snapshot(w.context())
	require.NoError(w.t, err)
	return s
}

// step commits what a service wants now, and reports whether that is anything.
func (w *world) step(s *rollout.Service) bool {
	w.t.Helper()
	do, err := s.Step(w.state(), time.Unix(1, 0))
	require.NoError(w.t, err)
	if len(do) > 0 {
		w.commit(do...)
	}
	return len(do) > 0
}

// rest steps until there is nothing to do.
func (w *world) rest(s *rollout.Service) {
	w.t.Helper()
	for range 100 {
		if !w.step(s) {
			return
		}
	}
	require.Fail(w.t, "the service does not come to rest")
}

// facts are what an engine and an agent would commit now for a capsule: a place, that it serves, that the former one has stopped.
func facts(c *orbit.Capsule, serves func(*orbit.Capsule) bool) (do []orbit.Commitment) {
	switch {
	case c.Remains() != nil:
		do = append(do, orbit.Confirm{Capsule: c.ID, Since: c.Remains().Since, Stopped: true})
	case c.Pending():
		do = append(do, orbit.Place{Capsule: c.ID, Node: "n"})
	case c.Placed() && !c.Ready && serves(c):
		do = append(do, orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Ready: true})
	}
	return do
}

// run has engine and agent do all there is to do, once.
func (w *world) run(serves func(*orbit.Capsule) bool) {
	for c := range w.state().Capsules() {
		if do := facts(c, serves); len(do) > 0 {
			w.commit(do...)
		}
	}
}

func always(*orbit.Capsule) bool { return true }

// serving counts the members that are ready, and alive those that have not ended.
func (w *world) serving() (serving, alive int) {
	for c := range w.state().Capsules() {
		if c.Ready {
			serving++
		}
		if !c.Released() {
			alive++
		}
	}
	return serving, alive
}

// top is the index after that of the last member that has not ended.
func (w *world) top() (n int) {
	for c := range w.state().Capsules() {
		if i, err := strconv.Atoi(strings.TrimPrefix(string(c.ID), "web-")); err == nil && !c.Released() {
			n = max(n, i+1)
		}
	}
	return n
}

// TestRolloutsInRandomTrouble changes what is wanted at random, with members that are slow, crash, and are lost. At no step does the
// service end a ready member that it may not miss, and it never has more members than it may; in the end all is as wanted.
func TestRolloutsInRandomTrouble(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		w.t = rt
		s := service(3, "1")
		most := 0 // the most members that there might be since the service last had no more than it wants
		t := rt
		t.Repeat(map[string]func(*rapid.T){
			"version": func(t *rapid.T) {
				s.Version = rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "version")
			},
			"size": func(t *rapid.T) {
				most = max(most, s.Count+s.Surge)
				s.Count, s.Missing, s.Surge = rapid.IntRange(0, 6).Draw(t, "count"), rapid.IntRange(0, 2).Draw(t, "missing"), rapid.IntRange(0, 2).Draw(t, "surge")
			},
			"step": func(t *rapid.T) {
				before, _ := w.serving()
				w.step(s)
				after, alive := w.serving()
				missing := s.Missing
				if s.Missing == 0 && s.Surge == 0 {
					missing = 1
				}
				require.GreaterOrEqual(t, after, min(before, s.Count-missing))
				require.LessOrEqual(t, alive, max(most, s.Count+s.Surge))
				if w.top() <= s.Count+s.Surge {
					most = 0
				}
				require.False(t, w.step(s), "a second step has nothing to do")
			},
			"fact": func(t *rapid.T) {
				var all []orbit.Commitment
				for c := range w.state().Capsules() {
					all = append(all, facts(c, always)...)
				}
				if len(all) > 0 {
					w.commit(rapid.SampledFrom(all).Draw(t, "fact"))
				}
			},
			"crash": func(t *rapid.T) {
				for c := range w.state().Capsules() {
					if c.Ready && rapid.Bool().Draw(t, "this") {
						w.commit(orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, NotReady: true})
						return
					}
				}
			},
			"lost": func(t *rapid.T) {
				for c := range w.state().Capsules() {
					if c.Placed() && rapid.Bool().Draw(t, "this") {
						w.commit(orbit.Release{Capsule: c.ID, Final: rapid.Bool().Draw(t, "for good"), Stopped: true})
						return
					}
				}
			},
		})
		for range 60 {
			w.rest(s)
			w.run(always)
		}
		status, err := s.Status(w.state())
		require.NoError(t, err)
		require.Equal(t, rollout.Status{Newest: s.Count, Serving: s.Count, Done: true}, status)
		_, alive := w.serving()
		require.Equal(t, s.Count, alive)
	})
}

// TestSurgeMissesNobody rolls out a service that may miss no member: at every revision all of Count serve.
func TestSurgeMissesNobody(t *testing.T) {
	w, s := newWorld(t), service(4, "1")
	s.Surge = 1
	for range 5 {
		w.rest(s)
		w.run(always)
	}
	s.Version = "2"
	steps := 0
	for ; steps < 100; steps++ {
		w.rest(s)
		serving, alive := w.serving()
		require.GreaterOrEqual(t, serving, 4)
		require.LessOrEqual(t, alive, 5)
		if status, err := s.Status(w.state()); err == nil && status.Done {
			break
		}
		w.run(always)
	}
	require.Less(t, steps, 100)
	require.Greater(t, steps, 4, "it takes one member after the other")
}

// TestBadVersionStops rolls out a version that never serves, and then goes back.
func TestBadVersionStops(t *testing.T) {
	w, s := newWorld(t), service(5, "good")
	s.Missing, s.Surge = 1, 1
	good := func(c *orbit.Capsule) bool { return c.Label(rollout.VersionLabel) == "good" }
	for range 5 {
		w.rest(s)
		w.run(good)
	}
	s.Version = "bad"
	for range 50 {
		w.rest(s)
		w.run(good)
	}
	status, err := s.Status(w.state())
	require.NoError(t, err)
	require.Equal(t, rollout.Status{Newest: 2, Old: 4, Serving: 4}, status)
	stays := w.state().Capsule("web-4").PlacedAt
	s.Version = "good"
	for range 50 {
		w.rest(s)
		w.run(good)
	}
	status, err = s.Status(w.state())
	require.NoError(t, err)
	require.True(t, status.Done)
	require.Equal(t, stays, w.state().Capsule("web-4").PlacedAt, "members of the old version stay")
}

// TestBetterAfterBad rolls out a third version while the only further member has the second, which never serves.
func TestBetterAfterBad(t *testing.T) {
	w, s := newWorld(t), service(2, "good")
	s.Surge = 1
	for _, version := range []string{"good", "bad", "better"} {
		s.Version = version
		for range 20 {
			w.rest(s)
			w.run(func(c *orbit.Capsule) bool { return c.Label(rollout.VersionLabel) != "bad" })
		}
	}
	status, err := s.Status(w.state())
	require.NoError(t, err)
	require.True(t, status.Done, "%+v", status)
}

// TestDrainWaitsForRollout: while the rollout has taken what the service may miss, the budget lets nothing else take more.
func TestDrainWaitsForRollout(t *testing.T) {
	w, s := newWorld(t), service(3, "1")
	w.commit(orbit.PutNode{Node: orbit.Node{ID: "m", Confirms: true, Capacity: orbit.Resources{orbit.CPU: 1000}}})
	for range 5 {
		w.rest(s)
		w.run(always)
	}
	move := func(i int) error {
		_, err := w.ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Evict{Capsule: s.Member(i), From: "n", Since: w.state().Capsule(s.Member(i)).PlacedAt}, orbit.Place{Capsule: s.Member(i), Node: "m"}}})
		return err
	}
	s.Version = "2"
	w.rest(s)
	require.ErrorContains(t, move(2), "budget")
	for range 9 {
		w.rest(s)
		w.run(always)
	}
	require.NoError(t, move(2))
}

// TestBadServices has what cannot be; nothing is proposed for it.
func TestBadServices(t *testing.T) {
	w := newWorld(t)
	w.commit(orbit.Submit{IDs: []orbit.CapsuleID{"web-1"}, Spec: &orbit.Spec{Module: "other"}})
	for want, change := range map[string]func(*rollout.Service){
		"needs a Name":              func(s *rollout.Service) { s.Name = "" },
		"needs a Spec":              func(s *rollout.Service) { s.Spec = nil },
		"Group or a Module":         func(s *rollout.Service) { s.Spec = &orbit.Spec{} },
		"Count is -1":               func(s *rollout.Service) { s.Count = -1 },
		"Surge is 1048577":          func(s *rollout.Service) { s.Surge = 1<<20 + 1 },
		"Labels must not have":      func(s *rollout.Service) { s.Labels = map[string]string{rollout.VersionLabel: "x"} },
		`capsule "web-1" has no la`: func(*rollout.Service) {},
	} {
		s := service(3, "1")
		change(s)
		for name, call := range map[string]func() ([]orbit.Commitment, error){
			"step":   func() ([]orbit.Commitment, error) { return s.Step(w.state(), time.Now()) },
			"end":    func() ([]orbit.Commitment, error) { return s.End(w.state()) },
			"status": func() ([]orbit.Commitment, error) { _, err := s.Status(w.state()); return nil, err },
		} {
			do, err := call()
			require.ErrorIs(t, err, orbit.ErrInvalid, name)
			require.ErrorContains(t, err, want, name)
			require.Empty(t, do)
		}
	}
}

// TestEnd ends a service whose size has just been reduced, and leaves nothing.
func TestEnd(t *testing.T) {
	w, s := newWorld(t), service(5, "1")
	for range 5 {
		w.rest(s)
		w.run(always)
	}
	s.Count = 2
	do, err := s.End(w.state())
	require.NoError(t, err)
	w.commit(do...)
	_, alive := w.serving()
	require.Zero(t, alive)
	for b := range w.state().Budgets() {
		require.Fail(t, fmt.Sprint(b.Budget.ID, " is left"))
	}
}

func (w *world) context() context.Context { return context.Background() }
