package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
	"github.com/orbitsched/orbit/internal/send"
)

// This file has races: goroutines compete for the same capsules, nodes or marks, through both handles.

// racers is the number of goroutines of a race.
const racers = 8

// recorded runs f in each goroutine, with a recorded handle, and checks the history at the end.
func (t *trial) recorded(f func(i int, l orbit.Ledger) error) History { return t.recordedBy(racers, f) }

// recordedBy is recorded with n goroutines.
func (t *trial) recordedBy(n int, f func(i int, l orbit.Ledger) error) History {
	recorder, err := NewRecorder(t.ctx, t.ledger)
	t.Must(err, "recorder")
	handles := t.handles()
	for i := range handles {
		handles[i] = paced{recorder.Handle(handles[i]), recorder, t.limits.History / 4}
	}
	following, stop := context.WithCancel(t.ctx)
	defer stop()
	lost := make(chan error, 1)
	go func() { lost <- recorder.Follow(following) }()
	t.together(n, func(i int) error { return f(i, handles[i%len(handles)]) })
	stop()
	t.Must(<-lost, "following the history")
	h, err := recorder.History(t.ctx)
	t.Must(err, "history")
	t.Must(h.Check(), "the history and the answers")
	t.Must(t.now().Verify(), "the state at the end")
	return h
}

// inRounds is recorded with f for each round. All racers begin a round together, because a racer that is quick, or alone
// on a busy machine, would otherwise have no rivals.
func (t *trial) inRounds(rounds int, f func(racer, round int, l orbit.Ledger) error) {
	begin := make([]sync.WaitGroup, rounds)
	for k := range begin {
		begin[k].Add(racers)
	}
	t.recorded(func(i int, l orbit.Ledger) error {
		k := 0
		defer func() {
			for ; k < rounds; k++ { // nobody waits for a racer that has failed
				begin[k].Done()
			}
		}()
		for k < rounds {
			begin[k].Done()
			begin[k].Wait()
			k++
			if err := f(i, k-1, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// paced is a handle that delays proposals while the recorder is more than most changes behind. Otherwise a ledger with
// a short history would drop changes before the recorder has read them.
type paced struct {
	orbit.Ledger
	recorder *Recorder
	most     int
}

// Propose implements [orbit.Ledger].
func (l paced) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	for l.recorder.behind() > l.most && ctx.Err() == nil {
		send.Pause(ctx, time.Millisecond)
	}
	return l.Ledger.Propose(ctx, p)
}

// wins proposes, and reports true for a commit and false for a conflict. Any other answer is an error.
func (t *trial) wins(l orbit.Ledger, p orbit.Proposal) (bool, error) {
	_, err := l.Propose(t.ctx, p)
	if err == nil || errors.Is(err, orbit.ErrConflict) {
		return err == nil, nil
	}
	return false, fmt.Errorf("%s: neither committed nor a conflict: %w", harness.Describe(p), err)
}

// checkRaceOne lets all racers place the same capsules, each on a node of its own.
func checkRaceOne(t *trial) {
	rounds := t.scaled(25)
	for i := range racers {
		t.commits(node(orbit.NodeID(fmt.Sprint("n", i)), int64(rounds)))
	}
	list := ids[orbit.CapsuleID]("c", rounds)
	t.submitted(cpu(1), list...)
	view := t.view()
	t.oneWins(rounds, func(racer, round int) orbit.Proposal {
		return planned(view, place(list[round], orbit.NodeID(fmt.Sprint("n", racer))))
	})
}

// oneWins lets all racers propose in every round, and requires that exactly one of them is committed.
func (t *trial) oneWins(rounds int, plan func(racer, round int) orbit.Proposal) {
	wins := make([]atomic.Int32, rounds)
	t.inRounds(rounds, func(i, k int, l orbit.Ledger) error {
		yes, err := t.wins(l, plan(i, k))
		if yes {
			wins[k].Add(1)
		}
		return err
	})
	for k := range wins {
		if n := wins[k].Load(); n != 1 {
			t.Failf("%d of %d rivals were told that they have won, such as %s; it must be one", n, racers, harness.Describe(plan(0, k)))
		}
	}
}

// checkRaceRoom lets racers place sixteen capsules that take half a device each on eight devices. They plan on fresh
// views until all are placed.
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
				set, ok := s.Node("n").PickDevices(&orbit.Spec{Devices: orbit.DeviceRequest{Count: 1, Milli: 500}})
				if !ok {
					return fmt.Errorf("no room for %s at revision %d, where there must be some", id, s.Revision())
				}
				yes, err := t.wins(l, planned(s.Revision(), placeOn(id, "n", set)))
				if err != nil {
					return err
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
			t.Failf("device %d has %d free after sixteen halves", i, free)
		}
		t.mistakes(placeOn("c0016", "n", 1<<i))
	}
	t.commits(stopped("c0000"))
	t.lastRoom()
}

// lastRoom lets all racers compete for the free capacity that is left, by places and by holds.
func (t *trial) lastRoom() {
	t.commits(node("m", 3), submit(cpu(1), ids[orbit.CapsuleID]("d", racers)...))
	view := t.view()
	var wins atomic.Int32
	t.recorded(func(i int, l orbit.Ledger) error {
		do := []orbit.Commitment{place(orbit.CapsuleID(fmt.Sprintf("d%04d", i)), "m")}
		if i%2 == 0 {
			do = []orbit.Commitment{hold(orbit.HoldID(fmt.Sprint("h", i)), "m", 1)}
		}
		yes, err := t.wins(l, planned(view, do...))
		if yes {
			wins.Add(1)
		}
		return err
	})
	if n := wins.Load(); n != 3 || t.free("m") != 0 {
		t.Failf("%d places and holds of 1 were committed on a node of 3, which has %d free", n, t.free("m"))
	}
}

// checkRaceMarks lets all racers increment one mark by compare-and-swap.
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
			yes, err := t.wins(l, orbit.Proposal{View: s.Revision(), If: []orbit.Precondition{orbit.MarkAt{Key: "count", Revision: at}}, Do: []orbit.Commitment{mark("count", strconv.Itoa(count+1))}})
			if err != nil {
				return err
			}
			if yes {
				n++
			}
		}
		return nil
	})
	if value, _ := t.now().Mark("count"); value != strconv.Itoa(each*racers) {
		t.Failf("%d increments were committed; the mark reads %s", each*racers, value)
	}
}

