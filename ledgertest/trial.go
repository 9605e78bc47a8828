package ledgertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// trial is the check of one rule on one ledger.
type trial struct {
	*harness.Case
	suite Suite
	// ctx ends when the case has taken longer than Suite.Patience.
	ctx context.Context
	// ledger and peer are the two handles; they are the same if there is no peer.
	ledger, peer orbit.Ledger
	limits       orbit.Limits
	// base is the state before the case.
	base *orbit.State
	rng  *rand.Rand
	// asked is the number of calls of either.
	asked int
}

// grace is how long a call may go on after the end of its context.
const grace = 2 * time.Second

// try checks one rule.
func (s Suite) try(t *testing.T, r *rule, open func(t *testing.T) orbit.Ledger) *harness.Case {
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	c := &trial{suite: s, ctx: ctx, rng: harness.Rand(s.Seed, r.Name, 0)}
	if c.ledger = open(t); c.ledger == nil {
		return harness.Failed(errors.New("open returns nil"))
	}
	if c.peer = c.ledger; s.Peer != nil {
		if c.peer = s.Peer(t, c.ledger); c.peer == nil {
			return harness.Failed(errors.New("the peer is nil"))
		}
	}
	return harness.Try(s.Patience+grace, func(h *harness.Case) {
		c.Case = h
		c.limits, c.base = c.ledger.Limits(), c.now()
		if lines := content(c.base); len(lines) != 1 {
			c.Failf("open returns a ledger that is not empty:\n%s", strings.Join(lines[1:min(len(lines), maxLines)], "\n"))
		}
		r.Check(c)
	})
}

// handles returns both handles, or the only one.
func (t *trial) handles() []orbit.Ledger {
	if t.peer == t.ledger {
		return []orbit.Ledger{t.ledger}
	}
	return []orbit.Ledger{t.ledger, t.peer}
}

// scaled returns n times the scale, at least 1.
func (t *trial) scaled(n int) int { return max(1, int(float64(n)*t.suite.Scale)) }
