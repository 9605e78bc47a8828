package navtest

import (
	"cmp"
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: a navigator that claims work of GangClass places a gang whole, or at least the minimum of every role, in
// one proposal. The members are in one domain of the first of the gang's levels on which they fit, unless the levels
// are only preferred. A gang that has fallen short is topped up. Any other navigator places no member of a gang.

func checkGangs(t *trial) {
	if !t.gangs() {
		t.leavesGangsAlone()
		return
	}
	t.scripts(nil, (*call).torn)
	for _, p := range t.mine {
		if p.class == orbit.GangClass {
			t.levels(p)
			t.minimum(p)
			t.halves(p)
		}
	}
}

// leavesGangsAlone submits gangs that the navigator must not place. Some have a class that it claims or are assigned to
// it.
func (t *trial) leavesGangsAlone() {
	w := t.world()
	w.racks(t.plenty())
	gang := func(owner string, p pair) {
		w.submitGang(owner, &orbit.Gang{Roles: []orbit.Role{{Name: "all", Spec: small(p), Members: make([]orbit.CapsuleID, 3), Min: 1}}})
	}
	for _, p := range t.mine {
		gang("", p)
		gang(me, p)
	}
	for _, module := range t.suite.Modules {
		gang("", pair{module, orbit.GangClass})
		gang(me, pair{module, orbit.GangClass})
	}
	w.passes(3, func(c *call) error {
		for _, place := range c.places() {
			if capsule := c.state.Capsule(place.Capsule); capsule != nil && capsule.Gang() != "" {
				return c.fault("capsule %q is placed; it is a member of gang %q, and the navigator does not claim gangs", place.Capsule, capsule.Gang())
			}
		}
		return c.unaccounted()
	})
}

// levels makes three racks of four nodes, two of the racks in one block, with one node of the first rack in use. It
// submits gangs of whole nodes that fit on a rack, on a block, or only on all nodes.
func (t *trial) levels(p pair) {
	for _, fits := range []struct {
		members int
		on      string
		gang    orbit.Gang
	}{
		{4, "rack", orbit.Gang{Levels: []string{"rack", "block"}}},
		{7, "block", orbit.Gang{Levels: []string{"rack", "block"}}},
		{11, "zone", orbit.Gang{Levels: []string{"rack"}, Loose: true}},
		{11, "zone", orbit.Gang{}},
		{5, "", orbit.Gang{Levels: []string{"rack"}}},
	} {
		t.Where = fmt.Sprintf("a gang of %d whole nodes, of which racks have 3, 4 and 4: ", fits.members)
		w := t.world()
		w.racks(4)
		_, err := w.occupy("node-r0-00", whole(p).Envelope.Reservation, "")
		t.Must(err)
		fits.gang.Roles = []orbit.Role{{Name: "all", Spec: whole(p), Members: make([]orbit.CapsuleID, fits.members)}}
		ids := w.submitGang("", &fits.gang)
		if fits.on == "" {
			w.until(3, func(c *call) error { return cmp.Or(c.torn(), c.unaccounted()) }, func(s *orbit.State) bool { return s.Gang(fits.gang.ID).Total() > 0 })
			if w.state().Gang(fits.gang.ID).Total() > 0 {
				t.Failf("it is placed, though it must be on one rack")
			}
			continue
		}
		w.passUntilPlaced("it fits on one "+fits.on, ids, (*call).torn)
		if _, one := shared(w.state().Gang(fits.gang.ID), fits.on, onState(w.state())); !one {
			t.Failf("it is not on one %s, though there it fits", fits.on)
		}
	}
}

// minimum first has enough nodes for a gang's minimum in each rack, and then for the whole gang in each. At the end the
// gang loses a member.
func (t *trial) minimum(p pair) {
	t.Where = "a gang of 6 whole nodes, at least 3, where a rack has 4: "
	w := t.world()
	w.racks(4)
	gang := &orbit.Gang{Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "all", Spec: whole(p), Members: make([]orbit.CapsuleID, 6), Min: 3}}}
	ids := w.submitGang("", gang)
	if !w.until(t.suite.Passes, (*call).torn, func(s *orbit.State) bool { return s.Gang(gang.ID).Total() >= 3 }) {
		t.Failf("its minimum fits, and it is not placed after %d passes; %s", t.suite.Passes, w.said(w.firstPending(ids)))
	}
	for rack := range 3 {
		for i := range 2 {
			w.put(large(fmt.Sprintf("node-more-r%d-%d", rack, i), fmt.Sprint("r", rack), fmt.Sprint("b", rack/2)))
		}
	}
	w.passUntilPlaced("there is room for the rest on its rack", ids, (*call).torn)
	w.evict(ids[4:5])
	w.passUntilPlaced("it has lost a member, and there is room for it", ids, (*call).torn)
}

// halves has enough nodes for one of two gangs. One gang must be placed, and the other one when the first has ended.
func (t *trial) halves(p pair) {
	t.Where = "two gangs of 4 whole nodes, of which there are 6: "
	w := t.world()
	w.racks(2)
	gangs := [2]*orbit.Gang{}
	for i := range gangs {
		gangs[i] = &orbit.Gang{Roles: []orbit.Role{{Name: "all", Spec: whole(p), Members: make([]orbit.CapsuleID, 4)}}}
		w.submitGang("", gangs[i])
	}
	placed := func(s *orbit.State) int { return s.Gang(gangs[0].ID).Total() + s.Gang(gangs[1].ID).Total() }
	if !w.until(t.suite.Passes, (*call).torn, func(s *orbit.State) bool { return placed(s) == 4 }) {
		t.Failf("one fits, and none is placed after %d passes", t.suite.Passes)
	}
	first, second := gangs[0], gangs[1]
	if w.state().Gang(first.ID).Total() == 0 {
		first, second = second, first
	}
	w.commit(final(first.Roles[0].Members)...)
	w.passUntilPlaced("the first one has ended", second.Roles[0].Members, (*call).torn)
}
