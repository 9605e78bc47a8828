package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
	"github.com/orbitsched/orbit/watch"
)

// A service is begun, started and ready; a batch capsule is done and released for good; one that fails is tried again.
func TestLife(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 2, false)
		w.commit(orbit.Submit{IDs: ids("web-", 3), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.commit(orbit.Submit{IDs: ids("job-", 3), Spec: spec(orbit.Batch, 1, 0), Labels: map[string]string{"for": "2s"}})
		w.commit(orbit.Submit{IDs: ids("bad-", 1), Spec: spec(orbit.Batch, 1, 0), Labels: map[string]string{"for": "100ms", "fails": ""}})
		w.pass(sec)
		for _, id := range append(ids("web-", 3), ids("job-", 3)...) {
			c := w.state().Capsule(id)
			require.True(t, c.Begun && c.Ready, id)
			require.NotEqual(t, -1, w.at(id), id)
		}
		w.pass(4 * sec)
		for _, id := range ids("job-", 3) {
			require.True(t, w.state().Capsule(id).Released(), id)
		}
		w.pass(time.Minute)
		require.Equal(t, 2, w.confirmed("web-0"), "Begun and Ready")
		require.Equal(t, 3, w.confirmed("job-0"), "Begun, Ready and Stopped")
		_, starts, done := w.books.read()
		require.Equal(t, map[orbit.CapsuleID]int{"job-0": 1, "job-1": 1, "job-2": 1}, done)
		require.Equal(t, 1, starts["web-0"])
		require.Greater(t, starts["bad-0"], 4)
		require.Less(t, starts["bad-0"], 20, "each start on a node waits twice as long as the one before")
		w.commit(orbit.Release{Capsule: "bad-0", Final: true})
		w.pass(5 * sec)
		w.atRest()
		for _, h := range w.hosts {
			require.Empty(t, h.told())
			require.Len(t, h.procs, len(h.running()), "what has ended is forgotten")
		}
	})
}

// What is released for good is stopped, and its id is not used before that: the new bearer starts when the former one has stopped.
func TestReleasedAndSubmittedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 2, false)
		w.commit(orbit.Submit{IDs: ids("db-", 1), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.pass(sec)
		for range 5 {
			w.commit(orbit.Release{Capsule: "db-0", Final: true}, orbit.Submit{IDs: ids("db-", 1), Spec: spec(orbit.LatencySensitive, 2, 0)})
			w.pass(500 * ms)
			require.False(t, w.state().Capsule("db-0").Begun, "the former db-0 takes a second to stop")
			w.pass(2 * sec)
			w.atRest()
		}
		_, starts, _ := w.books.read()
		require.Equal(t, 6, starts["db-0"])
	})
}

// A drained capsule starts on its new node when it has stopped on the old one.
func TestDrained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 3, false)
		w.commit(orbit.Submit{IDs: ids("web-", 6), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.pass(2 * sec)
		for range 4 {
			for n := range w.hosts {
				w.drain(n, true)
				w.pass(200 * ms)
				w.pass(5 * sec)
				require.Empty(t, w.hosts[n].running())
				w.atRest()
				w.drain(n, false)
			}
		}
	})
}

// An evicted capsule makes way first, and starts elsewhere, or again, when it has stopped.
func TestEvicted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 2, false)
		w.commit(orbit.Submit{IDs: ids("low-", 8), Spec: spec(orbit.Batch, 1, 0)})
		w.pass(2 * sec)
		for range 5 {
			w.commit(orbit.Submit{IDs: ids("high-", 2), Spec: spec(orbit.LatencySensitive, 2, 100)})
			w.pass(500 * ms)
			require.Equal(t, -1, w.at("high-0"), "what makes way takes a second to stop")
			w.pass(3 * sec)
			w.sound()
			require.NotEqual(t, -1, w.at("high-0"))
			require.Equal(t, 4, w.state().PendingCount())
			w.commit(orbit.Release{Capsule: "high-0", Final: true}, orbit.Release{Capsule: "high-1", Final: true})
			w.pass(4 * sec)
			w.atRest()
		}
		_, starts, _ := w.books.read()
		sum := 0
		for _, id := range ids("low-", 8) {
			sum += starts[id]
		}
		require.Equal(t, 8+5*4, sum)
	})
}

