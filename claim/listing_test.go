package claim_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

func slot(name, uid string) claim.Slot { return claim.Slot{Name: name, UID: uid} }

// look makes the pool list its source.
func (r *rig) look() {
	r.NotifyIdle()
	synctest.Wait()
}

// pop claims all ready slots and returns them in order.
func (r *rig) pop(t *testing.T) (out []string) {
	for r.Snapshot().IdleReady > 0 {
		c := r.ask()
		synctest.Wait()
		s := got(t, c).Slot
		out = append(out, s.Name+"/"+s.UID)
	}
	return out
}

// A slot is ready once, however often it is listed, and keeps its place. A slot that a later listing does not show is
// dropped, and comes to the end when it is shown again.
func TestReadyIsFIFOWithoutDoubles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.show(0, slot("a", "1"), slot("b", "1"), slot("a", "1"), slot("c", "1"))
		r := newRig(t, &claim.Pool{Source: l}).run()
		assert.Equal(t, 3, r.Snapshot().IdleReady)
		l.show(0, slot("d", "1"), slot("c", "1"), slot("b", "1"))
		r.look()
		assert.Equal(t, 3, r.Snapshot().IdleReady, "a is gone")
		l.show(0, slot("a", "1"), slot("d", "1"), slot("c", "1"), slot("b", "1"))
		r.look()
		assert.Equal(t, []string{"b/1", "c/1", "d/1", "a/1"}, r.pop(t))
	})
}

// A slot whose uid has changed is another slot: it goes to the end, the reservation of the old one does not apply to
// it, and the old one is not handed out any more.
func TestAnotherUIDIsAnotherSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.show(0, slot("a", "1"), slot("b", "1"))
		r := newRig(t, &claim.Pool{Source: l}).run()
		l.show(0, slot("a", "2"), slot("b", "1"))
		r.look()
		assert.Equal(t, []string{"b/1", "a/2"}, r.pop(t))
		r.look()
		assert.Zero(t, r.Snapshot().IdleReady, "both are reserved")
		l.show(0, slot("a", "3"), slot("b", "1"))
		r.look()
		assert.Equal(t, claim.Snapshot{IdleReady: 1, ReservedCount: 2, LastDispatchAt: r.Snapshot().LastDispatchAt}, r.Snapshot())
		assert.Equal(t, []string{"a/3"}, r.pop(t))
	})
}

// The claim gets the Object of the newest listing.
func TestNewestObjectIsCarried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.show(0, claim.Slot{Name: "a", Object: "old"})
		r := newRig(t, &claim.Pool{Source: l}).run()
		l.show(0, claim.Slot{Name: "a", Object: "new"})
		r.look()
		c := r.ask()
		synctest.Wait()
		assert.Equal(t, "new", got(t, c).Slot.Object)
	})
}

// A listing that still shows a claimed slot does not make it ready until 2 s after the answer to the claim, however
// long the claim took. Then the source is listed again.
func TestStaleListingIsNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{claim: func(_ context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
			time.Sleep(5 * sec)
			return a.Slot, 0, nil
		}}
		l.show(0, slot("a", "1"))
		r := newRig(t, &claim.Pool{Source: l}).run()
		a, b := r.ask(), r.ask()
		for d := 100 * ms; d < 7*sec; d += 100 * ms {
			r.until(d)
			r.look()
			require.Zero(t, r.Snapshot().IdleReady)
			require.Equal(t, 1, r.Snapshot().ReservedCount)
		}
		assert.NoError(t, got(t, a).Err)
		r.until(7*sec - ns)
		require.Len(t, r.tried(), 1)
		r.until(7 * sec)
		require.Len(t, r.tried(), 2)
		assert.Equal(t, 7*sec, r.tried()[1].at)
		none(t, b)
		r.until(12 * sec)
		assert.NoError(t, got(t, b).Err)
	})
}

// If no listing has shown the slot while it was reserved, the end of the reservation causes no listing.
func TestEndOfAReservationLooksOnlyIfShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "s0")
		r := newRig(t, &claim.Pool{Source: s}).run()
		r.ask()
		r.until(sec)
		r.look()
		r.until(8 * sec)
		assert.Equal(t, []time.Duration{0, sec}, r.seen())
	})
}

