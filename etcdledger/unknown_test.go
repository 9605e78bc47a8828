package etcdledger

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// Wherever an answer is lost, the proposal is committed once, and the caller learns its revision.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for name, fates := range map[string][]fault{
		"before":           {{lostBefore, 0}},
		"after":            {{lostAfter, 0}},
		"both":             {{lostBefore, 0}, {lostAfter, 0}, {lostBefore, 0}},
		"silent":           {{silent, 0}},
		"late":             {{late, time.Second}},
		"late, then after": {{late, time.Second}, {lostAfter, 0}},
		"slow copy":        {{lostAfter, 0}, {slow, time.Second}},
	} {
		for _, id := range []orbit.ProposalID{idOf(1), {}} {
			t.Run(fmt.Sprintf("%s %v", name, id.IsZero()), func(t *testing.T) {
				bubble(t, 2, Options{}, func(d *desk) {
					a, b := d.ledgers[0], d.ledgers[1]
					d.do(a, node("n", 1), submit("c"))
					d.look(b)
					d.plans[1].sendsNext(fates...)
					p := place(0, "c", "n")
					p.ID = id
					rev, err := b.Propose(bg, p)
					require.NoError(d, err)
					require.Equal(d, rev, d.look(a).Capsule("c").PlacedAt)
					require.Positive(d, b.Stats().LostAnswers)
					time.Sleep(time.Minute) // delayed requests arrive by then
					require.Equal(d, rev, d.look(a).Revision(), "it was committed twice")
					d.agree()
				})
			})
		}
	}
}

// The answer is lost, and another process commits after it. The ledger recognizes its own commit in the log, with an id
// and without.
func TestLostAnswerOvertaken(t *testing.T) {
	for _, id := range []orbit.ProposalID{idOf(1), {}} {
		t.Run(fmt.Sprint(id.IsZero()), func(t *testing.T) {
			bubble(t, 2, Options{Timeout: time.Second}, func(d *desk) {
				a, b := d.ledgers[0], d.ledgers[1]
				d.do(a, node("n", 5), submit("c", "d"))
				d.look(b)
				d.plans[1].sendsNext(fault{silent, 0})
				p := place(0, "c", "n")
				p.ID = id
				mine := proposing(bg, b, p)
				synctest.Wait()
				d.do(a, orbit.Place{Capsule: "d", Node: "n"})
				d.do(a, orbit.Release{Capsule: "c", Stopped: true}) // the other process even undoes the commit
				out := <-mine
				require.NoError(d, out.Err)
				require.Equal(d, out.Revision, d.look(a).Capsule("c").PlacedAt)
				require.False(d, d.look(a).Capsule("c").Placed())
				d.agree()
			})
		})
	}
}

// The history is compacted before the ledger has seen its own commit in it. With an id the ledger finds the commit in
// the records; without one the outcome cannot be known, and the error says so.
func TestLostHistory(t *testing.T) {
	for _, id := range []orbit.ProposalID{idOf(1), {}} {
		t.Run(fmt.Sprint(id.IsZero()), func(t *testing.T) {
			bubble(t, 2, Options{Timeout: time.Second}, func(d *desk) {
				a, b := d.ledgers[0], d.ledgers[1]
				d.do(a, node("n", 5), submit("c"))
				d.look(b)
				d.plans[1].mu.Lock()
				d.plans[1].events = []fault{{silent, 100 * time.Millisecond}}
				d.plans[1].mu.Unlock()
				d.plans[1].sendsNext(fault{silent, 0})
				p := orbit.Proposal{ID: id, Do: []orbit.Commitment{orbit.Place{Capsule: "c", Node: "n"}}}
				mine := proposing(bg, b, p)
				synctest.Wait()
				d.do(a, orbit.Release{Capsule: "c", Stopped: true})
				out := <-mine
				require.Positive(d, b.Stats().Reloads)
				c := d.look(a).Capsule("c")
				if id.IsZero() {
					require.ErrorIs(d, out.Err, orbit.ErrUnknown)
				} else {
					require.NoError(d, out.Err)
					require.Equal(d, out.Revision, c.PlacedAt)
				}
				require.False(d, c.Placed(), "it was committed twice")
				d.agree()
			})
		})
	}
}

