package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// This file decides whether a new holder may take a lease over from the present one.

// ofRun separates the name of a holder from that of its run.
const ofRun = "#"

// nameOf returns the name of a holder without that of its run.
func holderName(holder string) string {
	name, _, _ := strings.Cut(holder, ofRun)
	return name
}

// Yield lets another run of the term's holder begin a term at once, as if this one had been silent for long. Call it
// when a run ends and its successor shall go on. The term lives on until it runs out. Only this process knows of it. The
// error is a [*Error] if the term is over already.
func (k *Keeper) Yield(t Term) error {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	le, err := k.current(t, k.clock())
	if err == nil {
		le.yielded = true
	}
	return err
}

// refused returns why the holder of t must not begin a term while le lives; nil: it may. Heard is what probe has returned.
func (k *Keeper) refused(t Term, le *lease, now, heard time.Time) error {
	silent := later(le.end.Add(-k.ttl()/2), heard.Add(k.ttl()/2)) // when the term has not been refreshed for half of TTL
	switch {
	case le.holder == t.Holder:
		return nil
	case holderName(le.holder) != holderName(t.Holder):
		return &Error{Kind: ErrHeld, Term: t, Held: le.term(), Until: le.end}
	case le.yielded || !now.Before(silent):
		return nil
	}
	return &Error{Kind: ErrRunning, Term: t, Held: le.term(), Until: silent}
}

// probe asks the shared Refreshes for how long a term still lives if another run of its holder wants the lease: refreshes
// that other processes have received are not known here. Heard is the latest time at which the term may have been refreshed, if
// Refreshes know ([Silences]); zero: only its end says when that was.
func (k *Keeper) probe(ctx context.Context, t Term) (heard time.Time, err error) {
	k.mu.Lock()
	le, began := k.leases[t.Name], k.clock()
	if k.Refreshes == nil || le == nil || le.state != isLive || le.token == "" || le.holder == t.Holder || le.yielded {
		k.mu.Unlock()
		return heard, nil
	}
	term, token := le.at, le.token
	k.mu.Unlock()
	lives, err := k.Refreshes.Left(ctx, []string{token})
	if err == nil && len(lives) != 1 {
		err = fmt.Errorf("%w: %d answers for one term", orbit.ErrUnavailable, len(lives))
	}
	if err != nil {
		return heard, fmt.Errorf("lease %q: refreshes: %w", t.Name, err)
	}
	if s, is := k.Refreshes.(Silences); is {
		heard = began.Add(-s.Silent(token))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case le.state != isLive || le.at != term:
	case lives[0] <= 0:
		k.end(le)
	default:
		le.end = later(le.end, began.Add(lives[0]))
	}
	return heard, nil
}

// stoppedBy returns the time by which what the last holder of a lease has left running has stopped, if it keeps to
// [Members.Fence]: the lesser of TTL and Gone after the end of its term. The lease must not be live. The caller must
// hold the lock, or have a copy.
func (m *Members) stoppedBy(le *lease) time.Time {
	end := le.end
	if le.state == isOver {
		end = le.learned
	}
	return end.Add(min(m.gone(), m.Leases.ttl()))
}

// otherMachine returns an error if a node must not join because something may still run on the machine that had its
// lease before, and that machine is not the one that joins.
func (m *Members) otherMachine(state *orbit.State, n *orbit.NodeState, le *lease, holder string) error {
	if le.holder == "" || holderName(le.holder) == holderName(holder) || n == nil || n.Node.State == orbit.Lost {
		return nil
	}
	stopped := m.stoppedBy(le)
	if !m.Leases.clock().Before(stopped) || !begun(state, n) {
		return nil
	}
	return &Error{
		Kind: ErrHeld, Term: Term{Name: le.name, Holder: holder}, Held: Term{Name: le.name, Holder: le.holder, Epoch: le.epoch}, Until: stopped,
		Reason: "the term is over, but what has begun on that machine may run until then",
	}
}

// begun reports whether anything may run on a node: something that has begun there, or that has left and not stopped.
func begun(state *orbit.State, n *orbit.NodeState) bool {
	for c := range state.On(n.Node.ID) {
		if c.Begun || !n.Node.Confirms {
			return true
		}
	}
	for range state.Remains(n.Node.ID) {
		return true
	}
	return false
}
