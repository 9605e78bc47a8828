package shard

import (
	"time"

	"github.com/orbitsched/orbit"
)

// cleared keeps how often failures of units were taken back for new room. Room is all that is looked at, and may not be
// what a unit lacks: company, or a domain. Then clearing is in vain however much comes and goes, and each time all
// schedulers would try again. So a few times are free, and further ones further and further apart; what has to wait
// is left to the retries.
type cleared map[unit]map[string]*clearing

// clearing is one scheduler's failure of a unit, or under "" those of all.
type clearing struct {
	times int
	last  time.Time
}

// freely is how many times are free.
const freely = 4

// again reports whether a failure may be taken back now, and counts it then.
func (c cleared) again(u unit, name string, pace *retries, now time.Time) bool {
	if c[u] == nil {
		c[u] = map[string]*clearing{}
	}
	one := c[u][name]
	if one == nil || now.Sub(one.last) > 2*pace.Max { // it is not often
		one = &clearing{}
		c[u][name] = one
	}
	if one.times >= freely && now.Sub(one.last) < pace.delay(one.times-freely) {
		return false
	}
	one.times, one.last = one.times+1, now
	return true
}

// sweep forgets units that do not wait.
func (c cleared) sweep(state *orbit.State) {
	for u := range c {
		if pending, _ := u.life(state); !pending {
			delete(c, u)
		}
	}
}
