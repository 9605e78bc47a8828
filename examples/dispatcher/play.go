package main

import (
	"context"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/shard"
)

// row has the figures of one wave.
type row struct {
	mode       shard.Mode
	schedulers int
	fill       float64
	// placed, submitted, packing and fenced are as of the end of the wave.
	placed, submitted, fenced int
	packing                   float64
	// The other figures count what has happened in the wave alone.
	rate                float64
	proposed, conflicts int
	redispatched, moves int
	killed              bool
}

// play runs one scene wave by wave. Half way it kills a scheduler.
func play(ctx context.Context, w *world, mode shard.Mode, schedulers int, o options) ([]row, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s, err := begin(ctx, w, mode, schedulers, o)
	if err != nil {
		return nil, err
	}
	defer s.work.Wait()
	defer end()
	var rows []row
	submitted := 0
	for wave, submits := range w.waves {
		r := row{mode: mode, schedulers: schedulers, fill: waveFills[wave]}
		r.killed = wave == len(w.waves)/2 && schedulers > 1
		submitted += len(submits)
		r.submitted = submitted
		if err := s.wave(ctx, submits, &r); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, ctx.Err()
}

// wave submits the capsules of a wave and waits until all are placed or nothing has been placed for the time still.
func (s *scene) wave(ctx context.Context, submits []orbit.Submit, r *row) error {
	proposed, conflicts, moves, redispatched := s.proposed.Load(), s.conflicts.Load(), s.moves.Load(), s.redispatched.Load()
	before, err := s.placed(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	do := make([]orbit.Commitment, len(submits))
	for i := range submits {
		do[i] = submits[i]
	}
	if _, err := s.ledger.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
		return err
	}
	last, err := s.settle(ctx, r, before)
	if err != nil {
		return err
	}
	state, err := s.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	r.placed, r.packing = state.CapsuleCount()-state.PendingCount(), packing(state)
	r.rate = float64(r.placed-before) / max(last.Sub(start).Seconds(), 1e-6)
	r.proposed, r.conflicts = int(s.proposed.Load()-proposed), int(s.conflicts.Load()-conflicts)
	r.fenced = int(s.fenced.Load())
	r.moves, r.redispatched = int(s.moves.Load()-moves), int(s.redispatched.Load()-redispatched)
	return state.Verify()
}

// still is the time without a placement after which a wave ends.
const still = 3 * ttl

// settle waits for the end of a wave and returns the time of its last placement. If a scheduler is to be killed in this
// wave, it is killed after the first placement.
func (s *scene) settle(ctx context.Context, r *row, before int) (last time.Time, err error) {
	last = time.Now()
	alive := !r.killed
	for seen := before; ctx.Err() == nil; time.Sleep(200 * time.Microsecond) {
		now, err := s.placed(ctx)
		if err != nil {
			return last, err
		}
		if now != seen {
			seen, last = now, time.Now()
		}
		if !alive && (seen > before || time.Since(last) > still/2) {
			s.kill[0]() // most of its capsules are not placed yet
			alive, last = true, time.Now()
		}
		if seen == r.submitted || alive && time.Since(last) > still {
			return last, nil
		}
	}
	return last, ctx.Err()
}

func (s *scene) placed(ctx context.Context) (int, error) {
	state, err := s.ledger.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	return state.CapsuleCount() - state.PendingCount(), nil
}

// packing returns the used share of the CPU on the nodes that run any capsule.
func packing(state *orbit.State) float64 {
	used, capacity := int64(0), int64(0)
	for n := range state.Nodes() {
		if n.Capsules > 0 {
			used += n.Used()[orbit.CPU]
			capacity += n.Node.Capacity[orbit.CPU]
		}
	}
	return 100 * float64(used) / float64(max(capacity, 1))
}
