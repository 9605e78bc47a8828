package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// The worked example of the warm-slot score, through the synchronous path: pz20 goes before n1v2, and the placement says warm.
func TestGatewayWorkedExample(t *testing.T) {
	f := newFleet(t)
	f.join("pz20", 16_384)
	f.report("pz20", 21, 18, 31)
	f.join("n1v2", 16_384)
	f.report("n1v2", 23, 5, 12)
	g := f.gateway()
	made := f.create(g, "c1")
	require.Equal(t, orbit.NodeID("pz20"), made.Node)
	require.True(t, made.Warm && made.Promised && !made.Retried)
	require.Equal(t, "pz20 warm", f.noteOf("c1"))
	require.Equal(t, sandbox.GatewayStats{Created: 1, Warm: 1, Refreshes: 1}, g.Stats())
}

// Warm slots are debited as they are promised: 18 and 5 warm slots make 23 warm creates and then cold ones, on
// whichever node is better at the moment, though no node reports meanwhile. A second gateway on the same board sees
// what the first has promised.
func TestGatewayDebitsBetweenReports(t *testing.T) {
	f := newFleet(t)
	f.host("pz20", 30, 18, 31)
	f.host("n1v2", 30, 5, 12)
	gateways := []*sandbox.Gateway{f.gateway(), f.gateway()}
	for _, g := range gateways {
		_, err := g.Create(context.Background(), "c", bootSpec("no such")) // each has its view from now
		require.ErrorIs(t, err, sandbox.ErrNoTemplate)
	}
	warm := map[orbit.NodeID]int{}
	for i := range 60 {
		made := f.create(gateways[i%2], fmt.Sprint("c", i))
		require.Equal(t, i < 23, made.Warm, "create %d", i)
		if made.Warm {
			warm[made.Node]++
		}
	}
	require.Equal(t, map[orbit.NodeID]int{"pz20": 18, "n1v2": 5}, warm)
	_, err := gateways[0].Create(context.Background(), "one more", bootSpec(code))
	require.ErrorIs(t, err, sandbox.ErrNoSlot)
	require.NoError(t, snapshot(t, f.ledger).Verify())
}

// Free slots are the lesser of what the ledger has and what the node reports.
func TestGatewayLesserOfLedgerAndReport(t *testing.T) {
	f := newFleet(t)
	f.join("ledger-has-2", 2)
	f.report("ledger-has-2", 100, 0, 0)
	f.join("reports-3", 100)
	f.report("reports-3", 3, 0, 0)
	g, on := f.gateway(), map[orbit.NodeID]int{}
	for i := range 5 {
		on[f.create(g, fmt.Sprint("c", i)).Node]++
	}
	require.Equal(t, map[orbit.NodeID]int{"ledger-has-2": 2, "reports-3": 3}, on)
	_, err := g.Create(context.Background(), "c5", bootSpec(code))
	require.ErrorIs(t, err, sandbox.ErrNoSlot)
}

// A spec that reserves no slots reserves one; the caller's is left as it is.
func TestGatewayReservesASlot(t *testing.T) {
	f := newFleet(t)
	f.host("a", 1, 0, 0)
	g, spec := f.gateway(), &orbit.Spec{Start: orbit.Start{Template: code}}
	made, err := g.Create(context.Background(), "c", spec)
	require.NoError(t, err)
	require.Zero(t, spec.Envelope.Reservation[orbit.Slots])
	require.Equal(t, int64(1), made.Spec.Envelope.Reservation[orbit.Slots])
	_, err = g.Create(context.Background(), "d", spec)
	require.ErrorIs(t, err, sandbox.ErrNoSlot)
}

