package agent_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
)

// calls counts the requests that have come to a control process.
func (w *world) calls(n int) int { return int(w.controls[n].remote.calls.Load()) }

// unharmed requires that no node was cordoned or lost, that no agent was fenced, that nothing was started twice, and that what is
// placed runs.
func (w *world) unharmed(capsules int) {
	w.Helper()
	w.atRest()
	changes, err := w.ledger.Changes(w.ctx, 0)
	require.NoError(w, err)
	for _, c := range changes {
		if put, ok := c.Do.(orbit.PutNode); ok {
			require.Equal(w, orbit.Ready, put.Node.State, "%s at revision %d", put.Node.ID, c.Revision)
		}
	}
	for _, h := range w.hosts {
		for _, err := range h.told() {
			require.NotErrorIs(w, err, agent.ErrFenced)
		}
	}
	_, starts, _ := w.books.read()
	require.Len(w, starts, capsules)
	for id, n := range starts {
		require.Equal(w, 1, n, id)
	}
}

// heard requires that the boards of all control processes at work have fresh reports of all nodes.
func (w *world) heard() {
	w.Helper()
	for n, c := range w.controls {
		for _, h := range w.hosts {
			if c.stop == nil {
				continue
			}
			r, ok := c.local.Board.Latest(h.id)
			require.True(w, ok && !r.Expired && time.Since(r.Received) < 5*sec, "control %d has heard of %s: %v, %v ago", n, h.id, ok, time.Since(r.Received))
		}
	}
}

// Agents are divided over two control processes. Each of them is killed, suspended and started again in turn. No node is taken for lost,
// what runs runs on, and what waits is placed by the other process.
func TestOneOfTwoControls(t *testing.T) {
	for name, test := range map[string]struct{ fall, rise func(w *world, n int) }{
		"killed":    {func(w *world, n int) { w.killControl(n) }, func(w *world, n int) { w.startControl(n) }},
		"suspended": {func(w *world, n int) { w.controls[n].gate.pause(true) }, func(w *world, n int) { w.controls[n].gate.pause(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := beginShared(t, 4, true, 2)
				w.commit(orbit.Submit{IDs: ids("a", 6), Spec: spec(orbit.LatencySensitive, 1, 0)})
				w.pass(10 * sec)
				w.unharmed(6)
				w.heard()
				require.Positive(t, min(w.calls(0), w.calls(1)), "both are used")
				for round := range 4 {
					fallen := round % 2
					test.fall(w, fallen)
					w.pass(sec)
					w.commit(orbit.Submit{IDs: ids([]string{"b", "c", "d", "e"}[round], 2), Spec: spec(orbit.LatencySensitive, 1, 0)})
					w.pass(15 * sec)
					w.unharmed(6 + 2*round + 2)
					test.rise(w, fallen)
					w.pass(15 * sec)
					w.unharmed(6 + 2*round + 2)
					w.heard()
				}
			})
		})
	}
}

// A control process to which no agent reports places work, because the other one has told it of all nodes, and takes no node for lost.
func TestControlWithoutAgents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := beginShared(t, 3, true, 2)
		w.killControl(1) // all agents go to the other one, and stay there
		w.pass(10 * sec)
		w.startControl(1)
		w.pass(time.Minute)
		before := w.calls(1)
		w.heard()
		w.commit(orbit.Submit{IDs: ids("a", 3), Spec: spec(orbit.LatencySensitive, 1, 0)})
		w.pass(10 * sec)
		require.Equal(t, before, w.calls(1))
		w.unharmed(3)
	})
}

// Every other answer is lost after the call had its effect, so that the agent says everything again to the other process. Each statement
// takes effect once: a failure of a capsule is counted once.
func TestSaidToTwoControls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := beginShared(t, 2, true, 2)
		var calls atomic.Int64
		for _, c := range w.controls {
			c.remote.loseBy(func() bool { return calls.Add(1)%2 == 0 })
		}
		w.commit(orbit.Submit{IDs: ids("a", 3), Spec: spec(orbit.LatencySensitive, 1, 0), Labels: map[string]string{"for": "30s", "fails": ""}})
		w.commit(orbit.Submit{IDs: ids("b", 3), Spec: spec(orbit.Batch, 1, 0), Labels: map[string]string{"for": "20s"}})
		w.pass(55 * sec)
		w.sound()
		_, starts, done := w.books.read()
		for _, id := range ids("a", 3) {
			require.Equal(t, 2, starts[id], id)
			require.Equal(t, 1, w.state().Failures(id).Attempts, id)
		}
		for _, id := range ids("b", 3) {
			require.Equal(t, 1, starts[id], id)
			require.Equal(t, 1, done[id], id)
			require.True(t, w.state().Capsule(id) == nil || w.state().Capsule(id).Released(), id)
		}
		for _, h := range w.hosts {
			for _, err := range h.told() {
				require.NotErrorIs(t, err, agent.ErrFenced)
			}
		}
	})
}

// Two or three control processes are killed, suspended, started and resumed at random, at least one of them being at work at any time. No
// node is taken for lost, what runs runs on, and what waits is placed.
func TestOneControlIsEnough(t *testing.T) {
	type blow struct {
		what    string
		control int
		after   time.Duration
	}
	rapid.Check(t, func(t *rapid.T) {
		controls := rapid.IntRange(2, 3).Draw(t, "controls")
		up := slices.Repeat([]bool{true}, controls)
		var blows []blow
		for range rapid.IntRange(1, 12).Draw(t, "blows") {
			n := rapid.IntRange(0, controls-1).Draw(t, "control")
			b := blow{control: n, after: time.Duration(rapid.IntRange(4, 20).Draw(t, "after")) * sec}
			if b.what = "rise"; up[n] {
				b.what = rapid.SampledFrom([]string{"kill", "pause"}).Draw(t, "what")
			}
			if up[n] = !up[n]; slices.Contains(up, true) {
				blows = append(blows, b)
			} else {
				up[n] = true
			}
		}
		rapid.SyncTest(t, func(t *rapid.T) {
			w := beginShared(t, 4, true, controls)
			w.commit(orbit.Submit{IDs: ids("a", 4), Spec: spec(orbit.LatencySensitive, 1, 0)})
			w.pass(10 * sec)
			w.unharmed(4)
			for n, b := range blows {
				switch b.what {
				case "kill":
					w.killControl(b.control)
				case "pause":
					w.controls[b.control].gate.pause(true)
				default:
					w.controls[b.control].gate.pause(false)
					w.startControl(b.control)
				}
				w.commit(orbit.Submit{IDs: ids(fmt.Sprint("b", n, "-"), 1), Spec: spec(orbit.LatencySensitive, 1, 0)})
				w.pass(b.after)
			}
			w.pass(15 * sec)
			w.unharmed(4 + len(blows))
		})
	})
}