// A node that is cut off stops everything before others begin that, and comes back empty.
func TestFenced(t *testing.T) {
	for _, withWatchdog := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := begin(t, 2, withWatchdog)
			w.commit(orbit.Submit{IDs: ids("web-", 4), Spec: spec(orbit.LatencySensitive, 1, 0)})
			w.pass(2 * sec)
			w.hosts[0].link.set(func(l *link) { l.cut = true })
			w.pass(fence - stopping - sec - ms)
			require.Len(t, w.hosts[0].running(), 2, "its time is not over: its last report was sent less than a second before the cut")
			w.pass(sec + sec + ms)
			require.Empty(t, w.hosts[0].running())
			require.Len(t, w.hosts[1].running(), 2, "the others wait until the node is lost")
			w.pass(stopping + sec)
			require.Len(t, w.hosts[1].running(), 4)
			w.sound()
			w.hosts[0].link.set(func(l *link) { l.cut = false })
			w.pass(5 * sec)
			w.commit(orbit.Submit{IDs: ids("more-", 4), Spec: spec(orbit.LatencySensitive, 1, 0)})
			w.pass(3 * sec)
			require.Len(t, w.hosts[0].running(), 4, "it takes work again")
			w.atRest()
			fenced := 0
			for _, err := range w.hosts[0].told() {
				if errors.Is(err, agent.ErrFenced) {
					fenced++
				}
			}
			require.Equal(t, 1, fenced)
		})
	}
}

// An agent that is suspended after its Begun was committed does not start the capsule when it goes on, because others have begun that.
func TestSuspendedBeforeStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 2, true)
		w.kill(1)
		leave := w.hosts[0].enter()
		w.hosts[0].resumes = time.Now().Add(200 * ms) // so that Start has no effect before what comes now
		leave()
		w.commit(orbit.Submit{IDs: ids("web-", 1), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.pass(100 * ms)
		require.True(t, w.state().Capsule("web-0").Begun)
		w.hosts[0].suspendFor(40 * sec)
		w.start(1)
		w.pass(30 * sec)
		require.Equal(t, 1, w.at("web-0"))
		w.pass(time.Minute)
		w.atRest()
		_, starts, _ := w.books.read()
		require.Equal(t, 1, starts["web-0"])
	})
}

// A node that is cut off for less than that keeps everything, though its term has ended.
func TestShortCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 2, false)
		w.commit(orbit.Submit{IDs: ids("web-", 4), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.pass(2 * sec)
		w.hosts[0].link.set(func(l *link) { l.cut = true })
		w.pass(ttl + sec)
		require.Equal(t, orbit.Cordoned, w.state().Node("n0").Node.State)
		w.hosts[0].link.set(func(l *link) { l.cut = false })
		w.pass(5 * sec)
		require.Equal(t, orbit.Ready, w.state().Node("n0").Node.State)
		w.atRest()
		_, starts, _ := w.books.read()
		require.Equal(t, map[orbit.CapsuleID]int{"web-0": 1, "web-1": 1, "web-2": 1, "web-3": 1}, starts)
	})
}

// A watchdog stops everything though the agent is dead. Without one the capsules run twice, which shows that the books see it.
func TestDeadAgent(t *testing.T) {
	for _, withWatchdog := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			w := begin(t, 2, withWatchdog)
			w.commit(orbit.Submit{IDs: ids("web-", 4), Spec: spec(orbit.LatencySensitive, 1, 0)})
			w.pass(2 * sec)
			w.kill(0)
			w.pass(time.Minute)
			require.Len(t, w.hosts[1].running(), 4)
			faults, _, _ := w.books.read()
			require.Equal(t, withWatchdog, len(faults) == 0, "%v", faults)
			w.start(0)
			w.pass(5 * sec)
			require.Empty(t, w.hosts[0].running())
			require.Equal(t, orbit.Ready, w.state().Node("n0").Node.State)
		})
	}
}

// An agent that is started anew goes on with what runs, and says Stopped of what does not.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 2, false)
		w.commit(orbit.Submit{IDs: ids("web-", 8), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.pass(2 * sec)
		w.kill(0)
		w.pass(2 * sec)
		w.start(0)
		w.pass(2 * sec)
		w.atRest()
		_, starts, _ := w.books.read()
		for _, id := range ids("web-", 8) {
			require.Equal(t, 1, starts[id])
		}
		was := w.hosts[0].running()
		w.kill(0)
		w.hosts[0].reboot()
		w.pass(sec)
		w.start(0)
		w.pass(5 * sec)
		w.atRest()
		_, starts, _ = w.books.read()
		for _, id := range was {
			require.Equal(t, 2, starts[id], "it was said to be stopped, placed and started again")
		}
	})
}