// A listing that includes the claim is used at once: with versions a slot that is given back is ready, and one that an
// older listing shows is not.
func TestVersionsEndReservations(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			l := &listings{claim: func(_ context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
				time.Sleep(100 * ms)
				return a.Slot, 7, nil
			}}
			l.show(5, slot("a", "1"))
			r := newRig(t, &claim.Pool{Source: l}).run()
			r.ask()
			if late { // listed while the claim was in flight, but after its commit
				l.show(7, slot("a", "1"))
				r.look()
				assert.Equal(t, 1, r.Snapshot().ReservedCount)
				r.until(100 * ms)
				assert.Equal(t, 0, r.Snapshot().ReservedCount)
				assert.Equal(t, 1, r.Snapshot().IdleReady)
				return
			}
			r.until(100 * ms)
			l.show(6, slot("a", "1"))
			r.look()
			assert.Equal(t, 0, r.Snapshot().IdleReady, "it has not seen the claim")
			l.show(7, slot("a", "1"))
			r.look()
			assert.Equal(t, 1, r.Snapshot().IdleReady)
			assert.Equal(t, 0, r.Snapshot().ReservedCount)
		})
	}
}

// A full listing with an older version drops nothing.
func TestOlderListingDropsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.show(9, slot("a", "1"), slot("b", "1"))
		r := newRig(t, &claim.Pool{Source: l}).run()
		l.show(8, slot("b", "1"))
		r.look()
		assert.Equal(t, 2, r.Snapshot().IdleReady)
		l.show(9, slot("b", "1"))
		r.look()
		assert.Equal(t, 1, r.Snapshot().IdleReady)
	})
}

// followed is a source that can be followed, and whose Follow fails when the test says so.
type followed struct {
	listings
	news chan claim.Listing
	fail chan error
}

func (f *followed) Follow(ctx context.Context, _ uint64) (claim.Listing, error) {
	select {
	case l := <-f.news:
		return l, nil
	case err := <-f.fail:
		return claim.Listing{}, err
	case <-ctx.Done():
		return claim.Listing{}, ctx.Err()
	}
}

// Changes of a follower reach the pool without NotifyIdle. When Follow fails, the pool lists the source 10 ms later and
// follows it from there.
func TestFollow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &followed{news: make(chan claim.Listing), fail: make(chan error)}
		f.show(1, slot("a", "1"), slot("b", "1"))
		r := newRig(t, &claim.Pool{Source: f}).run()
		f.news <- claim.Listing{Partial: true, Version: 2, Slots: []claim.Slot{slot("c", "1")}, Gone: []string{"a", "unknown"}}
		synctest.Wait()
		assert.Equal(t, []string{"b/1", "c/1"}, r.pop(t))
		c := r.ask()
		f.news <- claim.Listing{Partial: true, Version: 3, Slots: []claim.Slot{slot("d", "1")}}
		synctest.Wait()
		assert.Equal(t, "d", got(t, c).Slot.Name)
		assert.Len(t, r.seen(), 1, "no listing was needed")

		f.show(4, slot("e", "1"))
		f.fail <- errors.New("cut off")
		c = r.ask()
		start := time.Since(r.start)
		r.until(start + 10*ms)
		assert.Equal(t, "e", got(t, c).Slot.Name)
		require.Len(t, r.reported(), 1)
		assert.ErrorContains(t, r.reported()[0], "cut off")
		f.news <- claim.Listing{Partial: true, Version: 5, Slots: []claim.Slot{slot("g", "1")}}
		synctest.Wait()
		assert.Equal(t, 1, r.Snapshot().IdleReady, "it is followed again")
	})
}

// A slot that became idle again while it was reserved, and that the follower named only once, is found when the
// reservation ends.
func TestNewsOfAReservedSlotAreNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &followed{news: make(chan claim.Listing), fail: make(chan error)}
		f.show(1, slot("a", "1"))
		r := newRig(t, &claim.Pool{Source: f}).run()
		r.ask()
		r.until(sec)
		f.news <- claim.Listing{Partial: true, Version: 2, Slots: []claim.Slot{slot("a", "1")}}
		c := r.ask()
		r.until(2*sec - ns)
		none(t, c)
		r.until(2 * sec)
		assert.NoError(t, got(t, c).Err)
	})
}

// Many listings of changing slots do not make the pool's memory grow.
func TestReadyIsTidied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &followed{news: make(chan claim.Listing), fail: make(chan error)}
		r := newRig(t, &claim.Pool{Source: f}).run()
		for i := range 2000 {
			f.news <- claim.Listing{Partial: true, Slots: []claim.Slot{slot(fmt.Sprint("a", i), "1"), slot(fmt.Sprint("b", i), "1")}}
			f.news <- claim.Listing{Partial: true, Gone: []string{fmt.Sprint("a", i)}}
			if i%2 == 0 {
				synctest.Wait() // or the request may be given the slot that is gone
				r.ask()
			}
		}
		synctest.Wait()
		assert.Equal(t, 1000, r.Snapshot().IdleReady)
		assert.Equal(t, "b1000/1", r.pop(t)[0])
	})
}