// checkRaceResent lets all racers send the same proposals.
func checkRaceResent(t *trial) {
	rounds := t.scaled(20)
	t.commits(node("n", int64(2*rounds)))
	list := ids[orbit.CapsuleID]("c", rounds)
	t.submitted(cpu(1), list...)
	plan := make([]orbit.Proposal, rounds)
	for k, id := range list {
		plan[k] = planned(t.view(), place(id, "n"))
		if k%2 == 0 {
			plan[k].Do = []orbit.Commitment{hold(orbit.HoldID(id), "n", 1), mark(string(id), "v")}
		}
	}
	revs := make([][racers]orbit.Revision, rounds)
	t.recorded(func(i int, l orbit.Ledger) error {
		for k, p := range plan {
			rev, err := l.Propose(t.ctx, p)
			if err != nil {
				return fmt.Errorf("%s, which others send too: %w", harness.Describe(p), err)
			}
			revs[k][i] = rev
		}
		return nil
	})
	for k := range revs {
		for _, rev := range revs[k] {
			if rev != revs[k][0] {
				t.Failf("%s was sent by %d; they were told that it was committed at %v", harness.Describe(plan[k]), racers, revs[k])
			}
		}
	}
}

// checkRaceRelease lets all racers end the same placements and holds.
func checkRaceRelease(t *trial) {
	rounds := t.scaled(12)
	t.commits(node("n", int64(3*rounds)))
	list := ids[orbit.CapsuleID]("c", rounds)
	t.submitted(cpu(1), list...)
	var ends []orbit.Release
	for k, id := range list {
		t.commits(place(id, "n"), hold(orbit.HoldID(id), "n", 1))
		ends = append(ends, orbit.Release{Capsule: id, Final: k%2 == 0, Stopped: k%2 != 0}, unhold(orbit.HoldID(id)))
	}
	view := t.view()
	t.oneWins(len(ends), func(_, round int) orbit.Proposal {
		return planned(view, ends[round])
	})
	if used := t.member("n").Used(); used != (orbit.Resources{}) {
		t.Failf("%v is used on a node on which nothing is", used)
	}
}

// checkRaceLeave lets one racer remove a node and add it again, while the others place capsules on it and release them.
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
				p.Do = append(p.Do, lost("n"))
				for c := range s.On("n") {
					p.Do = append(p.Do, orbit.Release{Capsule: c.ID, From: "n"})
				}
				p.Do = append(p.Do, orbit.RemoveNode{Node: "n"})
			case s.Capsule(id).Placed():
				p.Do = append(p.Do, stopped(id))
			case member != nil:
				p.If = append(p.If, orbit.NodeAt{Node: "n", Specification: member.Specification})
				p.Do = append(p.Do, place(id, "n"))
			default:
				continue
			}
			if _, err = t.wins(l, p); err != nil {
				return err
			}
		}
		return nil
	})
}
