package lease_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// modelLease is the dumb lease: what one process that hears everything must believe.
type modelLease struct {
	holder     string
	epoch      orbit.Revision
	over       bool
	end, ended time.Time
}

type modelLeases map[string]*modelLease

// live says whether a term can be refreshed.
func (m modelLeases) live(t lease.Term, now time.Time) bool {
	l := m[t.Name]
	return l != nil && !l.over && l.epoch == t.Epoch && now.Before(l.end)
}

// sorted returns the names that a step must deal with, in order.
func (m modelLeases) sorted(due func(*modelLease) (time.Time, bool)) (names []string) {
	at := map[string]time.Time{}
	for name, l := range m {
		if when, ok := due(l); ok {
			at[name] = when
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(at[a].Compare(at[b]), cmp.Compare(a, b)) })
	return names
}

// One process believes exactly what the dumb model does, and a step does exactly what is due.
func TestLeasesAgainstModel(t *testing.T) {
	const ttl, sweep = 10 * time.Second, 25 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{start}
		var ledger orbit.MemoryLedger
		l := &lease.Keeper{Ledger: &ledger, TTL: ttl, Sweep: sweep, Now: c.Now, Terms: -1}
		m := modelLeases{}
		var terms []lease.Term
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		holder := rapid.SampledFrom([]string{"x", "y"})
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				n, h := name.Draw(t, "name"), holder.Draw(t, "holder")
				term, err := l.Acquire(context.Background(), n, h)
				if was := m[n]; was != nil && was.holder != h && m.live(lease.Term{Name: n, Epoch: was.epoch}, c.now) {
					var held *lease.Error
					require.ErrorAs(t, err, &held)
					require.ErrorIs(t, err, lease.ErrHeld)
					require.True(t, was.end.Equal(held.Until))
					return
				}
				require.NoError(t, err)
				m[n] = &modelLease{holder: h, epoch: term.Epoch, end: c.now.Add(ttl)}
				terms = append(terms, term)
			},
			"refresh": func(t *rapid.T) {
				if len(terms) == 0 {
					t.Skip()
				}
				term := rapid.SampledFrom(terms).Draw(t, "term")
				err := l.Refresh(term)
				require.Equal(t, m.live(term, c.now), err == nil)
				if err == nil {
					m[term.Name].end = c.now.Add(ttl)
				} else {
					require.ErrorIs(t, err, lease.ErrExpired)
				}
			},
			"resign": func(t *rapid.T) {
				if len(terms) == 0 {
					t.Skip()
				}
				term := rapid.SampledFrom(terms).Draw(t, "term")
				err := l.Resign(context.Background(), term)
				require.Equal(t, m.live(term, c.now), err == nil)
				if err == nil {
					m[term.Name].over, m[term.Name].ended = true, c.now
				}
			},
			"vanish": func(t *rapid.T) {
				n := name.Draw(t, "name")
				_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: l.Key(n)}}})
				require.NoError(t, err)
				if was := m[n]; was != nil && was.over {
					delete(m, n)
				} else if was != nil && c.now.Before(was.end) {
					was.end = c.now // it is over at once
				}
				_, err = l.Acquire(context.Background(), "follows the ledger", "x")
				require.NoError(t, err)
				m["follows the ledger"] = &modelLease{holder: "x", epoch: snapshotT(t, &ledger).Revision(), end: c.now.Add(ttl)}
			},
			"step": func(t *rapid.T) {
				ends := m.sorted(func(l *modelLease) (time.Time, bool) { return l.end, !l.over && !c.now.Before(l.end) })
				sweeps := m.sorted(func(l *modelLease) (time.Time, bool) { return l.ended, l.over && !c.now.Before(l.ended.Add(sweep)) })
				round, err := l.Step(context.Background())
				require.NoError(t, err)
				var ended []string
				for _, term := range round.Ended {
					require.Equal(t, m[term.Name].epoch, term.Epoch)
					ended = append(ended, term.Name)
				}
				require.ElementsMatch(t, ends, ended)
				require.Equal(t, sweeps, round.Swept)
				for _, n := range ends {
					m[n].over, m[n].ended = true, c.now
				}
				for _, n := range sweeps {
					delete(m, n)
				}
				next := time.Time{}
				for _, l := range m {
					at := l.end
					if l.over {
						at = l.ended.Add(sweep)
					}
					if next.IsZero() || at.Before(next) {
						next = at
					}
				}
				require.True(t, next.Equal(round.Next), "%v %v", next, round.Next)
			},
			"wait": func(t *rapid.T) {
				c.now = c.now.Add(time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				state := snapshotT(t, &ledger)
				for _, n := range []string{"a", "b", "c"} {
					live, ok := l.Live(n)
					was := m[n]
					require.Equal(t, was != nil && m.live(lease.Term{Name: n, Epoch: was.epoch}, c.now), ok)
					if ok {
						require.Equal(t, lease.Term{Name: n, Holder: was.holder, Epoch: was.epoch}, live)
						in, ok := l.In(state, n)
						require.True(t, ok)
						require.Equal(t, live, in)
					}
				}
			},
		})
	})
}