// When Follow fails and no request waits, the pool lists the source all the same.
func TestFollowBreaksUnnoticed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &followed{news: make(chan claim.Listing), fail: make(chan error)}
		r := newRig(t, &claim.Pool{Source: f}).run()
		f.show(4, slot("a", "1"))
		f.fail <- errors.New("cut off")
		r.until(10*ms - ns)
		assert.Zero(t, r.Snapshot().IdleReady)
		r.until(10 * ms)
		assert.Equal(t, 1, r.Snapshot().IdleReady)
		assert.Equal(t, []time.Duration{0, 10 * ms}, r.seen())
	})
}

// An outage of a followed source ends for its pool at most a second after it has ended for the source, however long it
// was and however far away the next poll is.
func TestAnOutageDoesNotBlindAFollower(t *testing.T) {
	for _, outage := range []time.Duration{sec / 2, 3 * sec, 10 * time.Minute} {
		bubble(t, func(t *testing.T) {
			f := &followed{news: make(chan claim.Listing), fail: make(chan error)}
			r := newRig(t, &claim.Pool{Source: f}).run()
			c := r.ask()
			r.until(11 * sec) // the next poll is 20 s away
			down := errors.New("cut off")
			f.set(func() (claim.Listing, error) { return claim.Listing{}, down })
			f.fail <- down
			r.until(11*sec + outage)
			before := len(r.seen())
			f.show(4, slot("a", "1"))
			r.until(12*sec + outage)
			assert.Equal(t, "a", got(t, c).Slot.Name)
			assert.Len(t, r.seen(), before+1, "it is followed again")
			assert.LessOrEqual(t, before, 20+int(outage/sec), "a source in trouble is asked at most once a second")

			f.news <- claim.Listing{Partial: true, Version: 5}
			f.show(6, slot("b", "1"))
			f.fail <- down
			r.until(12*sec + outage + 10*ms)
			assert.Equal(t, 1, r.Snapshot().IdleReady, "what was before the last success does not count")
		})
	}
}

// A Follow that always fails is called again at most once a second, although each listing in between succeeds.
func TestAFollowThatAlwaysFailsIsNotHammered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Source: broken{&followed{}}}).run()
		r.until(60 * sec)
		assert.InDelta(t, 65, len(r.seen()), 3)
	})
}

// broken is a follower whose Follow fails at once.
type broken struct{ *followed }

func (broken) Follow(context.Context, uint64) (claim.Listing, error) {
	return claim.Listing{}, errors.New("no such method")
}

// A slot that a listing showed while it was reserved, and a later one did not, causes no listing when its reservation
// ends.
func TestAShownSlotMayBeGoneAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.show(0, slot("a", "1"))
		r := newRig(t, &claim.Pool{Source: l}).run()
		r.ask()
		r.until(ms)
		r.look()
		l.show(0)
		r.until(2 * ms)
		r.look()
		r.until(9 * sec)
		assert.Equal(t, []time.Duration{0, ms, 2 * ms}, r.seen())
	})
}

// One listing runs at a time, and another one follows if one was requested meanwhile.
func TestOneListingAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var running, most, all atomic.Int64
		l := &listings{}
		l.set(func() (claim.Listing, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			all.Add(1)
			time.Sleep(100 * ms)
			return claim.Listing{}, nil
		})
		r := newRig(t, &claim.Pool{Source: l}).run()
		for range 50 {
			r.ask()
			r.NotifyIdle()
			time.Sleep(ms)
		}
		r.until(5 * sec)
		assert.Equal(t, int64(1), most.Load())
		assert.Equal(t, int64(2), all.Load())
	})
}

// A source may change the labels of a slot and keep its uid: requests that did not match it are compared with it again.
func TestLabelsChangeUnderOneUID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		phase := func(phase string) {
			l.set(func() (claim.Listing, error) {
				return claim.Listing{Slots: []claim.Slot{{Name: "a", UID: "1", Labels: map[string]string{claim.PhaseLabel: phase}}}}, nil
			})
		}
		phase("starting")
		r := newRig(t, &claim.Pool{Source: l}).run()
		c := r.want(claim.Want{Phase: "idle"}, 0)
		synctest.Wait()
		none(t, c)
		phase("idle")
		r.NotifyIdle()
		synctest.Wait()
		require.NoError(t, got(t, c).Err)
	})
}

// A request that no slot matches causes a listing when it arrives, and keeps the polls going. Requests that are served
// beside it do not.
func TestTheUnmatchedPollAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Source: phased{store(&sim.StaleStore{}, names(9)...), nil}}).run()
		r.until(sec)
		c := r.want(claim.Want{Phase: "warm"}, 0)
		for i := range 9 {
			r.until(time.Duration(2+i) * sec)
			require.NoError(t, got(t, settled(r.ask())).Err)
		}
		r.until(40 * sec)
		none(t, c)
		assert.Equal(t, []time.Duration{0, sec, 11 * sec, 31 * sec}, r.seen())
	})
}
