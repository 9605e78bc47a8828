package shard

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// crowd returns living schedulers with their loads.
func crowd(counts ...int) (*roster, *loads) {
	names := make([]string, len(counts))
	for i := range names {
		names[i] = fmt.Sprintf("s%04d", i)
	}
	r := readRoster(nil, nil, names)
	b := &loads{owners: map[string]*ownerLoad{}}
	b.register(&r)
	for i, n := range counts {
		b.add(b.live[i], n)
	}
	return &r, b
}

func TestCandidatesAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 12).Draw(t, "loads")
		out := rapid.SliceOfNDistinct(rapid.IntRange(0, len(loads)-1), 0, len(loads)-1, rapid.ID).Draw(t, "out")
		slices.Sort(out)
		r, b := crowd(loads...)
		c := &Candidates{roster: r, loads: b, out: out}
		var want []string
		least := math.MaxInt
		for i, name := range r.names {
			if !slices.Contains(out, i) {
				want = append(want, name)
				least = min(least, loads[i])
			}
			require.Equal(t, !slices.Contains(out, i), c.Has(name))
		}
		require.Equal(t, want, slices.Collect(c.Names()))
		require.Equal(t, len(want), c.Len())
		for i, name := range want {
			require.Equal(t, name, c.Name(i))
			require.Equal(t, loads[r.at[name]], c.Load(i))
		}
		require.False(t, c.Has("unknown"))
		require.True(t, c.Has(c.Least()))
		require.Equal(t, least, loads[r.at[c.Least()]])
		cap := &orbit.Capsule{ID: "x", Spec: &orbit.Spec{Module: rapid.String().Draw(t, "module")}}
		for _, p := range []Policy{&RoundRobin{}, &Random{}, LeastLoaded{}, Hash{}} {
			for range 20 {
				require.True(t, c.Has(p.Pick(cap, c)))
			}
		}
	})
}

// TestLeastIsFair: among equal loads the one is chosen that has not changed for longest.
func TestLeastIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, b := crowd(make([]int, rapid.IntRange(1, 6).Draw(t, "schedulers"))...)
		var positions []int // in order of the last change, the oldest first
		for at := range b.live {
			positions = append(positions, at)
		}
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			at := rapid.IntRange(0, len(b.live)-1).Draw(t, "which")
			b.add(b.live[at], max(-b.live[at].count, rapid.SampledFrom([]int{-20, -3, -1, -1, 1, 1, 5}).Draw(t, "by")))
			positions = append(slices.DeleteFunc(positions, func(p int) bool { return p == at }), at)
			least := positions[0]
			for _, p := range positions {
				if b.live[p].count < b.live[least].count {
					least = p
				}
			}
			require.Equal(t, least, b.least(rapid.Permutation(positions).Draw(t, "order")))
		}
	})
}

func picks(p Policy, n int, like func(i int) *orbit.Capsule, loads ...int) map[string]int {
	r, b := crowd(loads...)
	got := map[string]int{}
	for i := range n {
		name := p.Pick(like(i), &Candidates{roster: r, loads: b})
		got[name]++
		b.add(b.live[r.at[name]], 1)
	}
	return got
}

func numbered(i int) *orbit.Capsule {
	return &orbit.Capsule{ID: orbit.CapsuleID(fmt.Sprint("x", i)), Spec: &orbit.Spec{Module: fmt.Sprint("m", i%7)}}
}

func TestPoliciesSpread(t *testing.T) {
	even := func(got map[string]int, by float64) {
		t.Helper()
		require.Len(t, got, 4)
		for name, n := range got {
			require.InDelta(t, 1000, n, by, name)
		}
	}
	even(picks(&RoundRobin{}, 4000, numbered, 0, 0, 0, 0), 0)
	even(picks(&Random{Seed: 3}, 4000, numbered, 0, 0, 0, 0), 150)
	even(picks(LeastLoaded{}, 4000, numbered, 0, 0, 0, 0), 0)
	even(picks(Hash{Of: func(c *orbit.Capsule) string { return string(c.ID) }}, 4000, numbered, 0, 0, 0, 0), 150)
	require.Equal(t, map[string]int{"s0001": 4, "s0002": 2}, picks(LeastLoaded{}, 6, numbered, 9, 0, 2, 9), "the empty one first")
	require.Equal(t, picks(&Random{Seed: 3}, 50, numbered, 0, 0, 0), picks(&Random{Seed: 3}, 50, numbered, 0, 0, 0))
	require.NotEqual(t, picks(&Random{Seed: 3}, 50, numbered, 0, 0, 0), picks(&Random{Seed: 4}, 50, numbered, 0, 0, 0))
}