func snapshotT(t *rapid.T, l orbit.Ledger) *orbit.State {
	state, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return state
}

// keepers are processes that compete for the leases of one ledger, with clocks of their own, on a ledger whose
// answers get lost. What the ledger has had is kept: every term that was ever current, by name.
type keepers struct {
	ledger  orbit.MemoryLedger
	f       *faulty
	clocks  []*clock
	keep    []*lease.Keeper
	current map[string]orbit.Revision
	retired map[lease.Term]bool   // once current in the ledger, and not any more
	refused []map[lease.Term]bool // by keeper: refreshed in vain
	terms   []lease.Term
}

// Whatever several processes do, a name has one term in the ledger at most, terms only rise, none comes back, and
// a holder that has lost one can neither refresh it nor commit under it. I13.
func TestCompetingKeepers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := &keepers{current: map[string]orbit.Revision{}, retired: map[lease.Term]bool{}}
		k.f = &faulty{Ledger: &k.ledger}
		for range 2 {
			c := &clock{start.Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "skew")) * time.Second)}
			k.clocks = append(k.clocks, c)
			k.keep = append(k.keep, &lease.Keeper{Ledger: k.f, TTL: 10 * time.Second, Sweep: 20 * time.Second, Now: c.Now, Terms: -1})
			k.refused = append(k.refused, map[lease.Term]bool{})
		}
		keeper := rapid.IntRange(0, 1)
		name := rapid.SampledFrom([]string{"a", "b"})
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				i, n := keeper.Draw(t, "keeper"), name.Draw(t, "name")
				term, err := k.keep[i].Acquire(context.Background(), n, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "holder"))
				if err != nil {
					require.ErrorIs(t, err, lease.ErrHeld)
					return
				}
				for _, old := range k.terms {
					require.Less(t, old.Epoch, term.Epoch, "epochs only rise")
				}
				k.terms = append(k.terms, term)
			},
			"refresh": func(t *rapid.T) {
				if len(k.terms) == 0 {
					t.Skip()
				}
				i, term := keeper.Draw(t, "keeper"), rapid.SampledFrom(k.terms).Draw(t, "term")
				err := k.keep[i].Refresh(term)
				require.False(t, err == nil && k.refused[i][term], "an expired holder never refreshes")
				if errors.Is(err, lease.ErrExpired) {
					k.refused[i][term] = true
				}
			},
			"commit": func(t *rapid.T) {
				if len(k.terms) == 0 {
					t.Skip()
				}
				term := rapid.SampledFrom(k.terms).Draw(t, "term")
				_, err := k.ledger.Propose(context.Background(), orbit.Proposal{
					Do: []orbit.Commitment{orbit.Mark{Key: "work", Value: "done"}},
					If: []orbit.Precondition{orbit.MarkAt{Key: k.keep[0].Key(term.Name), Revision: term.Epoch}},
				})
				require.Equal(t, k.current[term.Name] == term.Epoch, err == nil, "only under the term that the ledger has")
			},
			"step": func(t *rapid.T) {
				i := keeper.Draw(t, "keeper")
				switch rapid.IntRange(0, 3).Draw(t, "fault") {
				case 1:
					k.f.after = times(1, orbit.ErrUnknown)
				case 2:
					k.f.before = times(1, orbit.ErrUnknown)
				case 3:
					k.f.before = times(1, orbit.ErrUnavailable)
				}
				round, err := k.keep[i].Step(context.Background())
				require.Equal(t, err == nil, len(round.Errors) == 0)
				k.f.before, k.f.after = nil, nil
				for _, term := range round.Ended {
					require.ErrorIs(t, k.keep[i].Refresh(term), lease.ErrExpired)
				}
			},
			"wait": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second
				for _, c := range k.clocks {
					c.now = c.now.Add(d)
				}
			},
			"": func(t *rapid.T) { k.check(t) },
		})
		k.settle(t)
	})
}

