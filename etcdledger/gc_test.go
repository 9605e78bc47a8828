package etcdledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// populateLitter leaves garbage of every kind.
func populateLitter(d *desk, l *Ledger) {
	d.do(l, node("gone", 1), node("stays", 5), submit("kept"), orbit.Mark{Key: "kept", Value: "v"})
	for i := range 3 {
		c := orbit.CapsuleID(fmt.Sprint("c", i))
		d.do(l, submit(c))
		_, err := l.Propose(bg, orbit.Proposal{ID: idOf(uint64(i + 1)), Do: []orbit.Commitment{orbit.Release{Capsule: c, Final: true}}})
		require.NoError(d, err)
	}
	d.do(l, orbit.RemoveNode{Node: "gone"}, orbit.Mark{Key: "m", Value: "v"})
	d.do(l, orbit.Mark{Key: "m"}, orbit.Hold{ID: "h", Node: "stays", Room: orbit.Resources{1}, Ends: time.Unix(1e9, 0)})
	d.do(l, orbit.Release{Hold: "h"})
}

var smallLimits = orbit.Limits{Terminal: 1, ProposalIDs: 1}

// GC deletes exactly the garbage. What was deleted may come again.
func TestSweep(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1, Bounds: smallLimits}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		populateLitter(d, a)
		before := d.look(b)
		n, err := b.GC(bg)
		require.NoError(d, err)
		require.Equal(d, 7, n, "a node, a mark, a hold, two capsules, two ids")
		var names []string
		for _, key := range d.store.present() {
			names = append(names, strings.TrimPrefix(key, "orbit/"))
		}
		want := []string{"c/c2", "c/kept", "fences/topology", "gc", "log", "m/kept", "meta", "n/stays", "p/" + idOf(3).String(), "s/nominations", "u/stays"}
		require.Equal(d, want, slices.Sorted(slices.Values(names)))
		require.Empty(d, differ(textOf(d.look(a), same), textOf(before, same)), "a sweep is no commit")
		d.agree()
		for _, l := range d.ledgers {
			n, err := l.GC(bg)
			require.NoError(d, err)
			require.Zero(d, n, "nothing is left")
		}
		d.do(a, submit("c0"), node("gone", 2))
		_, err = b.Propose(bg, orbit.Proposal{ID: idOf(1), Do: []orbit.Commitment{orbit.Mark{Key: "m", Value: "again"}}})
		require.NoError(d, err)
		d.agree()
	})
}

// A ledger runs GC by itself. Several ledgers that do so do not disturb each other, nor commits at that time.
func TestSweepsTogether(t *testing.T) {
	bubble(t, 3, Options{GCInterval: time.Minute, Bounds: smallLimits}, func(d *desk) {
		populateLitter(d, d.ledgers[0])
		time.Sleep(3 * time.Minute)
		for i := range 20 {
			d.do(d.ledgers[i%3], orbit.Mark{Key: fmt.Sprint(i), Value: "x"})
			d.do(d.ledgers[(i+1)%3], orbit.Mark{Key: fmt.Sprint(i)})
			time.Sleep(7 * time.Second)
		}
		time.Sleep(3 * time.Minute)
		swept := uint64(0)
		for _, l := range d.ledgers {
			swept += l.Stats().Collected
			require.Zero(d, l.Stats().Reloads, "a sweep is no foreign write")
		}
		require.Equal(d, uint64(7+20), swept)
		require.Len(d, d.store.present(), 11)
		d.agree()
	})
}

// A ledger that is behind cannot commit over a record that was deleted: the absence of a key does not show how new the
// garbage collection was.
func TestStaleAfterSweep(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1, Bounds: smallLimits}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		d.do(a, node("n", 1), orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{1}, Ends: time.Unix(1e9, 0)})
		at := d.do(a, orbit.Mark{Key: "m", Value: "v"})
		d.look(b)
		d.plans[1].lags(time.Second)
		time.Sleep(2 * time.Second)
		d.do(a, orbit.Release{Hold: "h"}, orbit.Mark{Key: "m"})
		_, err := a.GC(bg)
		require.NoError(d, err)
		_, err = b.Propose(bg, orbit.Proposal{If: []orbit.Precondition{orbit.MarkAt{Key: "m", Revision: at}}, Do: []orbit.Commitment{orbit.Mark{Key: "m", Value: "w"}}})
		require.ErrorIs(d, err, orbit.ErrConflict, "the mark was deleted before")
		require.Positive(d, b.Stats().Retries)
		d.agree()
	})
}

