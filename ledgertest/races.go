package ledgertest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/orbitsched/orbit"
)

// Many goroutines at the same thing, over both handles.

// racers is how many run at once.
const racers = 8

// recorded runs f in many goroutines, each with a handle of its own on record, and checks the history in the end.
func (t *trial) recorded(f func(i int, l orbit.Ledger) error) {
	recorder, err := NewRecorder(t.ctx, t.ledger)
	t.must(err, "recorder")
	handles := t.handles()
	for i := range handles {
		handles[i] = recorder.Handle(handles[i])
	}
	t.together(racers, func(i int) error { return f(i, handles[i%len(handles)]) })
	h, err := recorder.History(t.ctx)
	t.must(err, "history")
	t.must(h.Check(), "the history and the answers")
	t.must(t.now().Verify(), "the state at the end")
}

// won tells a commit from a conflict; everything else is an error.
func won(err error) (bool, error) {
	if err == nil || errors.Is(err, orbit.ErrConflict) {
		return err == nil, nil
	}
	return false, fmt.Errorf("neither committed nor a conflict: %w", err)
}

// checkRaceOne lets all place the same capsules, each on a node of its own.
func checkRaceOne(t *trial) {
	rounds := t.scaled(25)
	for i := range racers {
		t.commits(node(orbit.NodeID(fmt.Sprint("n", i)), int64(rounds)))
	}
	list := ids[orbit.CapsuleID]("c", rounds)
	t.submitted(cpu(1), list...)
	view, wins := t.view(), make([]atomic.Int32, rounds)
	t.recorded(func(i int, l orbit.Ledger) error {
		for k, id := range list {
			_, err := l.Propose(t.ctx, orbit.Proposal{View: view, Do: []orbit.Commitment{place(id, orbit.NodeID(fmt.Sprint("n", i)))}})
			yes, err := won(err)
			if err != nil {
				return fmt.Errorf("capsule %s: %w", id, err)
			}
			if yes {
				wins[k].Add(1)
			}
		}
		return nil
	})
	for k := range wins {
		if n := wins[k].Load(); n != 1 {
			t.failf("%d of %d that wanted capsule %s were told that they have it; it must be one", n, racers, list[k])
		}
	}
}

// checkRaceRoom lets sixteen halves, and holds, compete for eight devices, planned on fresh views until each is in, or
// nothing is left.
func checkRaceRoom(t *trial) {
	t.commits(gpuNode("n", 8), submit(gpu(1, 500), ids[orbit.CapsuleID]("c", 18)...))
	var in atomic.Int32
	t.recorded(func(i int, l orbit.Ledger) error {
		for _, id := range []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("c%04d", 2*i)), orbit.CapsuleID(fmt.Sprintf("c%04d", 2*i+1))} {
			for {
				s, err := l.Snapshot(t.ctx)
				if err != nil {
					return err
				}
				set, ok := s.Node("n").PickDevices(orbit.DeviceRequest{Count: 1, Milli: 500})
				if !ok {
					return fmt.Errorf("no room for %s at revision %d, where there must be some", id, s.Revision())
				}
				_, err = l.Propose(t.ctx, orbit.Proposal{View: s.Revision(), Do: []orbit.Commitment{placeOn(id, "n", set)}})
				yes, err := won(err)
				if err != nil {
					return fmt.Errorf("capsule %s on devices %b: %w", id, set, err)
				}
				if yes {
					in.Add(1)
					break
				}
			}
		}
		return nil
	})
	for i := range 8 {
		if free := t.member("n").DeviceFree(i); free != 0 {
			t.failf("device %d has %d free after sixteen halves", i, free)
		}
		t.mistakes(placeOn("c0016", "n", 1<<i))
	}
	t.commits(release("c0000"))
	t.lastRoom()
}

// lastRoom lets all want the room that is left, once as a place and once as a hold.
func (t *trial) lastRoom() {
	t.commits(node("m", 3), submit(cpu(1), ids[orbit.CapsuleID]("d", racers)...))
	view := t.view()
	var wins atomic.Int32
	t.recorded(func(i int, l orbit.Ledger) error {
		do := []orbit.Commitment{place(orbit.CapsuleID(fmt.Sprintf("d%04d", i)), "m")}
		if i%2 == 0 {
			do = []orbit.Commitment{hold(orbit.HoldID(fmt.Sprint("h", i)), "m", 1)}
		}
		_, err := l.Propose(t.ctx, orbit.Proposal{View: view, Do: do})
		yes, err := won(err)
		if yes {
			wins.Add(1)
		}
		return err
	})
	if n := wins.Load(); n != 3 || t.free("m") != 0 {
		t.failf("%d places and holds of 1 were committed on a node of 3, which has %d free", n, t.free("m"))
	}
}