// The successor of an agent that has crashed goes on with what runs, although it has to wait until it may join, and
// although without a watchdog it does not know when the last report was sent.
func TestRestartAfterACrash(t *testing.T) {
	for _, withWatchdog := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := begin(t, 2, withWatchdog)
			w.commit(orbit.Submit{IDs: ids("web-", 8), Spec: spec(orbit.LatencySensitive, 1, 0)})
			w.pass(2 * sec)
			was := w.hosts[0].running()
			w.crash(0)
			w.start(0)
			w.pass(ttl / 4)
			w.commit(orbit.Release{Capsule: was[0], Final: true})
			w.pass(ttl/2 - ttl/4 - 2*sec)
			require.Equal(t, was, w.hosts[0].running(), "it may not stop anything before it has joined")
			w.pass(4 * sec)
			require.Equal(t, was[1:], w.hosts[0].running())
			w.atRest()
			_, starts, _ := w.books.read()
			for _, id := range ids("web-", 8) {
				require.Equal(t, 1, starts[id])
			}
			require.Empty(t, w.hosts[0].told())
		})
	}
}

// Of two agents with one node id the first one has the node, and the second one is told why it has not. Another machine
// gets the node when all that the first one has left running has stopped; another agent of the same machine at once if
// the first one has ended, and soon if it has crashed.
func TestTwins(t *testing.T) {
	for _, test := range []struct {
		name    string
		machine string
		end     func(w *world, n int)
		waits   time.Duration // from the end to the time at which the other agent has joined
		told    error
	}{
		{"another machine, ends", "other", (*world).kill, fence, lease.ErrHeld},
		{"another machine, crashes", "other", (*world).crash, fence, lease.ErrHeld},
		{"another machine, is cut off", "other", func(w *world, n int) { w.hosts[n].link.set(func(l *link) { l.cut = true }) }, fence, lease.ErrHeld},
		{"the same machine, ends", "", (*world).kill, 0, lease.ErrRunning},
		{"the same machine, crashes", "", (*world).crash, ttl / 2, lease.ErrRunning},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := begin(t, 1, true)
				w.commit(orbit.Submit{IDs: ids("web-", 2), Spec: spec(orbit.LatencySensitive, 1, 0)})
				w.pass(2 * sec)
				twin := w.newHost("n0")
				if twin.name = test.machine; test.machine == "" { // one runtime, as the agents of one machine have
					twin.machine, twin.runtime = w.hosts[0].machine, w.hosts[0].runtime
				}
				w.start(1)
				term, _ := w.local.Members.Leases.In(w.state(), "n0")
				w.pass(time.Minute)
				now, _ := w.local.Members.Leases.In(w.state(), "n0")
				require.Equal(t, term, now, "the first agent keeps its node")
				require.NotEmpty(t, twin.told())
				require.ErrorIs(t, twin.told()[0], test.told)
				require.Empty(t, w.hosts[0].told())
				w.sound()

				test.end(w, 0)
				joined := func() bool {
					now, live := w.local.Members.Leases.In(w.state(), "n0")
					return live && now.Holder != term.Holder
				}
				if test.waits > 0 {
					w.pass(test.waits - 2*sec)
					require.False(t, joined())
				}
				if w.pass(sec); test.waits > 0 {
					w.pass(3 * sec)
				}
				require.True(t, joined())
				w.pass(4 * sec)
				w.sound()
				require.Len(t, twin.running(), 2)
			})
		})
	}
}

// The clock of a node may be wrong, and may be set: nothing depends on it.
func TestTheClockOfANodeIsWrong(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, -31 * sec, 11 * sec, time.Hour} {
		bubble(t, func(t *testing.T) {
			w := begin(t, 1, false)
			skewed := &wrongClock{Control: w.hosts[0].link.to}
			skewed.off.Store(int64(off))
			w.hosts[0].link.set(func(l *link) { l.to = skewed })
			w.commit(orbit.Submit{IDs: ids("web-", 2), Spec: spec(orbit.LatencySensitive, 1, 0)})
			for range 4 {
				w.pass(time.Minute)
				w.atRest()
				require.Equal(t, orbit.Ready, w.state().Node("n0").Node.State)
				skewed.off.Store(skewed.off.Load() / -2)
			}
			term, _ := w.local.Members.Leases.In(w.state(), "n0")
			require.Less(t, term.Epoch, orbit.Revision(5), "it has had one term")
		})
	}
}

