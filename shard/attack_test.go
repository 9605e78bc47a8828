package shard

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// TestGangAsLargeAsAProposal: a gang is given back in two proposals if its mark does not fit into one with the
// assignments.
func TestGangAsLargeAsAProposal(t *testing.T) {
	s := newStage(t)
	s.ledger = &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: 2}}
	s.leases.Ledger = s.ledger
	s.live("a", "b")
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	s.do(orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: ids("g", 2)}}}})
	s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)})
	s.settle(d)
	for _, name := range []string{"a", "b"} {
		sch := &Scheduler{Name: name, Navigator: says(&orbit.NoFit{}), Leases: s.leases}
		sch.Serve(s.terms[name])
		r := (&orbit.Engine{Name: name, Ledger: s.ledger, Navigator: sch}).Pass(context.Background())
		t.Log(r.String())
		assert.Zero(t, r.Invalid, "%v", r.Errors)
	}
}

// TestRuleThatPanics: if a rule panics, the node goes to the lightest group.
func TestRuleThatPanics(t *testing.T) {
	s := newStage(t)
	s.do(node("n", 1), node("o", 1))
	g := &Groups{Ledger: s.ledger, Schedulers: []string{"a"}, By: func(n *orbit.Node, _ []string) string {
		if n.ID == "n" {
			panic("no")
		}
		return "a"
	}}
	var r Regrouping
	require.NotPanics(t, func() { r = g.Step(context.Background()) })
	require.Equal(t, 2, r.Grouped)
	require.Len(t, r.Errors, 1)
}

// textless is an error whose text is decided by the test.
type textless func() string

func (t textless) Error() string { return t() }

// TestCallbacksOfWhichNothingIsLeft: a policy, Select or By may exit its goroutine, or panic with a value whose text
// exits or blocks. That costs one capsule or node; the step goes on, and its errors can be read.
func TestCallbacksOfWhichNothingIsLeft(t *testing.T) {
	for name, crash := range map[string]func(){
		"exits":             runtime.Goexit,
		"panics, to exit":   func() { panic(textless(func() string { runtime.Goexit(); return "" })) },
		"panics, to block":  func() { panic(textless(func() string { time.Sleep(time.Hour); return "" })) },
		"panics, to panic":  func() { panic(textless(func() string { panic("again") })) },
		"panics of nothing": func() { panic(nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.do(node("n0", 1), node("n1", 1), orbit.Submit{IDs: ids("x", 2), Spec: cpu(1)})
			d := &Dispatcher{Ledger: s.ledger, Schedulers: []string{"a"}, Policy: PolicyFunc(func(c *orbit.Capsule, _ *Candidates) string {
				if c.ID == "x001" {
					crash()
				}
				return "a"
			})}
			choosy := &Dispatcher{Ledger: s.ledger, Schedulers: []string{"a"}, Select: func(c *orbit.Capsule) bool {
				if c.ID == "x001" {
					crash()
				}
				return c.ID == "x000"
			}}
			g := &Groups{Ledger: s.ledger, Schedulers: []string{"a"}, By: func(n *orbit.Node, _ []string) string {
				if n.ID == "n1" {
					crash()
				}
				return "a"
			}}
			begun, texts := time.Now(), make(chan string, 3)
			go func() { r := g.Step(t.Context()); texts <- fmt.Sprint(r.Grouped, r.Errors) }()
			go func() { r := choosy.Step(t.Context()); texts <- fmt.Sprint(r.Dispatched, r.Errors) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			go func() { r := d.Step(t.Context()); texts <- fmt.Sprint(r.Errors) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, texts, 3, "%s: all steps have returned", name)
			require.Contains(t, <-texts+<-texts+<-texts, "x001", name)
			require.Equal(t, 2*time.Minute, time.Since(begun))
			require.Equal(t, "a", s.state().Capsule("x000").Owner(), name)
			require.Empty(t, s.state().Capsule("x001").Owner(), name)
			time.Sleep(2 * time.Hour) // until the goroutines that make texts have ended
		})
	}
}

// TestCostOfWhatFitsNowhere counts the commits of an hour in which a capsule fits nowhere.
func TestCostOfWhatFitsNowhere(t *testing.T) {
	scale.Long(t)
	for _, mode := range []Mode{Strict, Soft, Shared}[scale.WithRace(2, 0):] {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				ctx, cancel := context.WithCancel(t.Context())
				s.run(ctx, mode, 4)
				time.Sleep(time.Minute)
				before := s.state().Revision()
				time.Sleep(time.Hour)
				idle := s.state().Revision() - before
				before = s.state().Revision()
				s.do(orbit.Submit{IDs: ids("huge", 1), Spec: cpu(100)})
				time.Sleep(time.Hour)
				first := s.state().Revision() - before
				before = s.state().Revision()
				time.Sleep(time.Hour)
				second := s.state().Revision() - before
				before = s.state().Revision()
				// small capsules come and go, which cannot help
				n := scale.Of(900, 3600)
				for i := range n {
					id := orbit.CapsuleID(fmt.Sprint("small", i))
					s.do(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: cpu(1)})
					time.Sleep(time.Second)
					_, err := s.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: id, Final: true}}})
					require.NoError(t, err)
				}
				busy := s.state().Revision() - before
				t.Logf("%v: commits an hour: idle %d, with one that fits nowhere %d, then %d, and %d when %d small ones come and go", mode, idle, first, second, busy, n)
				assert.Zero(t, idle)
				assert.LessOrEqual(t, first, orbit.Revision(1+2*8+2*24), "each of 8 fails it, and then it is tried again ever more seldom")
				assert.LessOrEqual(t, second, orbit.Revision(2*16))
				assert.LessOrEqual(t, busy, orbit.Revision(4*n+2*16), "submitted, assigned, placed and released")
				cancel()
				synctest.Wait()
			})
		})
	}
}

