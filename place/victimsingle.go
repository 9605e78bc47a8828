package place

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/victims"
)

// victimSingle is a capsule of the lowest priority of a block, with what would be free on its node if that capsule
// alone left. So a block is not searched where one victim seems to be enough but no capsule is large enough, or only
// old ones are.
type victimSingle struct {
	start int64
	// The node, by its index.
	slot    int32
	room    orbit.Resources
	devices freeDevices
}

// mostSingles is the largest number of singles that a block keeps of one node. The last of them then stands for all
// older capsules of the node too.
const mostSingles = 8

// takeSingles adds the singles of a node to those of its block. It leaves out a capsule that releases no more than a
// newer one on the node, because the newer one is the better victim.
func (b *victimBlock) takeSingles(v *victimNode, slot int32) {
	var own [mostSingles]victimSingle
	n := 0
	for i := range v.capsules {
		c := &v.capsules[i]
		if len(b.bands) == 0 || c.spec.Priority != b.bands[0].least {
			break // capsules are listed by rising priority
		}
		s := victimSingle{c.start, slot, v.free, v.devices}
		for d, x := range c.spec.Envelope.Reservation {
			s.room[d] += x
		}
		s.devices.add(&c.spec.Devices)
		switch {
		case slices.ContainsFunc(own[:n], func(newer victimSingle) bool { return newer.covers(&s) }):
		case n == mostSingles:
			own[n-1].room, own[n-1].devices = most(own[n-1].room, s.room), own[n-1].devices.most(s.devices)
		default:
			own[n] = s
			n++
		}
	}
	b.singles = append(b.singles, own[:n]...)
}

// sortSingles puts the singles in order, newest first.
func (b *victimBlock) sortSingles() {
	slices.SortFunc(b.singles, func(a, b victimSingle) int { return cmp.Compare(b.start, a.start) })
}

// covers reports whether s leaves free at least what o leaves free, in every dimension.
func (s *victimSingle) covers(o *victimSingle) bool {
	for d := range s.room {
		if s.room[d] < o.room[d] {
			return false
		}
	}
	return s.devices.milli >= o.devices.milli && s.devices.whole >= o.devices.whole
}

// boundSingle raises a key that bound has returned for the block, if that key assumes a single victim of the lowest
// priority. It looks for the newest single that is enough alone, whose start bounds the start of the victim. If none is
// enough, there are at least two victims.
func (b *victimBlock) boundSingle(q *evictSearch, key victims.Key) victims.Key {
	if key.Count != 1 || len(b.bands) == 0 || b.bands[0].least != b.bands[0].most || key.Highest != int64(b.bands[0].least) {
		return key
	}
	for i := range b.singles {
		if s := &b.singles[i]; q.serves(&s.room, s.devices) {
			key.Start = min(key.Start, s.start)
			return key
		}
	}
	key.Count, key.Sum = 2, 2*victims.Weight(b.bands[0].least)
	return key
}

// boundAlone raises a key that bound has returned for the node and that assumes a single victim. It looks for the
// newest capsule of the lowest possible priority that is enough alone. If none is enough, there are at least two
// victims.
func (v *victimNode) boundAlone(q *evictSearch, key victims.Key) victims.Key {
	for i := range v.capsules {
		c := &v.capsules[i]
		if c.spec.Priority >= q.ceiling {
			break
		}
		if int64(c.spec.Priority) < key.Highest {
			continue
		}
		free, devices := v.free, v.devices
		for _, w := range q.wants {
			free[w.dim] += c.spec.Envelope.Reservation[w.dim]
		}
		devices.add(&c.spec.Devices)
		if q.serves(&free, devices) {
			if int64(c.spec.Priority) == key.Highest {
				key.Start = min(key.Start, c.start)
			}
			return key
		}
	}
	key.Count, key.Sum = 2, key.Sum+victims.Weight(v.bands[0].least)
	return key
}