// Every refusal is typed, says what to do, and leaves nothing behind.
func TestGatewayRefusals(t *testing.T) {
	f := newFleet(t)
	f.host("full", 1, 5, 0)
	f.host("other", 9, 0, 0)
	require.NoError(t, f.board.Report(orbit.Report{Node: "other", At: time.Now(), FreeSlots: 9, Templates: []string{"browser"}, Volumes: []string{"v1"}}))
	g := f.gateway()
	f.create(g, "there")
	_, err := g.Create(context.Background(), "pending", bootSpec("browser"))
	require.NoError(t, err)
	commit(t, f.ledger, orbit.Release{Capsule: "pending", Stopped: true})
	for _, c := range []struct {
		name, text string
		kind       error
		spec       func(*orbit.Spec)
	}{
		{"no slot", "no free slot: 0 of 2 nodes fit: 1 does not support template", sandbox.ErrNoSlot, func(*orbit.Spec) {}},
		{"no template", `template "nothing": no such template: 0 of 2 nodes fit: 2 do not support template "nothing"; build it`, sandbox.ErrNoTemplate, func(s *orbit.Spec) { s.Start.Template = "nothing" }},
		{"no volume", `volumes ["v1" "v2"]: no such volume: 0 of 2 nodes fit`, sandbox.ErrNoVolume, func(s *orbit.Spec) { s.Start = orbit.Start{Template: "browser", Volumes: []string{"v1", "v2"}} }},
		{"no parent", `fork of "absent": parent is not placed; fork one that runs`, sandbox.ErrNoParent, func(s *orbit.Spec) { s.Start.Parent = "absent" }},
		{"pending parent", "parent is not placed", sandbox.ErrNoParent, func(s *orbit.Spec) { s.Start.Parent = "pending" }},
		{"the parent's node is full", `fork of "there" on node "full": no free slot: 0 of 1 nodes fit: 1 has no free slot; bring up a host`, sandbox.ErrNoSlot, func(s *orbit.Spec) { s.Start.Parent = "there" }},
		{"no node", "no suitable node: 0 of 2 nodes fit: 2 do not meet zone in (z)", sandbox.ErrNoNode, func(s *orbit.Spec) {
			s.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{"z"}}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bootSpec(code)
			c.spec(s)
			_, err := g.Create(context.Background(), "x", s)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.text)
			var why *sandbox.WarmNoFit
			require.ErrorAs(t, err, &why)
			require.Equal(t, s.Start, why.Start)
			require.Equal(t, !errors.Is(err, sandbox.ErrNoParent), errors.As(err, new(*orbit.NoFit)))
			require.Nil(t, snapshot(t, f.ledger).Capsule("x"))
		})
	}
	s := g.Stats()
	require.Equal(t, []uint64{0, 2, 1, 1, 2, 1}, []uint64{s.AllStale, s.NoSlot, s.NoVolume, s.NoTemplate, s.NoParent, s.NoNode})
	require.Equal(t, uint64(7), s.Failed)
}

// A create of an id that is there already, or of nothing, says so and does not touch what is there.
func TestGatewayTakenID(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 0, 0)
	g, late := f.gateway(), f.gateway()
	f.create(g, "c")
	f.create(late, "d") // its view has c
	for _, g := range []*sandbox.Gateway{g, late} {
		_, err := g.Create(context.Background(), "c", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrTaken)
		require.Equal(t, "a cold", f.noteOf("c"))
	}
	for _, id := range []orbit.CapsuleID{"", "x"} {
		_, err := g.Create(context.Background(), id, map[bool]*orbit.Spec{true: bootSpec(code)}[id == ""])
		require.ErrorIs(t, err, orbit.ErrInvalid)
	}
	_, err := new(sandbox.Gateway).Create(context.Background(), "x", bootSpec(code))
	require.ErrorIs(t, err, orbit.ErrInvalid)
	require.ErrorIs(t, new(sandbox.Gateway).Delete(context.Background(), "x"), orbit.ErrInvalid)
	bad := bootSpec(code)
	bad.Envelope.Reservation[orbit.CPU] = -1
	_, err = g.Create(context.Background(), "x", bad)
	require.ErrorIs(t, err, orbit.ErrInvalid)
	require.NotErrorIs(t, err, sandbox.ErrTaken)
	require.Equal(t, 2, f.live())
}