// TestClosedIsACopy: changes of a state made by Closed leave the original unchanged.
func TestClosedIsACopy(t *testing.T) {
	s := newStage(t)
	for i := range 40 {
		s.do(node(orbit.NodeID(fmt.Sprint("n", i)), 10))
	}
	s.do(orbit.Submit{IDs: ids("x", 100), Spec: cpu(1)})
	dump := func(st *orbit.State) string {
		var b bytes.Buffer
		require.NoError(t, st.Dump(&b))
		return b.String()
	}
	state := s.state()
	closed := func(n *orbit.NodeState) bool { return strings.HasSuffix(string(n.Node.ID), "1") }
	shown := state.Restricted(nil, nil, closed)
	was, wasShown := dump(state), dump(shown)
	done := make(chan struct{})
	go func() {
		defer close(done)
		fork := &orbit.MemoryLedger{Start: shown}
		for i := range 50 {
			_, err := fork.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprintf("x%03d", i)), Node: "n0"}}})
			if i < 10 {
				assert.NoError(t, err)
			}
			_, _ = fork.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{node(orbit.NodeID(fmt.Sprint("m", i)), 10), orbit.Mark{Key: "k", Value: fmt.Sprint(i)}}})
		}
	}()
	last := shown
	for i := range 50 {
		s.do(orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprintf("x%03d", i)), Node: orbit.NodeID(fmt.Sprint("n", i%7))}, node(orbit.NodeID(fmt.Sprint("o", i)), 10))
		now := s.state()
		var touched []int32
		for n := range now.Nodes() {
			touched = append(touched, int32(n.Index()))
		}
		last = now.Restricted(last, touched, closed)
		require.NoError(t, last.Verify())
	}
	<-done
	require.Equal(t, was, dump(state))
	require.Equal(t, wasShown, dump(shown))
	require.NoError(t, s.state().Verify())
}

// TestLongNodeIDIsQuiet: a node whose id is too long for a mark does not keep Run busy.
func TestLongNodeIDIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.do(node(orbit.NodeID(strings.Repeat("/", 253)), 1))
		ctx, cancel := context.WithCancel(t.Context())
		rounds := 0
		go func() {
			_ = (&Groups{Ledger: s.ledger, Schedulers: []string{"a"}, Hook: func(Regrouping) { rounds++ }}).Run(ctx)
		}()
		time.Sleep(time.Hour)
		cancel()
		synctest.Wait()
		require.Less(t, rounds, 10)
	})
}
