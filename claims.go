package orbit

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// claim is what a navigator is asked about.
type claim struct {
	module string
	class  AppClass
}

// claims remembers a navigator's answers. Several engines of a population ask it at once; nobody waits with
// the mutex held.
type claims struct {
	// Guards what follows.
	mu      sync.Mutex
	answers map[claim]*answer
	// A call that has overrun its deadline: until it returns, nothing new is claimed.
	late <-chan verdict
	// What went wrong, for the next round.
	faults []error
}

// answer is one that is there once done is closed.
type answer struct {
	done chan struct{}
	yes  bool
}

const (
	// claimTimeout is the deadline of one call of Claims, which should look at its arguments and no further.
	claimTimeout = time.Second
	// maxClaims is how many answers are remembered; beyond that they are asked for again.
	maxClaims = 1 << 16
)

// ask returns the navigator's answer, which is asked for once. A navigator that panics, exits or does not
// answer claims nothing.
func (e *Engine) ask(key claim) bool {
	a, first := e.claims.promise(key)
	if first {
		e.answer(key, a)
	}
	<-a.done
	return a.yes
}

// promise returns the answer to a claim, and whether the caller is the one to find it.
func (c *claims) promise(key claim) (a *answer, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.answers[key]; ok {
		return a, false
	}
	if c.answers == nil || len(c.answers) >= maxClaims {
		c.answers = map[claim]*answer{}
	}
	a = &answer{done: make(chan struct{})}
	c.answers[key] = a
	return a, true
}

// answer asks the navigator.
func (e *Engine) answer(key claim, a *answer) {
	defer close(a.done)
	if e.claims.busy() { // the answer is forgotten when that call returns
		e.claims.fault(fmt.Errorf("orbit: engine %q: Claims(%q, %v) is not asked: %w: an earlier call still runs", e.Name, key.module, key.class, ErrNavigator), nil)
		return
	}
	said := make(chan bool, 1)
	v, late := contain(context.Background(), claimTimeout, func(context.Context) error {
		said <- e.Navigator.Claims(key.module, key.class)
		return nil
	})
	if v.err != nil {
		e.claims.fault(fmt.Errorf("orbit: engine %q: Claims(%q, %v): %w", e.Name, key.module, key.class, v.err), late)
		return
	}
	a.yes = <-said
}

// recovered reports whether a call that had overrun has returned. All answers are forgotten then: some were
// given in its stead.
func (c *claims) recovered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late == nil {
		return false
	}
	select {
	case <-c.late:
		c.late, c.answers = nil, nil
		return true
	default:
		return false
	}
}

// busy reports whether a call has overrun and the engine has not recovered from it.
func (c *claims) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late != nil
}

// fault notes what went wrong, and the call that still runs if one does.
func (c *claims) fault(err error, late <-chan verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) < maxErrors {
		c.faults = append(c.faults, err)
	}
	if late != nil {
		c.late = late
	}
}

// takeFaults returns what went wrong since the last time.
func (c *claims) takeFaults() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := c.faults
	c.faults = nil
	return faults
}