// wrongClock is a control as an agent reaches it whose clock is off.
type wrongClock struct {
	agent.Control
	off atomic.Int64
}

func (c *wrongClock) Report(ctx context.Context, r orbit.Report) error {
	r.At = r.At.Add(time.Duration(c.off.Load()))
	return c.Control.Report(ctx, r)
}

// An agent whose answers are lost sends again, and starts everything once.
func TestLostAnswers(t *testing.T) {
	for loses := 2; loses < 6; loses++ {
		bubble(t, func(t *testing.T) {
			w := begin(t, 2, false)
			for _, h := range w.hosts {
				h.link.set(func(l *link) { l.loses = loses })
			}
			w.commit(orbit.Submit{IDs: ids("web-", 4), Spec: spec(orbit.LatencySensitive, 1, 0)})
			w.commit(orbit.Submit{IDs: ids("job-", 4), Spec: spec(orbit.Batch, 1, 0), Labels: map[string]string{"for": "2s"}})
			w.pass(time.Minute)
			for _, h := range w.hosts {
				h.link.set(func(l *link) { l.loses = 0 })
			}
			w.pass(time.Minute)
			w.atRest()
			_, starts, done := w.books.read()
			require.Len(t, starts, 8)
			changes, err := w.ledger.Changes(w.ctx, 0)
			require.NoError(t, err)
			for _, c := range changes {
				back, ok := c.Do.(orbit.Release)
				require.True(t, !ok || back.Final, "%v returns to pending, though its Begun was committed", back)
			}
			for id, n := range starts {
				require.Equal(t, 1, n, id)
			}
			require.Len(t, done, 4)
		})
	}
}

// A start that fails, or a runtime that panics, is told; the capsule returns to pending and runs when the runtime works.
func TestBrokenRuntime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 1, false)
		h := w.hosts[0]
		broken := errors.New("no image")
		h.breakBy(broken, false)
		w.commit(orbit.Submit{IDs: ids("web-", 1), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.pass(20 * sec)
		require.NotEmpty(t, h.told())
		require.Less(t, len(h.told()), 10)
		require.ErrorIs(t, h.told()[0], broken)
		h.breakBy(nil, true)
		w.pass(time.Minute)
		require.ErrorContains(t, h.told()[len(h.told())-1], "as told")
		h.breakBy(nil, false)
		w.pass(2 * time.Minute)
		w.atRest()
		require.Len(t, h.running(), 1)
	})
}

// Beside two good nodes, work leaves a node on which every start fails within three attempts, and no more work goes there while the others have
// room; the ledger says when and where each failed.
func TestAFailingNodeBesideTwoGoodOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 3, false)
		w.hosts[0].breakBy(errors.New("no image"), false)
		for i := range 7 {
			w.commit(orbit.Submit{IDs: ids(fmt.Sprint("web-", i, "-"), 1), Spec: spec(orbit.LatencySensitive, 1, 0)})
			w.pass(3 * sec)
		}
		w.atRest()
		require.Empty(t, w.hosts[0].running())
		failed := 0
		for c := range w.state().Capsules() {
			f := w.state().Failures(c.ID)
			require.LessOrEqual(t, f.Attempts, 2, c.ID)
			failed += f.Attempts
		}
		require.Positive(t, failed)
		require.Less(t, failed, 7)
	})
}

