package ledgertest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
	"github.com/orbitsched/orbit/internal/send"
)

// worker is one goroutine of a load.
type worker struct {
	*running
	ledger orbit.Ledger
	number int
	plan   []action
	view   *orbit.State
	// last is the proposal that was sent last; sent is how many proposals had been committed at that time.
	last  orbit.Proposal
	sent  int
	count uint64 // the number of ids that were made
	took  []time.Duration
}

// run carries out the plan. It ignores errors of the ledger, because History.Check judges them.
func (w *worker) run() error {
	w.refresh()
	for _, a := range w.plan {
		for w.recorder.behind() > w.history/4 && w.ctx.Err() == nil {
			send.Pause(w.ctx, time.Millisecond) // otherwise the ledger would drop changes before the recorder has read them
		}
		if w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		if a.fresh {
			w.refresh()
		}
		w.step(a)
	}
	return nil
}

// refresh takes a snapshot. If that fails, the worker keeps the old one.
func (w *worker) refresh() {
	if s, err := w.ledger.Snapshot(w.ctx); err == nil {
		w.view = s
	}
}

// step carries out one action.
func (w *worker) step(a action) {
	if w.view.Gang(w.gang(gangs-1)) == nil {
		w.refresh() // the view is older than the stage
		return
	}
	switch a.kind {
	case "snapshot":
		w.refresh()
	case "changes":
		_, _ = w.ledger.Changes(w.ctx, w.view.Revision())
	case "wait":
		short, cancel := context.WithTimeout(w.ctx, 2*time.Millisecond)
		defer cancel()
		_, _ = w.ledger.Wait(short, w.view.Revision())
	case "again":
		if len(w.last.Do) > 0 && w.recorder.commits()-w.sent < w.window {
			_ = w.propose(w.last)
		}
	case "batch":
		w.batch(a)
	default:
		if p := w.proposal(a, w.view); len(p.Do) > 0 {
			p.View = w.view.Revision()
			_ = w.propose(p)
		}
	}
}

// identify gives a proposal a unique id, which is the same in each run on a fresh ledger.
func (w *worker) identify(p *orbit.Proposal) {
	w.count++
	binary.BigEndian.PutUint64(p.ID[:], harness.Hash(w.name))
	binary.BigEndian.PutUint16(p.ID[8:], uint16(w.number))
	binary.BigEndian.PutUint32(p.ID[12:], uint32(w.count))
}

// propose sends a proposal until its outcome is known.
func (w *worker) propose(p orbit.Proposal) error {
	if p.ID.IsZero() {
		w.identify(&p)
	}
	w.last, w.sent = p, w.recorder.commits()
	for {
		begin := time.Now()
		err := w.send(p)
		if !errors.Is(err, orbit.ErrUnknown) && !errors.Is(err, orbit.ErrUnavailable) {
			w.took = append(w.took, time.Since(begin))
			return err
		}
		if w.ctx.Err() != nil {
			return err
		}
		send.Pause(w.ctx, 100*time.Microsecond)
	}
}

// send sends a proposal once. After a panic its outcome is unknown.
func (w *worker) send(p orbit.Proposal) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	_, err = w.ledger.Propose(w.ctx, p)
	return err
}

// batch sends three proposals in one call, and sends those with an unknown outcome again one by one.
func (w *worker) batch(a action) {
	var batch []orbit.Proposal
	for i := range 3 {
		a.what, a.where = (a.what+i)%capsules, (a.where+i)%nodes
		p := w.proposal(a, w.view)
		p.View = w.view.Revision()
		w.identify(&p)
		batch = append(batch, p)
	}
	b, ok := w.ledger.(orbit.Batcher)
	if !ok {
		for _, p := range batch {
			_ = w.propose(p)
		}
		return
	}
	for i, o := range w.sendAll(b, batch) {
		if errors.Is(o.Err, orbit.ErrUnknown) || errors.Is(o.Err, orbit.ErrUnavailable) {
			_ = w.propose(batch[i])
		}
	}
}

// sendAll sends a batch once. After a panic all outcomes are unknown.
func (w *worker) sendAll(b orbit.Batcher, batch []orbit.Proposal) (out []orbit.Outcome) {
	defer func() {
		if recover() != nil {
			out = slices.Repeat([]orbit.Outcome{{Err: errPanicked}}, len(batch))
		}
	}()
	return b.ProposeBatch(w.ctx, batch)
}
