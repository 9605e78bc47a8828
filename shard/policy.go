package shard

import (
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// Policy chooses the scheduler for a capsule without a living owner. For a gang it is asked once, with the first
// pending member. It returns the name of one of the candidates; "" or any other name puts the capsule off and is
// reported. It is called from one Step at a time and must not block. If it panics, or exits its goroutine, only the
// capsule that it was asked for is put off.
//
// The package has four policies: [RoundRobin], [Random], [Hash] and [LeastLoaded].
type Policy interface {
	Pick(c *orbit.Capsule, among *Candidates) string
}

// PolicyFunc is a function that is a [Policy].
type PolicyFunc func(c *orbit.Capsule, among *Candidates) string

// Pick calls f.
func (f PolicyFunc) Pick(c *orbit.Capsule, among *Candidates) string { return f(c, among) }

// Candidates are the living schedulers that have not failed to place the capsule, numbered from 0 to Len-1 in the order
// of their names. They are valid until Pick returns.
type Candidates struct {
	roster *roster
	loads  *loads
	// out are the positions in the roster that are no candidates, sorted.
	out []int
}

// Len returns the number of candidates, which is at least one.
func (c *Candidates) Len() int { return len(c.roster.names) - len(c.out) }

// position returns the position in the roster of candidate i.
func (c *Candidates) position(i int) int {
	for _, out := range c.out {
		if i >= out {
			i++
		}
	}
	return i
}

// Name returns the name of candidate i.
func (c *Candidates) Name(i int) string { return c.roster.names[c.position(i)] }

// Load returns how many pending capsules candidate i owns, including those that this step assigns to it.
func (c *Candidates) Load(i int) int { return c.loads.live[c.position(i)].count }

// Has reports whether a scheduler is a candidate.
func (c *Candidates) Has(name string) bool {
	at, lives := c.roster.at[name]
	return lives && !c.isOut(at)
}

func (c *Candidates) isOut(at int) bool {
	_, out := slices.BinarySearch(c.out, at)
	return out
}

// Names yields the names of all candidates, sorted.
func (c *Candidates) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for at, name := range c.roster.names {
			if !c.isOut(at) && !yield(name) {
				return
			}
		}
	}
}

// Least returns the name of the candidate that owns the fewest pending capsules; among equals the one whose number has
// not changed for longest.
func (c *Candidates) Least() string {
	positions := make([]int, c.Len())
	for i := range positions {
		positions[i] = c.position(i)
	}
	return c.roster.names[c.loads.least(positions)]
}

// RoundRobin chooses one scheduler after the other. It is the default.
type RoundRobin struct{ next uint64 }

// Pick returns the next candidate.
func (p *RoundRobin) Pick(_ *orbit.Capsule, among *Candidates) string {
	p.next++
	return among.Name(int((p.next - 1) % uint64(among.Len())))
}

// Random chooses a random scheduler.
type Random struct {
	// Seed is the seed of the random numbers; default 0. The same Seed makes the same choices.
	Seed uint64

	rng *rand.Rand
}

// Pick returns a random candidate.
func (p *Random) Pick(_ *orbit.Capsule, among *Candidates) string {
	if p.rng == nil {
		p.rng = rand.New(rand.NewPCG(p.Seed, 0))
	}
	return among.Name(p.rng.IntN(among.Len()))
}

// LeastLoaded chooses the scheduler that owns the fewest pending capsules.
type LeastLoaded struct{}

// Pick returns [Candidates.Least].
func (LeastLoaded) Pick(_ *orbit.Capsule, among *Candidates) string { return among.Least() }

// Hash assigns all capsules with the same text to the same scheduler, as long as the set of living schedulers does not
// change; when a scheduler joins or leaves, most texts go to another one from then on. With the module as text, one
// scheduler gets all capsules of a module and computes each equivalence class once, but a module may have more capsules
// than one scheduler can place in time. With the capsule's id as text the spread is even, and the same after a restart.
type Hash struct {
	// Of returns the text of a capsule; nil: the module of its spec, or its id if the module is empty.
	Of func(*orbit.Capsule) string
}

// Pick returns the candidate that the text's hash (FNV-1a, 64 bits) selects.
func (p Hash) Pick(c *orbit.Capsule, among *Candidates) string {
	text := c.Spec.Module
	if p.Of != nil {
		text = p.Of(c)
	} else if text == "" {
		text = string(c.ID)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return among.Name(int(mix(h.Sum64()) % uint64(among.Len())))
}

// mix makes hashes that differ in a few bits differ in many (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ask asks a policy and returns a position in the roster. An importer's policy runs in a goroutine of its own, because
// it may panic; the package's own policies do not need that.
func ask(p Policy, c *orbit.Capsule, among *Candidates) (at int, err error) {
	name := ""
	switch p.(type) {
	case *RoundRobin, *Random, LeastLoaded, Hash:
		name = p.Pick(c, among)
	default:
		if crash := guard.Do(func() { name = p.Pick(c, among) }); crash != nil {
			return -1, policyError(c, "", crash)
		}
	}
	if !among.Has(name) {
		return -1, policyError(c, name, nil)
	}
	return among.roster.at[name], nil
}