// Another party lets a capsule grow before the agent of its node has begun what was placed beside it, so that the node is
// overfull. The placements that came first run;
// the one that came last is given back, and runs elsewhere as soon as there is room: once, whether answers are lost or not.
func TestGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		loses int  // one in this many answers to n0 is lost
		full  bool // there is no room elsewhere at first
	}{
		"at once":            {},
		"when there is room": {full: true},
		"lost answers":       {loses: 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := begin(t, 2, true)
				if test.full {
					w.put(1, orbit.Cordoned)
				}
				n0 := w.hosts[0]
				put := func(id orbit.CapsuleID, cores int64) {
					w.commit(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(orbit.LatencySensitive, cores, 0)}, orbit.Place{Capsule: id, Node: "n0"})
				}
				put("x", 1)
				w.pass(2 * sec)
				n0.link.set(func(l *link) { l.cut = true })
				put("c0", 1)
				put("c1", 2)
				w.commit(orbit.Respec{Capsule: "x", Since: w.state().Capsule("x").PlacedAt, Spec: spec(orbit.LatencySensitive, 3, 0), Applied: true})
				n0.link.set(func(l *link) { l.cut, l.loses = false, test.loses })
				if w.pass(5 * sec); test.full {
					require.Equal(t, []orbit.CapsuleID{"c0", "x"}, n0.running())
					require.True(t, w.state().Capsule("c1").Pending())
					w.put(1, orbit.Ready)
				}
				w.pass(15 * sec)
				n0.link.set(func(l *link) { l.loses = 0 })
				w.pass(5 * sec)
				require.Equal(t, []int{0, 1, 0}, []int{w.at("c0"), w.at("c1"), w.at("x")})
				_, starts, done := w.books.read()
				require.Equal(t, map[orbit.CapsuleID]int{"c0": 1, "c1": 1, "x": 1}, starts)
				require.Empty(t, done)
				require.Zero(t, w.state().Failures("c1").Attempts, "it has not failed")
				w.atRest()
			})
		})
	}
}

// The ledger says when a capsule failed, not when it was placed.
func TestTheTimeOfAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 1, false)
		w.commit(orbit.Submit{IDs: ids("web-", 1), Spec: spec(orbit.LatencySensitive, 1, 0), Labels: map[string]string{"for": "1h", "fails": ""}})
		w.pass(sec)
		began := time.Now()
		w.pass(time.Hour + 2*sec)
		failed := w.state().Failures(ids("web-", 1)[0])
		require.Equal(t, 1, failed.Attempts)
		require.WithinDuration(t, began.Add(time.Hour), failed.Nodes[0].At.Time(), 2*sec)
	})
}

// An operator who puts a node as lost has everything on it stopped, and the node joins anew when it is. What others have begun
// meanwhile is the operator's fault.
func TestPutAsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 1, false)
		w.commit(orbit.Submit{IDs: ids("web-", 2), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.pass(2 * sec)
		node := *w.state().Node("n0").Node
		node.State = orbit.Lost
		w.commit(orbit.PutNode{Node: node})
		w.pass(10 * sec)
		require.Equal(t, orbit.Ready, w.state().Node("n0").Node.State)
		w.atRest()
		require.Len(t, w.hosts[0].running(), 2)
	})
}

// Without a watchdog suspended agents double work; the agent says so once, when it begins, unless it is told that this is
// acceptable.
func TestUnguarded(t *testing.T) {
	for _, test := range []struct {
		guarded, acceptable bool
		told                int
	}{{false, false, 1}, {false, true, 0}, {true, false, 0}} {
		bubble(t, func(t *testing.T) {
			w := begin(t, 1, test.guarded)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var told []error
			a := &agent.Agent{
				Control: w.local, Runtime: w.hosts[0].runtime, Node: orbit.Node{ID: "m"}, Every: sec, Stopping: stopping, Unguarded: test.acceptable,
				OnError: func(err error) { told = append(told, err) },
			}
			done := make(chan error)
			go func() { done <- a.Run(ctx) }()
			w.pass(time.Minute)
			cancel()
			require.NoError(t, <-done)
			require.Len(t, told, test.told)
			for _, err := range told {
				require.ErrorIs(t, err, agent.ErrUnguarded)
			}
		})
	}
}

// An agent that reports to another process each time is healthy, and so is a process that does not know that its term was
// refreshed elsewhere: neither is an error.
func TestReportsToOneProcessAfterTheOther(t *testing.T) {
	for _, every := range []time.Duration{sec, 2 * sec, 2500 * ms} {
		bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer cancel()
			ledger := &orbit.MemoryLedger{}
			both := &inTurn{locals: twoProcesses(ctx, &group, ledger)}
			var told []error
			a := &agent.Agent{
				Control: both, Runtime: guarded{&machine{books: &books{}}}, Node: orbit.Node{ID: "n"}, Every: every, Stopping: sec,
				OnError: func(err error) { told = append(told, err) },
			}
			group.Go(func() { _ = a.Run(ctx) })
			time.Sleep(10 * sec)
			state, _ := ledger.Snapshot(ctx)
			first, live := both.locals[0].Members.Leases.In(state, "n")
			require.True(t, live)
			time.Sleep(10 * time.Minute)
			state, _ = ledger.Snapshot(ctx)
			last, _ := both.locals[0].Members.Leases.In(state, "n")
			require.Equal(t, first, last)
			require.Empty(t, told)
		})
	}
}

