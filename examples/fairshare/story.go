package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// begin is when the day begins, and ticks is how long it lasts.
const (
	begin = 16 * time.Hour
	ticks = int(24 * time.Hour / tick)
)

// hour returns the hour of the day at a tick.
func hour(i int) int { return int((begin + time.Duration(i)*tick) / time.Hour % 24) }

// wants is how many GPUs each queue would use for tasks in an hour of the day.
func wants(q *queue, hour int) int {
	day, evening := hour >= 8 && hour < 19, hour >= 20
	switch {
	case q == research:
		return 150
	case q == ads && day:
		return 40
	case q == ads:
		return 4
	case q == maps && day, q == vision && day:
		return 24
	case q == vision && evening:
		return 120
	}
	return 0
}

// event is what happens at a tick, and what followed from it.
type event struct {
	tick       int
	what       string
	gaveBack   amounts
	from, upTo amounts
}

// The hours at which something happens.
var happens = map[int]string{
	19: "product goes home: its tasks end",
	20: "vision sweeps parameters with 120 tasks",
	2:  "vision starts a gang of 64 GPUs",
	5:  "the gang is done",
	8:  "product is back",
}

// day plays a day.
func (w *world) day(ctx context.Context) error {
	for i := range ticks {
		now := time.Duration(i) * tick
		err := w.end(ctx, i, now)
		if err == nil {
			err = w.submit(ctx, i)
		}
		if err == nil {
			err = w.step(ctx, i, now)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", clock(i), err)
		}
	}
	return nil
}

// clock returns the time of day of a tick.
func clock(i int) string {
	at := begin + time.Duration(i)*tick
	return fmt.Sprintf("%02d:%02d", int(at/time.Hour)%24, int(at%time.Hour/time.Minute))
}

// at reports whether a tick is the first of an hour.
func at(i, h int) bool { return hour(i) == h && (i == 0 || hour(i-1) != h) }

// end ends the tasks whose time has come, and the gang.
func (w *world) end(ctx context.Context, i int, now time.Duration) error {
	state, err := w.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	var do []orbit.Commitment
	for c := range state.Capsules() {
		done, is := w.ends[c.ID]
		if is && done <= now || c.Gang() != "" && at(i, 5) {
			do = append(do, orbit.Release{Capsule: c.ID, Final: true})
			delete(w.ends, c.ID)
		}
	}
	return w.propose(ctx, do...)
}

// submit submits as many tasks as are wanted, and the gang.
func (w *world) submit(ctx context.Context, i int) error {
	state, err := w.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	live := map[orbit.QueueID]int{}
	for c := range state.Capsules() {
		if !c.Released() && c.Gang() == "" {
			live[c.Spec.Queue]++
		}
	}
	var do []orbit.Commitment
	for _, q := range leaves {
		spec := &orbit.Spec{Class: orbit.Batch, Queue: q.id, Envelope: takes(1)}
		for n := live[q.id]; n < wants(q, hour(i)); n++ {
			w.made++
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("%s-%d", q.id, w.made))}, Spec: spec})
		}
	}
	if at(i, 2) {
		role := orbit.Role{Name: "worker", Spec: &orbit.Spec{Class: orbit.GangClass, Queue: vision.id, Envelope: takes(perNode)}}
		for k := range 8 {
			role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint("train-", k)))
		}
		do = append(do, orbit.Submit{Gang: &orbit.Gang{ID: "train", Roles: []orbit.Role{role}}})
	}
	return w.propose(ctx, do...)
}

// step lets the engines act, and notes what they have made of it.
func (w *world) step(ctx context.Context, i int, now time.Duration) error {
	state, err := w.settle(ctx)
	if err != nil {
		return err
	}
	gaveBack, err := w.count(ctx, state)
	if err != nil {
		return err
	}
	want := amounts{}
	for c := range state.Capsules() {
		if c.Released() {
			continue
		}
		want[c.Spec.Queue] += float64(c.Spec.Envelope.Reservation[gpu])
		if _, runs := w.ends[c.ID]; c.Placed() && c.Gang() == "" && !runs {
			w.ends[c.ID] = now + time.Duration(4+w.random.IntN(5))*tick
		}
	}
	s := sample{used: gpus(state), ideal: amounts{}}
	company.fill(company.has(), want, s.ideal)
	for _, n := range gaveBack {
		s.evicted += int(n)
	}
	w.samples = append(w.samples, s)
	if what := happens[hour(i)]; what != "" && at(i, hour(i)) {
		w.events = append(w.events, event{i, what, gaveBack, w.samples[max(0, i-1)].used, s.used})
	}
	if w.verbose {
		fmt.Printf("%s  used %v, ideal %v, evicted %d, error %.1f%%\n", clock(i), s.used, s.ideal, s.evicted, 100*s.error())
	}
	return nil
}