// A proposal whose transaction may have been applied in a missed part of the history is answered from the state at
// once. If it were judged again, it could wait while etcd is out of touch, and then be answered as not sent.
func TestLostHistoryIsAskedForAtOnce(t *testing.T) {
	bubble(t, 1, Options{}, func(d *desk) {
		l := d.ledgers[0]
		d.do(l, node("n", 5), submit("c", "d"))
		committed, other := place(1, "c", "n"), place(2, "d", "n")
		rev, err := l.Propose(bg, committed)
		require.NoError(d, err)
		d.look(l) // the mirror has the commit
		g := l.mirror.look()
		b := newPack(l.keys, g.state, g.pos, l.commits.limits)
		b.requests = []*request{newRequest(bg, committed), newRequest(bg, other), newRequest(bg, orbit.Proposal{Do: other.Do})}
		out := l.commits.sender.lose(b, &clientv3.TxnResponse{}, 7, true, g.gaps-1)
		require.Equal(d, b.requests, out.again)
		require.Equal(d, orbit.Outcome{Revision: rev}, <-b.requests[0].done)
		require.ErrorIs(d, (<-b.requests[2].done).Err, orbit.ErrUnknown)
		require.Empty(d, b.requests[1].done, "it was not applied, and is judged again")
	})
}

// A caller that stops waiting gets its answer at once, whatever the state of its request, and the answer is true.
func TestCallersLeave(t *testing.T) {
	for name, f := range map[string]fault{"before": {slow, time.Second}, "after": {slowAnswer, time.Second}, "lost": {lostBefore, 0}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, Options{Timeout: 100 * time.Second}, func(d *desk) {
				l := d.ledgers[0]
				d.do(l, node("n", 5), submit("c", "d", "e"))
				d.plans[0].sendsNext(f)
				ctx, cancel := context.WithCancel(bg)
				p, behind := place(1, "c", "n"), place(2, "d", "n") // the second proposal waits for the node of the first
				one := proposing(ctx, l, p)
				synctest.Wait()
				other := proposing(ctx, l, behind)
				synctest.Wait()
				cancel()
				first, second := <-one, <-other
				for i := range p.Do {
					p.Do[i], behind.Do[i] = nil, nil
				}
				require.ErrorIs(d, first.Err, orbit.ErrUnknown)
				require.ErrorIs(d, first.Err, context.Canceled)
				require.ErrorIs(d, second.Err, orbit.ErrUnavailable)
				require.NotErrorIs(d, second.Err, orbit.ErrUnknown)
				time.Sleep(time.Minute)
				require.False(d, d.look(l).Capsule("d").Placed(), "it was not sent")
				d.do(l, orbit.Place{Capsule: "e", Node: "n"}) // no record is locked any more
				d.agree()
			})
		})
	}
}

// If patience ends while a sent proposal is not answered, the outcome is unknown. If etcd was out of touch before
// anything was sent, it is unavailable. The same proposal, sent again, has one effect.
func TestPatience(t *testing.T) {
	bubble(t, 1, Options{Timeout: time.Second, Patience: 3 * time.Second}, func(d *desk) {
		l := d.ledgers[0]
		d.do(l, node("n", 5), submit("c"))
		for range 500 {
			d.plans[0].sendsNext(fault{lostAfter, 0})
		}
		began := time.Now()
		p := place(1, "c", "n")
		_, err := l.Propose(bg, p)
		require.NoError(d, err, "the watch brings what no answer says")
		require.Less(d, time.Since(began), 5*time.Second)
	})
}

