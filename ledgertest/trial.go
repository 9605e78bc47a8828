package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
)

// trial is one rule being checked on one ledger. It runs in a goroutine of its own, which failf ends as
// testing.T.Fatalf would, so that checks read like tests and a ledger that never answers cannot stop the suite.
type trial struct {
	Options
	rule *rule
	// Ends when the case has taken too long.
	ctx context.Context
	// The two handles; the same one where there is no peer.
	ledger, peer orbit.Ledger
	limits       orbit.Limits
	// The state before the case.
	base *orbit.State
	rng  *rand.Rand
	// How often one of the handles was asked.
	asked int
	// Shown beside the rule.
	notes []string
	// Why the ledger cannot be checked; empty: it can.
	unfit string
	err   error
}

// try checks one rule. What it returns may only be read where the case has ended, as err says.
func (o Options) try(t *testing.T, r *rule, open func(t *testing.T) orbit.Ledger) *trial {
	ctx, cancel := context.WithTimeout(context.Background(), o.Patience)
	defer cancel()
	c := &trial{Options: o, rule: r, ctx: ctx, rng: rand.New(rand.NewPCG(o.Seed, hashOf(r.name)))}
	if c.ledger = open(t); c.ledger == nil {
		return &trial{err: errors.New("open returns nil")}
	}
	if c.peer = c.ledger; o.Peer != nil {
		if c.peer = o.Peer(t, c.ledger); c.peer == nil {
			return &trial{err: errors.New("the peer is nil")}
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run()
	}()
	select {
	case <-done:
		return c
	case <-time.After(o.Patience + grace):
		return &trial{err: fmt.Errorf("the case has not ended after %v; a call does not return:\n%s", o.Patience+grace, stacks())}
	}
}

// grace is how long a call may go on after its context has ended.
const grace = 2 * time.Second

// run carries the check out and notes how it ends.
func (t *trial) run() {
	finished := false
	defer func() {
		if p := recover(); p != nil {
			t.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		} else if !finished && t.err == nil && t.unfit == "" {
			t.err = errors.New("something has exited the goroutine of the case")
		}
	}()
	t.limits = t.ledger.Limits()
	t.base = t.now()
	if n := len(content(t.base)); n != 1 {
		t.failf("open returns a ledger that is not empty:\n%s", strings.Join(content(t.base)[1:min(n, maxLines)], "\n"))
	}
	t.rule.check(t)
	finished = true
}

// failf ends the case. It must be called from the goroutine of the case.
func (t *trial) failf(format string, args ...any) {
	t.err = fmt.Errorf(format, args...)
	runtime.Goexit()
}

// skipf ends a case for which the ledger is not fit.
func (t *trial) skipf(format string, args ...any) {
	t.unfit = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// notef adds a line to what is shown beside the rule.
func (t *trial) notef(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// must ends the case if there is an error.
func (t *trial) must(err error, doing string) {
	if err != nil {
		t.failf("%s: %w", doing, err)
	}
}

// handles are both, or the one that there is.
func (t *trial) handles() []orbit.Ledger {
	if t.peer == t.ledger {
		return []orbit.Ledger{t.ledger}
	}
	return []orbit.Ledger{t.ledger, t.peer}
}

// scaled returns n times the scale, at least 1.
func (t *trial) scaled(n int) int { return max(1, int(float64(n)*t.Scale)) }

// hashOf makes every rule draw its own numbers.
func hashOf(name string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// stacks are what all goroutines are doing, as much of it as one wants to read.
func stacks() []byte {
	text := make([]byte, 16<<10)
	return text[:runtime.Stack(text, true)]
}