// checkRaceGangs lets all place and take down two gangs of which only one fits, under the eyes of readers.
func checkRaceGangs(t *trial) {
	t.commits(node("n", 3), node("m", 3), crew("g0"), crew("g1"))
	steps := t.scaled(25)
	var placed atomic.Int32
	t.recorded(func(i int, l orbit.Ledger) error {
		for k := range steps {
			s, err := l.Snapshot(t.ctx)
			if err != nil {
				return err
			}
			if err := torn(s); err != nil {
				return err
			}
			if i == 0 {
				continue // reads only
			}
			p := gangTurn(s, orbit.GangID(fmt.Sprint("g", i%2)), k)
			_, err = l.Propose(t.ctx, p)
			if errors.Is(err, orbit.ErrInfeasible) {
				continue // too few, or no room for the other gang
			}
			yes, err := won(err)
			if err != nil {
				return fmt.Errorf("%s: %w", describe(p), err)
			}
			if _, ok := p.Do[0].(orbit.Place); ok && yes {
				placed.Add(1)
			}
		}
		return nil
	})
	if placed.Load() == 0 {
		t.failf("neither of two gangs was ever placed; there is room for one")
	}
	t.history(torn)
}

// history looks at every state that there has been in this case.
func (t *trial) history(look func(*orbit.State) error) {
	s := t.base
	for list := t.changes(t.ledger, s.Revision()); len(list) > 0; {
		n := 1
		for n < len(list) && list[n].Revision == list[0].Revision {
			n++
		}
		next, err := s.Apply(list[:n])
		t.must(err, "applying the history")
		t.must(look(next), "a state of the past")
		s, list = next, list[n:]
	}
}

