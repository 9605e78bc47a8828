package shard

import (
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// Policy chooses the scheduler for a capsule that is nobody's. For a gang it is asked once, with the first of its
// members that waits. It returns one of the candidates' names; "" or any other name leaves the capsule for later, and
// is reported. It is called from one Step at a time and must not block. One that panics, or exits its goroutine, loses
// the capsule that it was asked for until later, and nothing else.
//
// Ready ones: [RoundRobin], [Random], [Hash], and [LeastLoaded], which compares the schedulers.
type Policy interface {
	Pick(c *orbit.Capsule, among *Candidates) string
}

// PolicyFunc makes a policy of the importer's own function.
type PolicyFunc func(c *orbit.Capsule, among *Candidates) string

// Pick calls f.
func (f PolicyFunc) Pick(c *orbit.Capsule, among *Candidates) string { return f(c, among) }

// Candidates are the schedulers that live and have not failed the capsule, numbered from 0 to Len in order of their
// names. They are good until Pick returns.
type Candidates struct {
	roster *roster
	loads  *loads
	// Positions in the roster that are no candidates, in order.
	out []int
}

// Len returns how many there are; at least one while a policy is asked.
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

// Load returns how many capsules wait at candidate i, those included that have been given to it in this step.
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

// Names yields all names, in order.
func (c *Candidates) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for at, name := range c.roster.names {
			if !c.isOut(at) && !yield(name) {
				return
			}
		}
	}
}

// Least returns the name of the candidate at which the fewest capsules wait; among equals the one that has been so for
// longest.
func (c *Candidates) Least() string {
	positions := make([]int, c.Len())
	for i := range positions {
		positions[i] = c.position(i)
	}
	return c.roster.names[c.loads.least(positions)]
}

// RoundRobin gives to one scheduler after the other. It is the default.
type RoundRobin struct{ next uint64 }

// Pick returns the next one.
func (p *RoundRobin) Pick(_ *orbit.Capsule, among *Candidates) string {
	p.next++
	return among.Name(int((p.next - 1) % uint64(among.Len())))
}

// Random gives to a random scheduler. The same Seed makes the same choices.
type Random struct {
	Seed uint64

	rng *rand.Rand
}

// Pick returns a random one.
func (p *Random) Pick(_ *orbit.Capsule, among *Candidates) string {
	if p.rng == nil {
		p.rng = rand.New(rand.NewPCG(p.Seed, 0))
	}
	return among.Name(p.rng.IntN(among.Len()))
}

// LeastLoaded gives to the scheduler at which the fewest capsules wait.
type LeastLoaded struct{}

// Pick returns [Candidates.Least].
func (LeastLoaded) Pick(_ *orbit.Capsule, among *Candidates) string { return among.Least() }

// Hash gives all capsules with the same text to the same scheduler, as long as the same ones live; when one joins or
// leaves, most texts change theirs, for capsules to come. By module, a scheduler sees all of a module and computes each
// of its classes once, but a module may be more than one scheduler can place in time. By the capsule's id the spread
// is as even as chance, and no different after a restart.
type Hash struct {
	// Of returns the text; nil: the module of the spec, or the capsule's id where that is empty.
	Of func(*orbit.Capsule) string
}

// Pick returns the one that the text's hash (FNV-1a, 64 bits) falls on.
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

// mix spreads what differs in few bits over all (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ask asks a policy. One of the importer's own is contained, which costs more than a ready one.
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