// GC deletes nothing if one of its records is used again meanwhile.
func TestSweepTooLate(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1, Bounds: smallLimits}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		d.do(a, node("n", 1), orbit.Mark{Key: "m", Value: "v"})
		d.do(a, orbit.Mark{Key: "m"})
		d.look(b)
		d.plans[1].sendsNext(fault{slow, time.Second})
		swept := make(chan int, 1)
		go func() {
			n, err := b.GC(bg)
			if err != nil {
				n = -1
			}
			swept <- n
		}()
		synctest.Wait()
		d.do(a, orbit.Mark{Key: "m", Value: "again"})
		require.Zero(d, <-swept)
		value, _ := d.look(b).Mark("m")
		require.Equal(d, "again", value)
		d.agree()
	})
}

// GC may delete a gang's record before or after those of its members. A process that opens the ledger in between finds
// no damage.
func TestHalfSwept(t *testing.T) {
	bubble(t, 1, Options{GCInterval: -1, Bounds: smallLimits}, func(d *desk) {
		l := d.ledgers[0]
		_, gang, _ := wholeGang(3)
		d.do(l, gang, submit("last"))
		for _, id := range []orbit.CapsuleID{"c0", "c1", "c2", "last"} {
			d.do(l, orbit.Release{Capsule: id, Final: true})
		}
		d.agree()
		for _, r := range []ref{{kindGang, "g"}, {kindCapsule, "c1"}} {
			_, at, err := l.delete(bg, []ref{r}, l.mirror.look().pos)
			require.NoError(d, err)
			_, err = l.reach(bg, at)
			require.NoError(d, err)
			d.open(Options{GCInterval: -1})
			d.agree()
		}
		_, err := d.ledgers[1].GC(bg)
		require.NoError(d, err)
		d.do(l, gang)
		d.agree()
	})
}

// What the ledger has forgotten stays forgotten when a released record leaves the window because its id is used again: a ledger that
// is opened then finds an old member of a gang in etcd whose gang is another one by now.
func TestForgottenMembersOfAGangUsedAgain(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1, Bounds: smallLimits}, func(d *desk) {
		a := d.ledgers[0]
		crew := func(members ...orbit.CapsuleID) orbit.Submit {
			return orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: &orbit.Spec{}, Members: members}}}}
		}
		d.do(a, crew("old"))
		d.do(a, submit("b"))
		d.do(a, orbit.Release{Capsule: "old", Final: true})
		d.do(a, orbit.Release{Capsule: "b", Final: true})
		require.Nil(d, d.look(a).Capsule("old"), "there is a newer one")
		d.do(a, submit("b"))
		d.do(a, crew("new"))
		fresh, err := Open(bg, d.store.client(&plan{}), Options{GCInterval: -1})
		require.NoError(d, err)
		defer fresh.Close()
		require.Equal(d, orbit.GangID("g"), d.look(fresh).Capsule("new").Gang())
		d.do(fresh, orbit.Release{Capsule: "new", Final: true})
		d.agree()
	})
}

// What a capsule takes over from a former one with its id is read back: the proposals that placed that, and what still runs of it, with the
// spec that it had.
func TestAnIDUsedAgainIsReadBack(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1}, func(d *desk) {
		a := d.ledgers[0]
		agent := node("n", 4)
		agent.Node.Confirms = true
		d.do(a, agent, submit("db-0"))
		placed := orbit.Proposal{ID: idOf(1), Do: []orbit.Commitment{orbit.Place{Capsule: "db-0", Node: "n"}}}
		at, err := a.Propose(bg, placed)
		require.NoError(d, err)
		d.do(a, orbit.Confirm{Capsule: "db-0", Since: at, Begun: true})
		d.do(a, orbit.Release{Capsule: "db-0", Final: true})
		d.do(a, orbit.Submit{IDs: []orbit.CapsuleID{"db-0"}, Spec: &orbit.Spec{Module: "other"}})
		fresh, err := Open(bg, d.store.client(&plan{}), Options{GCInterval: -1})
		require.NoError(d, err)
		defer fresh.Close()
		was, now := d.look(a).Capsule("db-0"), d.look(fresh).Capsule("db-0")
		require.Zero(d, now.PlacedAt)
		require.Same(d, was.Remains().Spec, now.Remains().Spec)
		require.NotSame(d, now.Spec, now.Remains().Spec)
		again, err := fresh.Propose(bg, placed)
		require.NoError(d, err)
		require.Equal(d, at, again, "sent again, it is known")
		d.agree()
	})
}
