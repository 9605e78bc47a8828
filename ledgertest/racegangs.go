package ledgertest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/orbitsched/orbit"
)

// checkRaceGangs lets goroutines place and release two gangs of which only one fits, while others read.
func checkRaceGangs(t *trial) {
	t.commits(node("n", 3), node("m", 3), crew("g0"), crew("g1"))
	steps := t.scaled(25)
	var placed atomic.Int32
	h := t.recorded(func(i int, l orbit.Ledger) error {
		for k := range steps {
			s, err := l.Snapshot(t.ctx)
			if err != nil {
				return err
			}
			if err := torn(s); err != nil {
				return err
			}
			if i == 0 {
				continue // the first racer only reads
			}
			p := gangTurn(s, orbit.GangID(fmt.Sprint("g", i%2)), k)
			yes, err := t.wins(l, p)
			if errors.Is(err, orbit.ErrInfeasible) {
				continue // the proposal places too few members, or the other gang has the room
			}
			if err != nil {
				return err
			}
			if _, ok := p.Do[0].(orbit.Place); ok && yes {
				placed.Add(1)
			}
		}
		return nil
	})
	if placed.Load() == 0 {
		t.Failf("neither of two gangs was ever placed; there is room for one")
	}
	t.ever(h, torn)
}

// ever calls look with the state at every revision.
func (t *trial) ever(h History, look func(*orbit.State) error) {
	s := h.Base
	for list := h.Changes; len(list) > 0; {
		n := 1
		for n < len(list) && list[n].Revision == list[0].Revision {
			n++
		}
		next, err := s.Apply(list[:n])
		t.Must(err, "applying the history")
		t.Must(look(next), "a state of the past")
		s, list = next, list[n:]
	}
}

// gangTurn returns the next proposal for a gang. It places a gang without placed members: whole, with its minimum, or
// with too few. It releases all members of any other gang, and bets that no node has changed.
func gangTurn(s *orbit.State, id orbit.GangID, k int) orbit.Proposal {
	p := orbit.Proposal{View: s.Revision()}
	g := s.Gang(id)
	size := []int{4, 3, 4, 2}[k%4]
	for i, member := range []string{"b", "x", "y", "z"} {
		c := s.Capsule(orbit.CapsuleID(string(id) + member))
		switch {
		case c.Placed():
			p.Do = append(p.Do, stopped(c.ID))
		case g.Total() == 0 && i < size:
			p.Do = append(p.Do, place(c.ID, []orbit.NodeID{"n", "m"}[i%2]))
		}
	}
	for n := range s.Nodes() {
		if g.Total() > 0 {
			p.If = append(p.If, orbit.NodeAt{Node: n.Node.ID, Usage: n.Usage, Specification: n.Specification})
		}
	}
	return p
}

// torn returns an error if a gang has some placed members, but fewer than the minimum with which it may begin. The race
// never releases single members.
func torn(s *orbit.State) error {
	for g := range s.Gangs() {
		n := 0
		for c := range s.Capsules() {
			if c.Gang() == g.Gang.ID && c.Placed() {
				n++
			}
		}
		if n != g.Total() || n > 0 && (g.Placed[0] < 1 || g.Placed[1] < 2) {
			return fmt.Errorf("at revision %d gang %q has %v placed, by recount %d; it must have 1 and 2, or more, or none", s.Revision(), g.Gang.ID, g.Placed, n)
		}
	}
	return nil
}
