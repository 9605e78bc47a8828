package shard

import (
	"fmt"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Round is what one step of a [Dispatcher] did.
type Round struct {
	// What it decided on.
	View orbit.Revision
	// Schedulers that live.
	Schedulers int
	// Capsules given to each scheduler.
	Dispatched map[string]int
	// Those of them that had been dispatched before, or had failed somewhere.
	Redispatched []Move
	// All who live have failed it. Reported once for each set of them, not for each try.
	Failed []*Error
	// Pinned to somebody who does not live. Reported once.
	Stranded []*Error
	// Failed marks that were taken back, in whole or in part, for something has changed that could help.
	Cleared int
	// Marks deleted of capsules that are placed or gone.
	Dropped int
	// Lost to others who were first; looked at again.
	Conflicts int
	// Capsules and gangs that are still to be looked at.
	Left int
	// When something is to be tried again, if nothing else happens; zero: nothing is.
	Next time.Time
	// All else that went wrong, at most 16: the ledger's errors, [ErrPolicy], [ErrCorrupt], [ErrAlone].
	Errors []error
}

const maxErrors = 16

func (r *Round) fail(err error) {
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
}

// active reports whether there is anything to tell.
func (r *Round) active() bool {
	return len(r.Dispatched)+len(r.Failed)+len(r.Stranded)+r.Cleared+r.Dropped+r.Conflicts+len(r.Errors) > 0
}

// String sums the round up in a line.
func (r Round) String() string {
	var b strings.Builder
	total := 0
	for _, n := range r.Dispatched {
		total += n
	}
	fmt.Fprintf(&b, "revision %d: %d capsules to %d of %d schedulers", r.View, total, len(r.Dispatched), r.Schedulers)
	for _, part := range []struct {
		n    int
		what string
	}{
		{len(r.Redispatched), "redispatched"}, {len(r.Failed), "failed by all"}, {len(r.Stranded), "stranded"},
		{r.Cleared, "marks cleared"}, {r.Dropped, "dropped"}, {r.Conflicts, "conflicts"}, {r.Left, "left"}, {len(r.Errors), "errors"},
	} {
		if part.n > 0 {
			fmt.Fprintf(&b, ", %d %s", part.n, part.what)
		}
	}
	return b.String()
}