// Two creates of one id at once: one has it, the other is told, whichever comes first and whether or not the view shows it.
func TestGatewayTakenWhileUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 9, 0, 0)
		g, l, _ := f.watched()
		l.hook(func(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
			time.Sleep(time.Second)
			return f.ledger.Propose(ctx, p)
		})
		var made, taken atomic.Int64
		for range 2 {
			go func() {
				switch _, err := g.Create(context.Background(), "c", bootSpec(code)); {
				case err == nil:
					made.Add(1)
				case errors.Is(err, sandbox.ErrTaken):
					taken.Add(1)
				}
			}()
		}
		time.Sleep(5 * time.Second)
		require.Equal(t, []int64{1, 1}, []int64{made.Load(), taken.Load()})
		require.Equal(t, 1, f.live())
		require.NoError(t, g.Delete(context.Background(), "c"))
		for i := range 9 { // the loser has left nothing in the books
			f.create(g, fmt.Sprint("d", i))
		}
	})
}

// A volume is where it is; a fork goes beside its parent, or across hosts to the best other node.
func TestGatewayAffinity(t *testing.T) {
	f := newFleet(t)
	f.host("best", 9, 50, 0)
	f.host("second", 9, 20, 0)
	f.join("disk", 9)
	require.NoError(t, f.board.Report(orbit.Report{Node: "disk", At: time.Now(), FreeSlots: 9, Templates: []string{code}, Volumes: []string{"v1", "v2"}}))
	g := f.gateway()
	on := func(id string, start orbit.Start) orbit.NodeID {
		s := bootSpec(code)
		s.Start = start
		made, err := g.Create(context.Background(), orbit.CapsuleID(id), s)
		require.NoError(t, err)
		return made.Node
	}
	require.Equal(t, orbit.NodeID("disk"), on("with-volume", orbit.Start{Template: code, Volumes: []string{"v2", "v1"}}))
	require.Equal(t, orbit.NodeID("disk"), on("fork", orbit.Start{Template: code, Parent: "with-volume"}))
	require.Equal(t, orbit.NodeID("best"), on("across", orbit.Start{Template: code, Parent: "with-volume", CrossHost: true}))
	require.Equal(t, orbit.NodeID("second"), on("across-again", orbit.Start{Template: code, Parent: "across", CrossHost: true}))
}

// Delete is for good and may be repeated; what the ledger never had is an error.
func TestGatewayDelete(t *testing.T) {
	f := newFleet(t)
	f.host("a", 1, 0, 0)
	g := f.gateway()
	f.create(g, "c")
	require.NoError(t, g.Delete(context.Background(), "c"))
	require.NoError(t, g.Delete(context.Background(), "c"))
	require.ErrorIs(t, g.Delete(context.Background(), "never"), sandbox.ErrNoCapsule)
	require.Zero(t, f.live())
	f.create(g, "d") // its slot is free again
}

// A start that fails retries on the next best node, once; the second failure, or a lack of other nodes, ends the create
// and leaves nothing.
func TestGatewayRetriesOnce(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 5, 0)
	f.host("b", 9, 3, 0)
	f.host("c", 9, 1, 0)
	down, asked := map[orbit.NodeID]bool{"a": true}, []orbit.NodeID(nil)
	g := f.gateway()
	g.Start = func(_ context.Context, c sandbox.Created) (bool, error) {
		asked = append(asked, c.Node)
		require.Equal(t, string(c.Node)+" warm", f.noteOf(c.Capsule))
		require.True(t, c.Warm && c.Promised)
		if down[c.Node] {
			return false, fmt.Errorf("503 from %s", c.Node)
		}
		return true, nil
	}
	made := f.create(g, "one")
	require.Equal(t, []orbit.NodeID{"a", "b"}, asked)
	require.True(t, made.Retried && made.Warm)
	require.Equal(t, "b warm", f.noteOf("one"))
	require.Equal(t, snapshot(t, f.ledger).Capsule("one").PlacedAt, made.Revision)

	down["b"], down["c"] = true, true
	_, err := g.Create(context.Background(), "two", bootSpec(code))
	require.ErrorIs(t, err, sandbox.ErrStart)
	require.ErrorContains(t, err, `start failed on node "b": 503 from b; then on node "c": 503 from c`)
	var failed *sandbox.StartError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, []orbit.NodeID{"b", "c"}, []orbit.NodeID{failed.Node, failed.Retry}, "a has no warm slot, as far as is known")
	require.Equal(t, []orbit.NodeID{"a", "b", "b", "c"}, asked)
	require.Equal(t, 1, f.live())

	commit(t, f.ledger, orbit.PutNode{Node: orbit.Node{ID: "b", State: orbit.Cordoned}}, orbit.PutNode{Node: orbit.Node{ID: "c", State: orbit.Cordoned}})
	f.report("a", 9, 5, 0)
	_, err = g.Create(context.Background(), "three", bootSpec(code))
	require.ErrorContains(t, err, `no retry: template "code-interpreter": no other node: 0 of 3 nodes fit: 2 are unschedulable, 1 failed to start it; bring up another host, or try again`)
	require.ErrorIs(t, err, sandbox.ErrStart)
	require.ErrorIs(t, err, sandbox.ErrNoOther)
	require.Equal(t, 1, f.live())
	s := g.Stats()
	require.Equal(t, []uint64{1, 2, 2, 2}, []uint64{s.Created, s.Failed, s.Unstarted, s.Retried})
}