// check compares the ledger with what it has had.
func (k *keepers) check(t *rapid.T) {
	state := snapshotT(t, &k.ledger)
	for _, n := range []string{"a", "b"} {
		term, ok := k.keep[0].In(state, n)
		if !ok {
			term = lease.Term{Name: n}
		}
		if was := k.current[n]; was != term.Epoch {
			k.retired[lease.Term{Name: n, Epoch: was}] = was != 0
			k.current[n] = term.Epoch
		}
		require.False(t, k.retired[lease.Term{Name: n, Epoch: term.Epoch}], "no term comes back")
	}
}

// settle lets everything run out: no row is left, and nothing is stuck.
func (k *keepers) settle(t *rapid.T) {
	for range 12 {
		for i, l := range k.keep {
			k.clocks[i].now = k.clocks[i].now.Add(10 * time.Second)
			_, err := l.Step(context.Background())
			require.NoError(t, err)
		}
		k.check(t)
	}
	for key, value := range snapshotT(t, &k.ledger).Marks("lease/") {
		t.Fatalf("%s is still %q", key, value)
	}
	for _, l := range k.keep {
		round, err := l.Step(context.Background())
		require.NoError(t, err)
		require.Zero(t, round.Live)
		require.True(t, round.Next.IsZero())
	}
}

// What is written is read, and nothing else is.
func TestRowsAreStrict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{time.Unix(0, rapid.Int64Range(0, 1<<60).Draw(t, "now"))}
		holder := rapid.StringMatching(`[ -~äö]{1,20}`).Draw(t, "holder")
		var ledger orbit.MemoryLedger
		l := &lease.Keeper{Ledger: &ledger, Now: c.Now}
		term, err := l.Acquire(context.Background(), "a", holder)
		require.NoError(t, err)
		in, ok := l.In(snapshotT(t, &ledger), "a")
		require.True(t, ok)
		require.Equal(t, term, in)
		require.NoError(t, l.Resign(context.Background(), term))
		value, _ := snapshotT(t, &ledger).Mark("lease/a")

		again := &lease.Keeper{Ledger: &ledger, Now: c.Now}
		round, err := again.Step(context.Background())
		require.NoError(t, err)
		require.True(t, round.Next.Equal(c.now.Add(time.Hour)))

		edited := []byte(value)
		i := rapid.IntRange(0, min(6, len(edited)-1)).Draw(t, "at")
		edited[i] ^= byte(rapid.IntRange(1, 63).Draw(t, "flip"))
		_, err = ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "lease/a", Value: string(edited)}}})
		if err != nil {
			return // not text
		}
		_, err = again.Step(context.Background())
		require.ErrorIs(t, err, lease.ErrCorrupt)
	})
}