// A report to a process that does not know yet that the term was refreshed elsewhere is answered when the process knows.
func TestAReportWaitsUntilTheTermIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		locals := twoProcesses(ctx, &group, &orbit.MemoryLedger{})
		got, err := locals[0].Join(ctx, orbit.Node{ID: "n"}, "machine#1")
		require.NoError(t, err)
		report := func(to *agent.Local, term orbit.Revision) error {
			return to.Report(ctx, orbit.Report{Node: "n", At: time.Now(), Term: term})
		}
		for range 10 {
			require.NoError(t, report(locals[1], got.Term))
			time.Sleep(ttl - ttl/6)
			require.NoError(t, report(locals[0], got.Term))
			time.Sleep(ttl - ttl/6)
		}
		start := time.Now()
		require.ErrorIs(t, report(locals[0], 1000), lease.ErrUnheard)
		require.Less(t, time.Since(start), 2*sec, "it does not wait for ever")
	})
}

// twoProcesses runs two control processes on one ledger that share refreshes.
func twoProcesses(ctx context.Context, group *sync.WaitGroup, ledger orbit.Ledger) (out []*agent.Local) {
	shared := &tokens{until: map[string]time.Time{}}
	for range 2 {
		m := &lease.Members{Leases: &lease.Keeper{Ledger: ledger, Refreshes: shared, TTL: ttl}, Gone: gone}
		local := &agent.Local{Ledger: ledger, Members: m, Board: &telemetry.Board{Leases: m.Leases}, Index: &watch.Index{Ledger: ledger}}
		out = append(out, local)
		group.Go(func() { _ = m.Run(ctx) })
		group.Go(func() { _ = local.Index.Run(ctx) })
	}
	return out
}

// inTurn is a control that gives each report to another process.
type inTurn struct {
	locals []*agent.Local
	agent.Control
	n atomic.Int32
}

func (c *inTurn) next() *agent.Local { return c.locals[int(c.n.Add(1))%len(c.locals)] }
func (c *inTurn) Join(ctx context.Context, node orbit.Node, holder string) (agent.Lease, error) {
	return c.next().Join(ctx, node, holder)
}
func (c *inTurn) Leave(ctx context.Context, node orbit.NodeID, term orbit.Revision) error {
	return c.next().Leave(ctx, node, term)
}
func (c *inTurn) Report(ctx context.Context, r orbit.Report) error { return c.next().Report(ctx, r) }
func (c *inTurn) Watch(ctx context.Context, node orbit.NodeID, after orbit.Revision) (agent.Work, error) {
	return c.locals[0].Watch(ctx, node, after)
}

// tokens is a lease.Refreshes in memory.
type tokens struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (s *tokens) Begin(_ context.Context, ttl time.Duration) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := fmt.Sprint("token-", len(s.until))
	s.until[token] = time.Now().Add(ttl)
	return token, nil
}

func (s *tokens) Keep(_ context.Context, tokens []string) ([]time.Duration, error) {
	return s.left(tokens, true), nil
}
func (s *tokens) Left(_ context.Context, tokens []string) ([]time.Duration, error) {
	return s.left(tokens, false), nil
}

func (s *tokens) left(tokens []string, keep bool) (out []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range tokens {
		left := max(0, time.Until(s.until[token]))
		if keep && left > 0 {
			left = ttl
			s.until[token] = time.Now().Add(ttl)
		}
		out = append(out, left)
	}
	return out
}

// What is wrong with the settings is said.
func TestSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 1, false)
		require.ErrorIs(t, (&agent.Agent{}).Run(t.Context()), orbit.ErrInvalid)
		long := &agent.Agent{Control: w.local, Runtime: w.hosts[0].machine, Node: orbit.Node{ID: "other"}, Stopping: fence}
		err := long.Run(t.Context())
		require.ErrorIs(t, err, orbit.ErrInvalid)
		require.ErrorContains(t, err, "12s after a report")
		run := &agent.Agent{Control: w.local, Runtime: w.hosts[0].machine, Node: orbit.Node{ID: "other"}, Machine: "a#b"}
		require.ErrorContains(t, run.Run(t.Context()), "must not contain")
		var nothing agent.Local
		require.ErrorIs(t, nothing.Leave(t.Context(), "n", 1), orbit.ErrInvalid)
		_, err = nothing.Join(t.Context(), orbit.Node{ID: "n"}, "me")
		require.ErrorIs(t, err, orbit.ErrInvalid)
		_, err = nothing.Watch(t.Context(), "n", 0)
		require.ErrorIs(t, err, orbit.ErrInvalid)
		require.ErrorIs(t, nothing.Report(t.Context(), orbit.Report{}), orbit.ErrInvalid)
		require.ErrorIs(t, nothing.Confirm(t.Context(), "n", 1, make([]agent.Statement, 1))[0].Err, orbit.ErrInvalid)
		_, err = w.local.Join(t.Context(), orbit.Node{ID: "n0"}, "another agent")
		require.ErrorIs(t, err, lease.ErrHeld)
	})
}