// A node that promised a warm slot and boots cold is believed no more until it reports again. The placement's note
// stays what was promised.
func TestGatewayCountsLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("liar", 99, 18, 0)
		f.host("true", 99, 2, 0)
		g := f.gateway()
		g.Start = func(_ context.Context, c sandbox.Created) (bool, error) { return c.Warm && c.Node == "true", nil }
		made := f.create(g, "c0")
		require.True(t, made.Promised && !made.Warm)
		require.Equal(t, "liar warm", f.noteOf("c0"))
		for i := range 2 {
			require.Equal(t, orbit.NodeID("true"), f.create(g, fmt.Sprint("c", 1+i)).Node)
		}
		made = f.create(g, "c3")
		require.False(t, made.Promised || made.Warm, "no node is known to have a warm slot left")
		require.Equal(t, sandbox.GatewayStats{Created: 4, Warm: 2, Cold: 2, Lies: 1, Refreshes: 1}, g.Stats())
		time.Sleep(10 * time.Second)
		f.report("liar", 99, 18, 0)
		f.report("true", 99, 0, 0)
		time.Sleep(20 * time.Second)
		made = f.create(g, "c4")
		require.True(t, made.Promised && made.Node == "liar", "it has reported since")
		require.Equal(t, uint64(2), g.Stats().Lies)
	})
}

// What is promised is what the board says at that moment, and not what it said when the view was made.
func TestGatewayPromisesWhatTheBoardSays(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 0, 0)
	g := f.gateway()
	require.False(t, f.create(g, "c0").Promised)
	f.report("a", 8, 1, 0)
	require.True(t, f.create(g, "c1").Promised)
	require.Equal(t, "a warm", f.noteOf("c1"))
	require.False(t, f.create(g, "c2").Promised)
	require.Equal(t, uint64(1), g.Stats().Refreshes)
}

// What Start does to its goroutine is contained: a panic is an error, and neither it nor an exit leaves anything behind.
func TestGatewayContainsStart(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 0, 0)
	f.host("b", 9, 0, 0)
	g := f.gateway()
	g.Start = func(context.Context, sandbox.Created) (bool, error) { panic("boom") }
	_, err := g.Create(context.Background(), "c", bootSpec(code))
	var caught *sandbox.PanicError
	require.ErrorAs(t, err, &caught)
	require.Equal(t, "boom", caught.Value)
	require.ErrorIs(t, err, sandbox.ErrStart)
	require.Zero(t, f.live())
	require.Zero(t, g.Stats().Retried)

	g.Start = func(context.Context, sandbox.Created) (bool, error) { runtime.Goexit(); return true, nil }
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = g.Create(context.Background(), "d", bootSpec(code))
	}()
	<-done
	require.Zero(t, f.live())
	require.NotNil(t, snapshot(t, f.ledger).Capsule("d"))
}

// lurking is an error that does harm when it is made text or taken for another.
type lurking struct{ harm func() }

func (l lurking) Error() string { l.harm(); return "lurking" }
func (l lurking) As(any) bool   { l.harm(); return false }