func TestHashKeepsModulesTogether(t *testing.T) {
	r, b := crowd(0, 0, 0, 0, 0)
	at := map[string]string{}
	for i := range 100 {
		c := numbered(i)
		name := Hash{}.Pick(c, &Candidates{roster: r, loads: b})
		if was, known := at[c.Spec.Module]; known {
			require.Equal(t, was, name)
		}
		at[c.Spec.Module] = name
	}
	got := picks(Hash{}, 100, func(i int) *orbit.Capsule { return &orbit.Capsule{ID: numbered(i).ID, Spec: &orbit.Spec{}} }, 0, 0, 0)
	require.Len(t, got, 3, "without a module by id")
}

func TestAPolicyThatMisbehaves(t *testing.T) {
	for name, bad := range map[string]PolicyFunc{
		"panics":           func(*orbit.Capsule, *Candidates) string { panic("oh") },
		"names no one":     func(*orbit.Capsule, *Candidates) string { return "" },
		"names a stranger": func(*orbit.Capsule, *Candidates) string { return "zz" },
		"asks too much":    func(_ *orbit.Capsule, c *Candidates) string { return c.Name(c.Len()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.live("a", "b")
			s.do(orbit.Submit{IDs: ids("x", 3), Spec: cpu(1)})
			d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Policy: PolicyFunc(func(c *orbit.Capsule, among *Candidates) string {
				if c.ID == "x001" {
					return bad(c, among)
				}
				return among.Name(0)
			})}
			r := d.Step(t.Context())
			require.Equal(t, map[string]int{"a": 2}, r.Dispatched)
			require.Len(t, r.Errors, 1)
			require.ErrorIs(t, r.Errors[0], ErrPolicy)
			var what *Error
			require.ErrorAs(t, r.Errors[0], &what)
			require.Equal(t, orbit.CapsuleID("x001"), what.Capsule)
			require.False(t, r.Next.IsZero(), "it is asked again")
			require.Empty(t, d.Step(t.Context()).Errors, "it is said once")
		})
	}
}

// TestAPolicyThatWantsOneOnly: if the only scheduler that the policy chooses has failed the capsule, it counts as
// failed by all, and is tried there again later.
func TestAPolicyThatWantsOneOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.live("a", "b")
		s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)})
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Policy: PolicyFunc(func(*orbit.Capsule, *Candidates) string { return "a" })}
		s.settle(d)
		s.giveBack("a", "x000")
		r := d.Step(t.Context())
		require.Empty(t, r.Dispatched)
		require.Len(t, r.Failed, 1)
		time.Sleep(time.Second)
		r = d.Step(t.Context())
		require.Equal(t, map[string]int{"a": 1}, r.Dispatched)
		require.Equal(t, TriedAgain, r.Redispatched[0].Why)
		s.giveBack("a", "x000")
		r = d.Step(t.Context())
		require.Empty(t, r.Failed, "it is said once")
		require.False(t, r.Next.IsZero())
	})
}

func TestSelectLeavesOthersAlone(t *testing.T) {
	s := newStage(t)
	s.live("a")
	s.do(orbit.Submit{IDs: ids("x", 2), Spec: cpu(1)}, orbit.Submit{IDs: ids("y", 1), Spec: cpu(1), Owner: "an engine without a lease"})
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Select: func(c *orbit.Capsule) bool {
		if c.ID == "x001" {
			panic("oh")
		}
		return c.ID == "x000"
	}}
	r := d.Step(t.Context())
	require.Equal(t, map[string]int{"a": 1}, r.Dispatched)
	require.Len(t, r.Errors, 1)
	require.ErrorContains(t, r.Errors[0], "x001")
}