// No agent speaks for another node, under another term, or of a placement that is gone.
func TestConfirmRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 2, false)
		w.kill(0)
		w.kill(1)
		w.commit(orbit.Submit{IDs: ids("web-", 1), Spec: spec(orbit.LatencySensitive, 1, 0)}, orbit.Place{Capsule: "web-0", Node: "n0"})
		c := w.state().Capsule("web-0")
		term := func(n string) orbit.Revision {
			live, ok := w.local.Members.Leases.Live(n)
			require.True(t, ok)
			return live.Epoch
		}
		say := func(node orbit.NodeID, term orbit.Revision, since orbit.Revision, fact agent.Fact) error {
			s := agent.Statement{ID: orbit.NewProposalID(), Instance: agent.Instance{Capsule: "web-0", Since: since}, Fact: fact}
			return w.local.Confirm(t.Context(), node, term, []agent.Statement{s})[0].Err
		}
		require.ErrorIs(t, say("n1", term("n1"), c.PlacedAt, agent.Begun), orbit.ErrConflict)
		require.ErrorIs(t, say("n0", term("n0"), c.PlacedAt-1, agent.Begun), orbit.ErrConflict)
		require.ErrorIs(t, say("n0", term("n0"), c.PlacedAt, "dances"), orbit.ErrInvalid)
		require.Error(t, say("n0", term("n0")-1, c.PlacedAt, agent.Begun))
		require.NoError(t, say("n0", term("n0"), c.PlacedAt, agent.Begun))
		require.NoError(t, say("n0", term("n0"), c.PlacedAt, agent.Serves))
		require.NoError(t, say("n0", term("n0"), c.PlacedAt, agent.NotReady))
		require.NoError(t, say("n0", term("n0"), c.PlacedAt, agent.Finished))
		require.True(t, w.state().Capsule("web-0").Released())
		require.Nil(t, w.state().Capsule("web-0").Remains())
	})
}

// behind is a control whose work reaches an agent late.
type behind struct {
	agent.Control
	by time.Duration
}

func (b behind) Watch(ctx context.Context, node orbit.NodeID, after orbit.Revision) (agent.Work, error) {
	w, err := b.Control.Watch(ctx, node, after)
	time.Sleep(b.by)
	return w, err
}

// What is made smaller before it begins is not started with the size that it had when the agent last looked: another has that room by now.
func TestMadeSmallerBeforeItBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 1, false)
		w.kill(0)
		w.hosts[0].link.to = behind{w.hosts[0].link.to, 500 * ms}
		w.start(0)
		for i := range 10 { // at all moments of a call of Watch
			w.pass(3*sec + time.Duration(i)*150*ms)
			a, b := orbit.CapsuleID(fmt.Sprint("a-", i)), orbit.CapsuleID(fmt.Sprint("b-", i))
			w.commit(orbit.Submit{IDs: []orbit.CapsuleID{a}, Spec: spec(orbit.LatencySensitive, 3, 0)})
			w.pass(250 * ms)
			c := w.state().Capsule(a)
			require.True(t, c.Placed() && !c.Begun)
			w.commit(orbit.Respec{Capsule: a, Since: c.PlacedAt, Spec: spec(orbit.LatencySensitive, 1, 0)})
			w.commit(orbit.Submit{IDs: []orbit.CapsuleID{b}, Spec: spec(orbit.LatencySensitive, 3, 0)})
			w.pass(10 * sec)
			w.atRest()
			require.Len(t, w.hosts[0].running(), 2)
			w.commit(orbit.Release{Capsule: a, Final: true}, orbit.Release{Capsule: b, Final: true})
		}
	})
}