// What Start fails with, or panics with, may do harm when it is looked at: the create returns in time all the same, and
// leaves nothing behind.
func TestGatewayContainsErrorsOfStart(t *testing.T) {
	for name, harm := range map[string]func(){
		"panics": func() { panic("ouch") },
		"exits":  runtime.Goexit,
		"blocks": func() { time.Sleep(time.Hour) },
	} {
		for how, fail := range map[string]func() error{
			"returned": func() error { return lurking{harm} },
			"panicked": func() error { panic(lurking{harm}) },
		} {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.host("a", 9, 9, 0)
				f.host("b", 9, 0, 0)
				g := f.gateway()
				g.Start = func(context.Context, sandbox.Created) (bool, error) { return false, fail() }
				returned := make(chan error, 1)
				go func() {
					_, err := g.Create(context.Background(), "c", bootSpec(code))
					returned <- err
				}()
				time.Sleep(5 * time.Second)
				require.Len(t, returned, 1, "%s, %s", name, how)
				require.ErrorIs(t, <-returned, sandbox.ErrStart)
				require.Zero(t, f.live(), "%s, %s", name, how)
				time.Sleep(2 * time.Hour) // until goroutines that make texts are gone
			})
		}
	}
}

// A capsule that loses its node goes to the engine that the gateway names as its owner, and to no other engine.
func TestGatewayOwner(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 9, 0)
	f.host("b", 9, 0, 0)
	g := f.gateway()
	g.Owner = "again"
	f.create(g, "c")
	commit(t, f.ledger, orbit.PutNode{Node: orbit.Node{ID: "a", State: orbit.Cordoned}})
	commit(t, f.ledger, orbit.Release{Capsule: "c"})
	passer := f.warmEngine()
	require.Zero(t, passer.Pass(context.Background()).Pending)
	again := f.warmEngine()
	again.Name = "again"
	require.Equal(t, 1, again.Pass(context.Background()).Committed)
	require.Equal(t, "b cold", f.noteOf("c"))
}

// Where reports come from afar, the board here may know less than they say: then what they promise counts.
func TestGatewayReadsTelemetryFromAfar(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 2, 0)
	g := &sandbox.Gateway{Ledger: f.ledger, Board: &telemetry.Board{}, Telemetry: f.board}
	for i := range 3 {
		require.Equal(t, i < 2, f.create(g, fmt.Sprint("c", i)).Promised, "create %d", i)
	}
	bare := &sandbox.Gateway{Ledger: f.ledger, Telemetry: f.board, Cache: -1}
	for i := range 3 {
		require.True(t, f.create(bare, fmt.Sprint("d", i)).Promised, "nothing is claimed, and each view is new")
	}
	alone := &sandbox.Gateway{Ledger: f.ledger}
	require.False(t, f.create(alone, "e").Promised)
}

// A create that fails undoes its own capsule alone, though another create may have the id by then: a client that gave up,
// deleted the sandbox and created it again through another gateway keeps it.
func TestGatewayUndoesItsOwnCapsuleAlone(t *testing.T) {
	for name, fails := range map[string][]int{"in the first start": {0}, "in the second start": {1}, "in both": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.host("a", 9, 5, 0)
			f.host("b", 9, 3, 0)
			mine, starts := f.gateway(), 0
			var again sandbox.Created
			mine.Start = func(_ context.Context, c sandbox.Created) (bool, error) {
				if slices.Contains(fails, starts) {
					other := f.gateway()
					require.NoError(t, other.Delete(context.Background(), "one"))
					again = f.create(other, "one")
				}
				starts++
				return false, errors.New("it hangs")
			}
			_, err := mine.Create(context.Background(), "one", bootSpec(code))
			require.ErrorIs(t, err, sandbox.ErrStart)
			require.NotErrorIs(t, err, sandbox.ErrLeftBehind)
			c := snapshot(t, f.ledger).Capsule("one")
			require.False(t, c.Released())
			require.Equal(t, again.Node, c.Node)
			require.Equal(t, again.Revision, c.PlacedAt)
		})
	}
}