// gangTurn places a gang that is down, whole, or with its minimum, or with too few; or takes one that is up down at one
// stroke, betting that nothing has changed.
func gangTurn(s *orbit.State, id orbit.GangID, k int) orbit.Proposal {
	p := orbit.Proposal{View: s.Revision()}
	g := s.Gang(id)
	size := []int{4, 3, 4, 2}[k%4]
	for i, member := range []string{"b", "x", "y", "z"} {
		c := s.Capsule(orbit.CapsuleID(string(id) + member))
		switch {
		case c.Placed():
			p.Do = append(p.Do, release(c.ID))
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

// torn says which gang has fewer members than it may begin with, and yet some. Nobody in this case takes single ones down.
func torn(s *orbit.State) error {
	for g := range s.Gangs() {
		n := 0
		for c := range s.Capsules() {
			if c.Gang == g.Gang.ID && c.Placed() {
				n++
			}
		}
		if n != g.Total() || n > 0 && (g.Placed[0] < 1 || g.Placed[1] < 2) {
			return fmt.Errorf("at revision %d gang %q has %v placed, by recount %d; it must have 1 and 2, or more, or none", s.Revision(), g.Gang.ID, g.Placed, n)
		}
	}
	return nil
}

// checkRaceMarks counts with a compare-and-swap on one mark.
func checkRaceMarks(t *trial) {
	each := t.scaled(10)
	t.commits(mark("count", "0"))
	t.recorded(func(_ int, l orbit.Ledger) error {
		for n := 0; n < each; {
			s, err := l.Snapshot(t.ctx)
			if err != nil {
				return err
			}
			value, at := s.Mark("count")
			var count int
			if _, err := fmt.Sscan(value, &count); err != nil {
				return fmt.Errorf("the mark reads %q: %w", value, err)
			}
			_, err = l.Propose(t.ctx, orbit.Proposal{View: s.Revision(), If: []orbit.Precondition{orbit.MarkAt{Key: "count", Revision: at}}, Do: []orbit.Commitment{mark("count", fmt.Sprint(count+1))}})
			yes, err := won(err)
			if err != nil {
				return err
			}
			if yes {
				n++
			}
		}
		return nil
	})
	if value, _ := t.now().Mark("count"); value != fmt.Sprint(each*racers) {
		t.failf("%d increments were committed; the mark reads %s", each*racers, value)
	}
}

// checkRaceResent lets all send the same proposals.
func checkRaceResent(t *trial) {
	rounds := t.scaled(20)
	t.commits(node("n", int64(2*rounds)))
	list := ids[orbit.CapsuleID]("c", rounds)
	t.submitted(cpu(1), list...)
	plan := make([]orbit.Proposal, rounds)
	for k, id := range list {
		plan[k] = orbit.Proposal{ID: orbit.NewProposalID(), View: t.view(), Do: []orbit.Commitment{place(id, "n")}}
		if k%2 == 0 {
			plan[k].Do = []orbit.Commitment{hold(orbit.HoldID(id), "n", 1), mark(string(id), "v")}
		}
	}
	revs := make([][racers]orbit.Revision, rounds)
	t.recorded(func(i int, l orbit.Ledger) error {
		for k, p := range plan {
			rev, err := l.Propose(t.ctx, p)
			if err != nil {
				return fmt.Errorf("%s, which others send too: %w", describe(p), err)
			}
			revs[k][i] = rev
		}
		return nil
	})
	for k := range revs {
		for _, rev := range revs[k] {
			if rev != revs[k][0] {
				t.failf("%s was sent by %d; they were told that it was committed at %v", describe(plan[k]), racers, revs[k])
			}
		}
	}
}

// checkRaceRelease lets all end the same placements and holds.
func checkRaceRelease(t *trial) {
	rounds := t.scaled(12)
	t.commits(node("n", int64(3*rounds)))
	list := ids[orbit.CapsuleID]("c", rounds)
	t.submitted(cpu(1), list...)
	var ends []orbit.Release
	for k, id := range list {
		t.commits(place(id, "n"), hold(orbit.HoldID(id), "n", 1))
		ends = append(ends, orbit.Release{Capsule: id, Final: k%2 == 0}, unhold(orbit.HoldID(id)))
	}
	view, wins := t.view(), make([]atomic.Int32, len(ends))
	t.recorded(func(_ int, l orbit.Ledger) error {
		for k, end := range ends {
			_, err := l.Propose(t.ctx, orbit.Proposal{View: view, Do: []orbit.Commitment{end}})
			yes, err := won(err)
			if err != nil {
				return fmt.Errorf("%+v: %w", end, err)
			}
			if yes {
				wins[k].Add(1)
			}
		}
		return nil
	})
	for k := range wins {
		if n := wins[k].Load(); n != 1 {
			t.failf("%d of %d were told that they have ended %+v; it must be one", n, racers, ends[k])
		}
	}
	if used := t.member("n").Used(); used != (orbit.Resources{}) {
		t.failf("%v is used on a node on which nothing is", used)
	}
}

// checkRaceLeave lets one remove a node and put it back, while the others place on it and leave it.
func checkRaceLeave(t *trial) {
	steps := t.scaled(25)
	t.commits(node("n", racers), submit(cpu(1), ids[orbit.CapsuleID]("c", racers)...))
	t.recorded(func(i int, l orbit.Ledger) error {
		id := orbit.CapsuleID(fmt.Sprintf("c%04d", i))
		for range steps {
			s, err := l.Snapshot(t.ctx)
			if err != nil {
				return err
			}
			p := orbit.Proposal{View: s.Revision()}
			switch member := s.Node("n"); {
			case i == 0 && member == nil:
				p.Do = append(p.Do, node("n", racers))
			case i == 0:
				for c := range s.On("n") {
					p.Do = append(p.Do, orbit.Release{Capsule: c.ID, From: "n"})
				}
				p.Do = append(p.Do, orbit.RemoveNode{Node: "n"})
			case s.Capsule(id).Placed():
				p.Do = append(p.Do, release(id))
			case member != nil:
				p.If = append(p.If, orbit.NodeAt{Node: "n", Specification: member.Specification})
				p.Do = append(p.Do, place(id, "n"))
			default:
				continue
			}
			if _, err = l.Propose(t.ctx, p); err != nil {
				if _, err = won(err); err != nil {
					return fmt.Errorf("%s: %w", describe(p), err)
				}
			}
		}
		return nil
	})
}