// While neither answers nor the watch come back, the outcome is unknown too.
func TestOutOfTouch(t *testing.T) {
	bubble(t, 2, Options{Timeout: time.Second, Patience: 3 * time.Second}, func(d *desk) {
		a, l := d.ledgers[0], d.ledgers[1]
		d.do(a, node("n", 5), submit("c", "d"))
		d.look(l)
		d.plans[1].hold()
		for range 100 {
			d.plans[1].sendsNext(fault{silent, 0})
		}
		began, p := time.Now(), place(1, "c", "n")
		_, err := l.Propose(bg, p)
		require.ErrorIs(d, err, orbit.ErrUnknown)
		require.Less(d, time.Since(began), 10*time.Second)
		began = time.Now()
		_, err = l.Snapshot(bg)
		require.ErrorIs(d, err, orbit.ErrUnavailable)
		require.Less(d, time.Since(began), 10*time.Second)
		d.plans[1].heal()
		began = time.Now()
		_, err = l.Propose(bg, place(2, "d", "nowhere")) // a rejection needs a revision that the watch does not deliver
		require.ErrorIs(d, err, orbit.ErrUnavailable)
		require.Less(d, time.Since(began), 10*time.Second, "a call hangs while the watch is behind")
		d.plans[1].release()
		rev, err := l.Propose(bg, p)
		require.NoError(d, err)
		require.Equal(d, rev, d.look(a).Capsule("c").PlacedAt)
		d.agree()
	})
}

// A record that this ledger has written is locked until the watch delivers the commit. A caller that waits for it does
// not wait for ever.
func TestLockedWhileBehind(t *testing.T) {
	bubble(t, 1, Options{Timeout: time.Second, Patience: 3 * time.Second}, func(d *desk) {
		l := d.ledgers[0]
		d.do(l, node("n", 5), submit("c", "d"))
		d.look(l)
		d.plans[0].hold()
		_, err := l.Propose(bg, place(1, "c", "n"))
		require.NoError(d, err, "the answer came")
		began := time.Now()
		_, err = l.Propose(bg, place(2, "d", "n"))
		require.ErrorIs(d, err, orbit.ErrUnavailable)
		require.Less(d, time.Since(began), 10*time.Second)
		d.plans[0].release()
		_, err = l.Propose(bg, place(2, "d", "n"))
		require.NoError(d, err)
		d.agree()
	})
}

// Close answers all callers, and leaves no goroutine behind, whatever is under way.
func TestClose(t *testing.T) {
	bubble(t, 1, Options{Timeout: 100 * time.Second, GCInterval: time.Second}, func(d *desk) {
		l := d.ledgers[0]
		d.do(l, node("n", 5), submit("c", "d"))
		rev := d.look(l).Revision()
		d.plans[0].hold() // otherwise the watch would tell the outcome
		d.plans[0].sendsNext(fault{silent, 0})
		d.plans[0].mu.Lock()
		d.plans[0].reads = []fault{{silent, 0}}
		d.plans[0].mu.Unlock()
		inFlight := proposing(bg, l, place(1, "c", "n"))
		synctest.Wait()
		behind := proposing(bg, l, place(2, "d", "n"))
		refused := proposing(bg, l, place(3, "unknown", "n"))
		waits, reads := make(chan error, 1), make(chan error, 1)
		go func() { _, err := l.Wait(bg, rev+100); waits <- err }()
		go func() { _, err := l.Snapshot(bg); reads <- err }()
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		require.NoError(d, l.Close())
		sent, never := <-inFlight, <-behind
		require.ErrorIs(d, sent.Err, orbit.ErrUnknown)
		require.ErrorIs(d, sent.Err, ErrClosed)
		require.ErrorIs(d, never.Err, orbit.ErrUnavailable)
		require.ErrorIs(d, never.Err, ErrClosed)
		require.ErrorIs(d, (<-refused).Err, orbit.ErrUnavailable)
		require.ErrorIs(d, <-waits, ErrClosed)
		require.ErrorIs(d, <-reads, orbit.ErrUnavailable)
		require.Less(d, time.Since(began), time.Second, "Close waits for what will not come")
		synctest.Wait()
		require.Zero(d, d.store.busy(), "requests are left behind")
		_, err := l.Propose(bg, place(3, "d", "n"))
		require.ErrorIs(d, err, orbit.ErrUnavailable)
		_, err = l.Snapshot(bg)
		require.ErrorIs(d, err, orbit.ErrUnavailable)
		require.NoError(d, l.Close(), "twice")
	})
}
