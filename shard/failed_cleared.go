package shard

import (
	"time"

	"github.com/orbitsched/orbit"
)

// cleared counts how often the failures of units were cleared because of new free capacity. The dispatcher compares
// free capacity only, but a unit may lack something else, such as a node near its group. Then clearing is in vain, and
// all schedulers try the unit again each time. So the first clearings of a unit may follow each other at once, and
// later ones only after longer and longer delays. During a delay only the retries try the unit again.
type cleared map[unit]map[string]*clearing

// clearing counts the clearings of one scheduler's failure of a unit; the key "" counts those of all schedulers.
type clearing struct {
	times int
	last  time.Time
}

// freely is how many clearings are allowed without a delay.
const freely = 4

// again reports whether a failure may be cleared now, and if so counts it.
func (c cleared) again(u unit, name string, r *retries, now time.Time) bool {
	if c[u] == nil {
		c[u] = map[string]*clearing{}
	}
	one := c[u][name]
	if one == nil || now.Sub(one.last) > 2*r.pace.Max { // the last clearing is long ago: count anew
		one = &clearing{}
		c[u][name] = one
	}
	if one.times >= freely && now.Sub(one.last) < r.delay(one.times-freely) {
		return false
	}
	one.times, one.last = one.times+1, now
	return true
}

// sweep forgets units that are no longer pending.
func (c cleared) sweep(state *orbit.State) {
	for u := range c {
		if pending, _ := u.life(state); !pending {
			delete(c, u)
		}
	}
}
